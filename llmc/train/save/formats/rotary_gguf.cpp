// RoPE scaling in GGUF. llama.cpp reads Llama 3's scaling as a tensor of divisors, linear scaling and YaRN
// from the keys rope.scaling.*. It multiplies YaRN's cos and sin by attn_factor (0.1 ln(factor) + 1). A key
// of this program has the setting as JSON, for what the others round or leave out.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "llmc/base/check.h"
#include "llmc/base/config/config.h"
#include "llmc/base/json/json_file.h"
#include "llmc/train/save/formats/format_gguf.h"

inline namespace formats {

static constexpr const char* kScaling = "train_gpt.rope_scaling";
static constexpr const char *kScalingType = ".rope.scaling.type", *kScalingFactor = ".rope.scaling.factor",
                            *kOldFactor = ".rope.scale_linear", *kAttention = ".rope.scaling.attn_factor",
                            *kFirstContext = ".rope.scaling.original_context_length";

std::vector<float> divisors_of(const ModelConfig& m) {
    const int D = with_sizes(m).head_channels;
    const RopeScaling& s = m.rope_scaling;
    std::vector<float> divisors;
    for (int i = 0; i < D / 2; i++) {
        const double rotations = s.context * std::pow(m.rope_theta, -2. * i / D) / (2 * std::numbers::pi);
        const double kept = std::clamp((rotations - s.low) / (s.high - s.low), 0., 1.);
        divisors.push_back(float(1 / ((1 - kept) / s.factor + kept)));
    }
    return divisors;
}

static double attention_of_yarn(double factor) { return 0.1 * std::log(factor) + 1; }

std::vector<GgufPair> scaling_pairs(const ForeignKind& kind, const ModelConfig& m) {
    const RopeScaling& s = m.rope_scaling;
    if (!s.used()) return {};
    std::vector<GgufPair> pairs = {{kScaling, to_text(value_of_setting(m, "rope_scaling"))}};
    if (s.kind == RopeScalingKind::Llama3) return pairs;
    const auto put = [&](const char* key, GgufValue value) {
        pairs.push_back({kind.id + std::string(key), std::move(value)});
    };
    put(kScalingType, Choice(s.kind).text());
    put(kScalingFactor, float(s.factor));
    if (s.kind == RopeScalingKind::Yarn) put(kFirstContext, uint32_t(s.context));
    if (s.attention > 0) put(kAttention, float(s.attention / attention_of_yarn(s.factor)));
    return pairs;
}

// ---------------------------------------------------------------------------------------------------------
// reading

// A GGUF file, as far as its RoPE scaling goes.
struct ScaledGguf {
    const ForeignKind& kind;
    const GgufFile& file;
    const std::map<std::string, Json>& values;

    std::string name(const char* key) const { return kind.id + std::string(key); }
    const Json* find(const std::string& key) const {
        const auto found = values.find(key);
        return found == values.end() ? nullptr : &found->second;
    }
    double number(const char* key, double low, double missing) const {
        const Json* v = find(name(key));
        if (!v) return missing;
        CHECK_INPUT(v->is_number() && v->number() >= low && v->number() <= 1 << 24, "{}: {} is {}, expected "
                    "a number of {:g} to 2^24", file.path, name(key), for_message(*v), low);
        return v->number();
    }
};

static RopeScaling linear_or_none(const ScaledGguf& g, bool none) {
    const double attention = g.number(kAttention, 0, 1);
    CHECK_INPUT(attention == 1, "{}: {} is {:g}, expected 1 where {} is not yarn: this program computes no "
                "other", g.file.path, g.name(kAttention), attention, g.name(kScalingType));
    const double factor = g.number(kScalingFactor, 0, g.number(kOldFactor, 0, 1));
    if (none || factor == 0 || factor == 1) return {};
    CHECK_INPUT(factor > 1, "{}: {} is {:g}, expected 1 or more", g.file.path,
                g.name(g.find(g.name(kScalingFactor)) ? kScalingFactor : kOldFactor), factor);
    return {.kind = RopeScalingKind::Linear, .factor = factor};
}

static RopeScaling yarn_of_keys(const ScaledGguf& g, int context) {
    RopeScaling s = {.kind = RopeScalingKind::Yarn, .factor = g.number(kScalingFactor, 1, 0),
                     .context = int(g.number(kFirstContext, 1, context))};
    CHECK_INPUT(s.factor >= 1, "{}: there is no {}; {} = yarn needs the factor of the context", g.file.path,
                g.name(kScalingFactor), g.name(kScalingType));
    const double attention = g.number(kAttention, 1e-6, 1);
    if (attention != 1) s.attention = attention * attention_of_yarn(s.factor);
    return s;
}

// Without a type the factor is of linear scaling.
static RopeScaling scaling_of_keys(const ScaledGguf& g, int context) {
    const Json* const type = g.find(g.name(kScalingType));
    if (type && *type == Json("yarn")) return yarn_of_keys(g, context);
    const bool none = type && *type == Json("none");
    CHECK_INPUT(!type || none || *type == Json("linear"), "{}: {} is {}, expected \"none\", \"linear\" or "
                "\"yarn\": this program computes no other {}", g.file.path, g.name(kScalingType),
                for_message(*type), g.kind.name);
    return linear_or_none(g, none);
}

// The setting that this program wrote beside the other keys; none: another program's file.
static std::optional<RopeScaling> stated_scaling(const ScaledGguf& g) {
    const Json* const text = g.find(kScaling);
    if (!text) return {};
    const std::string where = g.file.path + ": " + kScaling;
    CHECK_INPUT(text->is_string(), "{} is {}, expected a text", where, for_message(*text));
    const Json form = parse_json_text(text->string(), where);
    const std::string as_config = to_text(Json::Members{{"model", Json::Members{{"rope_scaling", form}}}});
    return parse_config(as_config, where).model.rope_scaling;
}

static void check_stated(const ScaledGguf& g, const RopeScaling& stated, const RopeScaling& keys) {
    const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); };
    const bool yarn = stated.kind == RopeScalingKind::Yarn;
    const bool same = stated.kind == keys.kind && near(keys.factor, stated.factor) &&
                      (!yarn || keys.context == stated.context) && near(keys.attention, stated.attention);
    CHECK_INPUT(same, "{}: {} is {}, but the keys {}.rope.scaling.* say otherwise; leave one out",
                g.file.path, kScaling, for_message(*g.find(kScaling)), g.kind.id);
}

// The divisors do not say which setting they are of: the key does, else Llama 3's own low and high.
static RopeScaling scaling_of_divisors(const ScaledGguf& g, const GgufTensor& t, ModelConfig m) {
    const GgufFile& file = g.file;
    const size_t pairs = size_t(with_sizes(m).head_channels) / 2;
    CHECK_INPUT(t.shape == std::vector<uint64_t>{pairs} && t.type == GgufType::F32, "{}: {} is of another "
                "shape than the {} pairs of a head", file.path, kRopeFreqs, pairs);
    std::vector<float> found(pairs);
    file.read(t, 0, pairs, found.data());
    const std::optional<RopeScaling> stated = stated_scaling(g);
    m.rope_scaling = stated.value_or(
        RopeScaling{.kind = RopeScalingKind::Llama3,
                    .factor = double(*std::max_element(found.begin(), found.end()))});
    const double factor = m.rope_scaling.factor;
    CHECK_INPUT(m.rope_scaling.kind == RopeScalingKind::Llama3, "{}: {} is {}, but {} is of Llama 3's "
                "scaling; leave one out", file.path, kScaling, for_message(*g.find(kScaling)), kRopeFreqs);
    CHECK_INPUT(factor >= 1, "{}: the largest of {} is {:g}, expected 1 or more", file.path, kRopeFreqs,
                factor);
    const std::vector<float> expected = divisors_of(m);
    for (size_t i = 0; i < pairs; i++)
        CHECK_INPUT(std::abs(found[i] - expected[i]) <= 1e-4f * expected[i], "{}: {} has {:g} for pair {}, "
                    "where Llama 3's scaling by {:g} has {:g}: this program computes no other", file.path,
                    kRopeFreqs, found[i], i, factor, expected[i]);
    return m.rope_scaling;
}

RopeScaling scaling_of_gguf(const ForeignKind& kind, const GgufFile& file,
                            const std::map<std::string, Json>& values, const ModelConfig& m) {
    const ScaledGguf g = {kind, file, values};
    const RopeScaling keys = scaling_of_keys(g, m.context);
    const GgufTensor* const divisors = kind.llama3 ? file.find(kRopeFreqs) : nullptr;
    if (divisors) {
        CHECK_INPUT(!keys.used(), "{}: {} and {} are of two scalings; this program computes one", file.path,
                    kRopeFreqs, g.name(kScalingFactor));
        return scaling_of_divisors(g, *divisors, m);
    }
    const std::optional<RopeScaling> stated = stated_scaling(g);
    if (stated) check_stated(g, *stated, keys);
    return stated.value_or(keys);
}

}  // namespace formats

#include "llmc/train/run_state.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "llmc/base/check.h"

using nlohmann::json;

std::optional<double> Trailing::score(double v) {
    if (!std::isfinite(v)) return std::nullopt;    // it would stay in the window
    std::optional<double> z;
    if (values.size() == kWindow) {
        double mean = 0, square = 0;
        for (double x : values) mean += x / kWindow;
        for (double x : values) square += (x - mean) * (x - mean) / kWindow;
        if (square > 0) z = (v - mean) / std::sqrt(square);
        values[next] = v;
        next = (next + 1) % kWindow;
    } else values.push_back(v);
    return z;
}

static json json_of(const Trailing& t) { return {{"values", t.values}, {"next", t.next}}; }

static json json_of(const std::optional<Validation>& v) {
    if (!v) return nullptr;
    json j = {{"step", v->step}, {"loss", v->loss}};
    if (v->bits_per_byte) j["bits_per_byte"] = *v->bits_per_byte;
    return j;
}

static constexpr const char* kRandom = "philox4x32-10";     // a function of seed, stream and index: no state

std::string to_json(const RunState& s) {
    return json{{"step", s.step}, {"loader", {{"sample", s.sample}}},
                {"rng", {{"kind", kRandom}, {"seed", s.seed}}},
                {"skipped", s.skipped}, {"evaluated", s.evaluated}, {"sampled", s.sampled},
                {"loss", json_of(s.loss)}, {"norm", json_of(s.norm)},
                {"first_validation", json_of(s.first)}, {"last_validation", json_of(s.last)}}.dump();
}

static int64_t seed_of(const json& rng) {
    const std::string kind = rng.at("kind").get<std::string>();
    if (kind != kRandom) throw std::runtime_error("random numbers of kind " + kind + ", expected " + kRandom);
    return rng.at("seed").get<int64_t>();
}

static Trailing trailing_of(const json& v) {
    Trailing t;
    for (const json& x : v.at("values")) t.values.push_back(x.get<double>());
    t.next = v.at("next").get<size_t>();
    if (t.values.size() > Trailing::kWindow || t.next >= Trailing::kWindow)
        throw std::runtime_error("a window of statistics that is too long");
    return t;
}

// JSON has no number that is not finite: such a loss is written as null.
static double number_of(const json& v) {
    return v.is_null() ? std::numeric_limits<double>::quiet_NaN() : v.get<double>();
}

static std::optional<Validation> validation_of(const json& v) {
    if (v.is_null()) return std::nullopt;
    Validation r{v.at("step").get<int64_t>(), number_of(v.at("loss")), {}};
    if (v.contains("bits_per_byte")) r.bits_per_byte = number_of(v["bits_per_byte"]);
    return r;
}

RunState run_state_of(const std::string& text, const std::string& where) {
    try {
        const json v = json::parse(text);
        return {.step = v.at("step").get<int64_t>(), .sample = v.at("loader").at("sample").get<int64_t>(),
                .seed = seed_of(v.at("rng")), .skipped = v.at("skipped").get<int64_t>(),
                .evaluated = v.at("evaluated").get<bool>(), .sampled = v.at("sampled").get<bool>(),
                .loss = trailing_of(v.at("loss")), .norm = trailing_of(v.at("norm")),
                .first = validation_of(v.at("first_validation")),
                .last = validation_of(v.at("last_validation"))};
    } catch (const std::exception& e) {
        CHECK_INPUT(false, "%s: the state of the run: %s", where.c_str(), e.what());
    }
}

// The rules between settings of a model, of the precision of its weights, and of its products in FP8.
#include "llmc/base/check.h"
#include "llmc/base/config/config.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/numbers/fp8.h"

inline namespace config {

static int nearest_divisor(int n, int d) {
    for (int away = 0;; away++) {
        if (d - away > 0 && n % (d - away) == 0) return d - away;
        if (n % (d + away) == 0) return d + away;
    }
}

std::string wrong_model(const ModelConfig& m, const ShapeKeys& keys) {
    if (m.kv_heads && m.heads % m.kv_heads != 0)
        return fmt::format("model.kv_heads = {} does not divide {} = {}: equally many heads share keys and "
                           "values; the nearest that divides is {}", m.kv_heads, keys.heads, m.heads,
                           nearest_divisor(m.heads, m.kv_heads));
    if (m.rope_scaling.used() && m.position != PositionKind::Rope)
        return "model.rope_scaling is for model.position = rope: learned positions have no rotation";
    if (m.rope_scaling.kind == RopeScalingKind::Yarn && !(m.rope_theta > 1))
        return fmt::format("model.rope_theta = {:g}: model.rope_scaling = yarn needs a base above 1, so that "
                           "later pairs of channels rotate slower", m.rope_theta);
    if (m.value_embeddings != ValueEmbeddings::None && m.channels < kGateInputs)
        return fmt::format("{} = {}: the gates of model.value_embeddings read {} channels", keys.channels,
                           m.channels, kGateInputs);
    const int D = m.head_channels ? m.head_channels : m.channels / m.heads;
    if (D % 2 && (m.position == PositionKind::Rope || m.qk_norm != QkNorm::None))
        return fmt::format("heads of {} channels: model.position = rope and model.qk_norm need an even "
                           "number; change model.head_channels", D);
    if (m.head_channels || m.channels % m.heads == 0) return "";
    return fmt::format("{} = {} does not divide {} = {}: each head has channels / heads of them; the "
                       "nearest that divides is {}", keys.heads, m.heads, keys.channels, m.channels,
                       nearest_divisor(m.channels, m.heads));
}

std::string wrong_shape(const ModelConfig& shape, const ShapeKeys& keys) {
    Config c;
    c.model = shape;
    const std::pair<const char*, const char*> names[] = {
        {"model.layers", keys.layers}, {"model.heads", keys.heads}, {"model.channels", keys.channels},
        {"model.context", keys.context}, {"model.vocab", keys.vocab}};
    for (const Field& f : fields(c))
        for (const auto& [path, key] : names)
            if (f.path() == path && !allowed(f))
                return fmt::format("{} = {}: expected {}", key, value_json(f.value), expected(f));
    if (shape.vocab < 1) return fmt::format("{} = {}: expected an integer of at least 1", keys.vocab,
                                            shape.vocab);
    return wrong_model(shape, keys);
}

std::string master_mistake(const Config& c) {
    const bool other = c.run.precision == RunPrecision::Fp32 || c.run.precision == RunPrecision::Fp64;
    if (c.optimizer.master || !other || c.train.steps == 0) return "";
    const std::string precision = c.run.precision.text();
    return fmt::format("optimizer.master = false with run.precision = {}: weights in {} are their own "
                       "masters; set run.precision to bf16, or optimizer.master to true", precision,
                       precision);
}

std::string fp8_mistake(const Config& c) {
    const bool other = c.run.precision == RunPrecision::Fp32 || c.run.precision == RunPrecision::Fp64;
    if (c.run.products != ProductKind::Fp8) return "";
    if (other)
        return fmt::format("run.products = fp8 with run.precision = {}: FP8 products have weights and "
                           "activations in bf16; set run.precision to bf16, or run.products to bf16",
                           c.run.precision.text());
    const ModelConfig m = with_sizes(c.model);
    const int tp = c.parallel.tp, heads = m.heads / tp * m.head_channels;
    const int qkv = heads + 2 * (m.kv_heads / tp) * m.head_channels;
    const struct { const char* setting; int size; bool cut; const char* what; } sizes[] = {
        {"model.channels", m.channels, false, "channels"},
        {"model.head_channels", heads, true, "channels of heads"},
        {"model.head_channels", qkv, true, "channels of queries, keys and values"},
        {"model.ffn_channels", m.ffn_channels / tp, true, "feed-forward channels"},
        {"model.context", m.context / c.parallel.cp, false, "tokens in a row"}};
    for (const auto& [setting, size, cut, what] : sizes)
        if (size % kFp8Unit)
            return fmt::format("run.products = fp8: {} {}{}, expected a multiple of {}; change {}{}, or set "
                               "run.products to bf16", size, what,
                               cut && tp > 1 ? fmt::format(" on each rank of parallel.tp = {}", tp) : "",
                               kFp8Unit, setting, cut && tp > 1 ? " or parallel.tp" : "");
    return "";
}

}  // namespace config

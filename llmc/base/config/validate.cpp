// What has to hold between settings, and which values ask for parts that this version does not have.
#include <algorithm>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/version.h"

// path = value: what is missing; what to do
static void missing(bool asked, Config& cfg, const char* path, const char* what, const char* instead) {
    if (!asked) return;
    std::string value;
    for (const Field& f : fields(cfg))
        if (f.path() == path) value = value_json(f.value);
    fatal(kExitConfig, __FILE__, __LINE__, "%s = %s: %s not in this version yet; set it to %s", path,
          value.c_str(), what, instead);
}

static void check_parts(Config& c) {
    const ParallelConfig& p = c.parallel;
    missing(p.cp > 1, c, "parallel.cp", "context parallelism is", "1");
}

static void check_device(const Config& c) {
    const char* asked = c.run.device.c_str();
    CHECK_INPUT(c.run.device == "auto" || c.run.device == built_device,
                "run.device = %s: this program is built for %s. Set run.device to %s or auto, or build one "
                "by make DEVICE=%s", asked, built_device, built_device, asked);
}

static void check_batch(const Config& c) {
    const long long batch = c.train.batch_tokens, T = c.model.context;
    const long long rows = std::max(c.train.micro_batch, 1);
    const long long unit = rows * T, below = batch / unit * unit;
    const std::string of = rows == 1 ? strf("model.context = %lld", T) :
        strf("train.micro_batch x model.context = %lld x %lld = %lld", rows, T, unit);
    const std::string fix = below == 0 ? strf("the least is %lld (it counts tokens, not sequences)", unit) :
        strf("the nearest are %lld and %lld", below, below + unit);
    CHECK_INPUT(batch % unit == 0, "train.batch_tokens = %lld is no multiple of %s: %s", batch, of.c_str(),
                fix.c_str());
}

static int nearest_divisor(int n, int d) {
    for (int away = 0;; away++) {
        if (d - away > 0 && n % (d - away) == 0) return d - away;
        if (n % (d + away) == 0) return d + away;
    }
}

// REQUIRES: heads above 0. Empty: they divide.
static std::string wrong_heads(const ModelConfig& m, const ShapeKeys& keys) {
    if (m.channels % m.heads == 0) return "";
    return strf("%s = %d does not divide %s = %d: each head has channels / heads of them; the nearest that "
                "divides is %d", keys.heads, m.heads, keys.channels, m.channels,
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
                return strf("%s = %s: expected %s", key, value_json(f.value).c_str(), expected(f).c_str());
    if (shape.vocab < 1) return strf("%s = %d: expected an integer of at least 1", keys.vocab, shape.vocab);
    return wrong_heads(shape, keys);
}

void validate(const Config& cfg) {
    Config c = cfg;
    for (const Field& f : fields(c))
        CHECK_INPUT(allowed(f), "%s = %s: expected %s", f.path().c_str(), value_json(f.value).c_str(),
                    expected(f).c_str());
    check_device(c);
    check_parts(c);
    const std::string wrong = wrong_heads(c.model, {});
    CHECK_INPUT(wrong.empty(), "%s", wrong.c_str());
    check_batch(c);
    CHECK_INPUT(c.run.dir != "", "run.dir is empty: name a folder for what the run writes");
    CHECK_INPUT(c.model.init != "",
                "model.init is empty: set it to random, a folder step_N, or FORMAT:PATH as --help has it");
    const OptimizerConfig& o = c.optimizer;
    CHECK_INPUT(
        o.schedule != "wsd" || o.decay == 0 || o.warmup + o.decay <= c.train.steps || c.train.steps == 0,
        "optimizer.warmup + optimizer.decay = %lld + %lld is more than train.steps = %lld",
        (long long)o.warmup, (long long)o.decay, (long long)c.train.steps);
}

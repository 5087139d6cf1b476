// Rules between settings, and values that ask for parts missing from this version.
#include <algorithm>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/console.h"
#include "llmc/base/version.h"

// Message: path = value: the missing part; the alternative
static void missing(bool asked, Config& cfg, const char* path, const char* what, const char* instead) {
    if (!asked) return;
    std::string value;
    for (const Field& f : fields(cfg))
        if (f.path() == path) value = value_json(f.value);
    fatal(kExitConfig, __FILE__, __LINE__, "%s = %s: %s not in this version yet; set it to %s", path,
          value.c_str(), what, instead);
}

static void check_parallel(Config& c) {
    const ParallelConfig& p = c.parallel;
    missing(p.cp > 1, c, "parallel.cp", "context parallelism is", "1");
    CHECK_INPUT(p.schedule == PipelineSchedule::Interleaved || p.virtual_stages == 1,
                "parallel.virtual_stages = %d: only parallel.schedule = interleaved has virtual stages",
                p.virtual_stages);
    CHECK_INPUT(p.schedule != PipelineSchedule::Interleaved || p.virtual_stages > 1,
                "parallel.schedule = interleaved with parallel.virtual_stages = 1: each rank of an "
                "interleaved pipeline has several chunks of layers; set parallel.virtual_stages to at least "
                "2, or parallel.schedule to 1f1b");
}

static void check_device(const Config& c) {
    const std::string asked = c.run.device.text();
    CHECK_INPUT(c.run.device == RunDevice::Auto || asked == built_device,
                "run.device = %s: this program is built for %s. Set run.device to %s or auto, or build one "
                "by make DEVICE=%s", asked.c_str(), built_device, built_device, asked.c_str());
}

// Factors of train.batch_tokens. An interleaved pipeline trains on micro-batches in groups of parallel.pp.
namespace {
struct BatchUnit {
    long long dp, rows, T, group;
    long long tokens() const { return dp * rows * T * group; }
};
}  // namespace

// The group counts once the micro-batch is chosen.
static BatchUnit batch_unit(const Config& c, int dp, int micro_batch) {
    const bool grouped = c.parallel.virtual_stages > 1 && micro_batch > 0;
    return {.dp = dp, .rows = std::max(micro_batch, 1), .T = c.model.context,
            .group = grouped ? c.parallel.pp : 1};
}

bool batch_divides(const Config& cfg, int dp, int micro_batch) {
    return cfg.train.batch_tokens % batch_unit(cfg, dp, micro_batch).tokens() == 0;
}

static void check_batch(long long batch, const BatchUnit& u) {
    const long long unit = u.tokens(), below = batch / unit * unit;
    if (below == batch) return;
    std::string of = strf("model.context = %lld", u.T);
    if (u.rows > 1) of = strf("train.micro_batch = %lld x ", u.rows) + of;
    if (u.dp > 1) of = strf("%lld data-parallel ranks x ", u.dp) + of;
    if (u.group > 1) of += strf(" x parallel.pp = %lld of an interleaved schedule", u.group);
    if (unit > u.T) of += strf(", which is %lld", unit);
    const std::string fix = below == 0 ? strf("the least is %lld (it counts tokens, not sequences)", unit) :
        strf("the nearest are %lld and %lld", below, below + unit);
    fatal(kExitConfig, __FILE__, __LINE__, "train.batch_tokens = %lld is no multiple of %s: %s", batch,
          of.c_str(), fix.c_str());
}

void check_batch(const Config& cfg, int dp, int micro_batch) {
    check_batch(cfg.train.batch_tokens, batch_unit(cfg, dp, micro_batch));
}

static int nearest_divisor(int n, int d) {
    for (int away = 0;; away++) {
        if (d - away > 0 && n % (d - away) == 0) return d - away;
        if (n % (d + away) == 0) return d + away;
    }
}

// Empty: the sizes divide. REQUIRES: heads above 0.
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
    check_parallel(c);
    const std::string wrong = wrong_heads(c.model, {});
    CHECK_INPUT(wrong.empty(), "%s", wrong.c_str());
    BatchUnit unit = batch_unit(c, 1, c.train.micro_batch);
    unit.group = 1;         // --export needs no mesh: check_mesh() has the ranks
    check_batch(c.train.batch_tokens, unit);
    CHECK_INPUT(c.run.dir != "", "run.dir is empty: name a folder for what the run writes");
    CHECK_INPUT(c.model.init != "",
                "model.init is empty: set it to random, a folder step_N, or FORMAT:PATH as --help has it");
    const OptimizerConfig& o = c.optimizer;
    CHECK_INPUT(
        o.schedule != LrSchedule::Wsd || o.decay == 0 || o.warmup + o.decay <= c.train.steps ||
            c.train.steps == 0,
        "optimizer.warmup + optimizer.decay = %lld + %lld is more than train.steps = %lld",
        (long long)o.warmup, (long long)o.decay, (long long)c.train.steps);
}

static int largest_divisor(int n, int most) {
    int d = std::min(n, most);
    while (n % d) d--;
    return d;
}

static void check_axes(const ParallelConfig& p, const ModelConfig& m, int ranks) {
    const int unit = p.tp * p.pp;
    CHECK_INPUT(ranks % unit == 0,
                "parallel.tp x parallel.pp = %d x %d = %d does not divide the %s of this job: start a "
                "multiple of %d ranks, or make parallel.tp or parallel.pp smaller",
                p.tp, p.pp, unit, counted(ranks, "rank").c_str(), unit);
    CHECK_INPUT(
        m.heads % p.tp == 0,
        "parallel.tp = %d does not divide model.heads = %d: each rank computes whole heads; the largest "
        "that does is %d",
        p.tp, m.heads, largest_divisor(m.heads, p.tp));
    const int stages = p.pp * p.virtual_stages;
    CHECK_INPUT(
        m.layers >= stages,
        "parallel.pp x parallel.virtual_stages = %d x %d = %d stages are more than model.layers = %d: "
        "each needs a layer",
        p.pp, p.virtual_stages, stages, m.layers);
    const int dp = ranks / unit;
    CHECK_INPUT(
        p.zero_group == 0 || dp % p.zero_group == 0,
        "parallel.zero_group = %d does not divide the %d data-parallel ranks (%d ranks over tp x pp = %d); "
        "the largest that does is %d",
        p.zero_group, dp, ranks, unit, largest_divisor(dp, p.zero_group));
}

void check_mesh(const Config& c, int ranks) {
    Config copy = c;
    check_parallel(copy);
    check_axes(c.parallel, c.model, ranks);
    check_batch(c, ranks / (c.parallel.tp * c.parallel.pp), c.train.micro_batch);
    CHECK_INPUT(
        c.parallel.reduce_dtype == ReduceDtype::Fp32 || c.run.precision != RunPrecision::Fp64,
        "parallel.reduce_dtype = %s: with run.precision = fp64 gradients travel in fp64; leave it at fp32",
        c.parallel.reduce_dtype.text().c_str());
}

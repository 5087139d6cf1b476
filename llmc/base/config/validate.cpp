// Rules between settings, and values that ask for features missing from this version.
#include <algorithm>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/config/axes.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/console.h"
#include "llmc/base/host/version.h"
#include "llmc/base/numbers/fp8.h"

inline namespace config {

// On the last stage every live micro-batch waits for its second half: recomputation saves no memory there.
std::string halves_mistake(const Config& c) {
    const bool halves = c.parallel.schedule == PipelineSchedule::ZeroBubble && c.parallel.pp > 1;
    if (!halves || c.memory.recompute == Recompute::None) return "";
    return fmt::format("memory.recompute = {} with parallel.schedule = zb: the gradients of matrices, which "
                       "come later, need the activations that recomputation drops; set memory.recompute to "
                       "none, or parallel.schedule to 1f1b", c.memory.recompute.text());
}

Config with_recompute(Config cfg, Recompute level) {
    cfg.memory.recompute = level;
    if (!halves_mistake(cfg).empty()) cfg.parallel.schedule = PipelineSchedule::OneFOneB;
    return cfg;
}

// Message: path = value: the missing feature; the alternative
static void check_parallel(const Config& c) {
    const ParallelConfig& p = c.parallel;
    const std::string order = order_mistake(p, 1);
    CHECK_INPUT(order.empty(), "{}", order);
    CHECK_INPUT(has_chunks(p.schedule) || p.virtual_stages == 1,
                "parallel.virtual_stages = {}: only parallel.schedule = interleaved has virtual stages",
                p.virtual_stages);
    CHECK_INPUT(!has_chunks(p.schedule) || p.virtual_stages > 1,
                "parallel.schedule = interleaved with parallel.virtual_stages = 1: each rank of an "
                "interleaved pipeline has several chunks of layers; set parallel.virtual_stages to at least "
                "2, or parallel.schedule to 1f1b");
    const std::string no_halves = halves_mistake(c);
    CHECK_INPUT(no_halves.empty(), "{}", no_halves);
}

// Blocks from the host's memory come one after the other, for all micro-batches (schedule `layers`).
static void check_offload(const Config& c) {
    const ParallelConfig& p = c.parallel;
    const std::string word = c.memory.offload.text();
    CHECK_INPUT(!offloads_weights(c.memory.offload) || p.pp == 1,
                "memory.offload = {} with parallel.pp = {}: a stage of a pipeline has each block's weights "
                "for every micro-batch at once; set parallel.pp to 1 (parallel.zero or tp divide the model "
                "as well), or memory.offload to optimizer", word, p.pp);
    CHECK_INPUT(!offloads_weights(c.memory.offload) || !has_chunks(p.schedule),
                "memory.offload = {} with parallel.schedule = interleaved: one stage has no chunks to "
                "interleave; set parallel.schedule to 1f1b", word);
}

static void check_device(const Config& c) {
    const std::string asked = c.run.device.text();
    CHECK_INPUT(c.run.device == RunDevice::Auto || asked == built_device,
                "run.device = {}: this program is built for {}. Set run.device to {} or auto, or build one "
                "by make DEVICE={}", asked, built_device, built_device, asked);
}

// Factors of train.batch_tokens. An interleaved pipeline trains on micro-batches in groups of parallel.pp.
namespace {
struct BatchUnit {
    long long dp, rows, T, group;
    long long tokens() const { return dp * rows * T * group; }
};
}  // namespace

// Micro-batches of a rank in a step are a multiple.
static int group_of(const ParallelConfig& p) { return p.virtual_stages > 1 ? p.pp : 1; }

// The group counts once the micro-batch is chosen. With run.elastic ranks compute micro-batches that do not
// count, up to as many as the others have.
static BatchUnit batch_unit(const Config& c, int ranks, int micro_batch) {
    const int dp = c.run.elastic ? 1 : ranks;
    const bool grouped = micro_batch > 0 && !c.run.elastic;
    return {.dp = dp, .rows = std::max(micro_batch, 1), .T = c.model.context,
            .group = grouped ? group_of(c.parallel) : 1};
}

bool batch_divides(const Config& cfg, int dp, int micro_batch) {
    return cfg.train.batch_tokens % batch_unit(cfg, dp, micro_batch).tokens() == 0;
}

static int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

int64_t rows_of_step(const Config& cfg, int dp) {
    return divided_up(cfg.train.batch_tokens / cfg.model.context, dp);
}

int64_t micros_of_step(const Config& cfg, int dp, int micro_batch) {
    const int64_t all = cfg.train.batch_tokens / cfg.model.context / std::max(1, micro_batch);
    const int64_t group = micro_batch > 0 ? group_of(cfg.parallel) : 1;
    return divided_up(divided_up(all, dp), group) * group;
}

static void check_batch(long long batch, const BatchUnit& u) {
    const long long unit = u.tokens(), below = batch / unit * unit;
    if (below == batch) return;
    std::string of = fmt::format("model.context = {}", u.T);
    if (u.rows > 1) of = fmt::format("train.micro_batch = {} x ", u.rows) + of;
    if (u.dp > 1) of = fmt::format("{} data-parallel ranks x ", u.dp) + of;
    if (u.group > 1) of += fmt::format(" x parallel.pp = {} of an interleaved schedule", u.group);
    if (unit > u.T) of += fmt::format(", which is {}", unit);
    const std::string fix = below == 0 ? fmt::format("the least is {} (it counts tokens, not sequences)",
                                                     unit) :
        fmt::format("the nearest are {} and {}", below, below + unit);
    fatal(kExitConfig, __FILE__, __LINE__, "train.batch_tokens = {} is no multiple of {}: {}", batch,
          of, fix);
}

void check_batch(const Config& cfg, int dp, int micro_batch) {
    check_batch(cfg.train.batch_tokens, batch_unit(cfg, dp, micro_batch));
}

// A setting that file or command line give a value, and another leaves without effect; empty: there is none.
static std::string unused_setting(const Config& cfg) {
    Config now = cfg, plain;
    const ModelConfig& m = now.model;
    const bool learned = m.position == PositionKind::Learned;
    const char* const of_rope = "is for model.position = rope: learned positions do not turn";
    const struct { bool unused; std::string path; const char* why; } rules[] = {
        {learned, "model.rope_theta", of_rope}, {learned, "model.rope_still", of_rope},
        {m.softcap == 0, "model.softcap_kind", "is for a model.softcap above 0: these logits have no bound"},
        {m.qk_norm == QkNorm::None, "model.qk_gain",
         "is for model.qk_norm = before or after: queries and keys have no norm"}};
    const std::vector<Field> all = fields(now), defaults = fields(plain);
    for (size_t i = 0; i < all.size(); i++)
        for (const auto& rule : rules) {
            const std::string value = value_json(all[i].value);
            const bool named = std::find(cfg.named.begin(), cfg.named.end(), rule.path) != cfg.named.end();
            if (rule.unused && named && rule.path == all[i].path() && value != value_json(defaults[i].value))
                return fmt::format("{} = {} {}; leave it out", rule.path, value, rule.why);
        }
    return "";
}

// What ranks need to survive each other.
static void check_elastic(const Config& c) {
    const ParallelConfig& p = c.parallel;
    if (!c.run.elastic) return;
    const bool cpu = std::string_view(built_device) == "cpu";
    const char* const way = cpu ? "tcp" : "nccl";
    const bool chosen = p.transport == TransportKind::Auto && std::string_view(built_device) != "emulated";
    CHECK_INPUT(chosen || p.transport.text() == std::string_view(way),
                "run.elastic = true with parallel.transport = {}: ranks of this program, built for {}, come "
                "and go over {} alone; set parallel.transport to {}, or run.elastic to false",
                p.transport.text(), built_device, way, way);
    CHECK_INPUT(p.ranks > 0, "run.elastic = true needs parallel.ranks: the ranks of the job over all agents");
    CHECK_INPUT(c.run.min_ranks <= p.ranks, "run.min_ranks = {} is more than parallel.ranks = {}",
                c.run.min_ranks, p.ranks);
    const std::string mistake = c.run.min_ranks ? mesh_mistake(p, c.model, c.run.min_ranks) : "";
    CHECK_INPUT(mistake.empty(), "run.min_ranks = {}: {}", c.run.min_ranks, mistake);
}

void validate(const Config& cfg) {
    Config c = cfg;
    for (const Field& f : fields(c))
        CHECK_INPUT(allowed(f), "{} = {}: expected {}", f.path(), value_json(f.value),
                    expected(f));
    check_device(c);
    check_parallel(c);
    check_offload(c);
    check_elastic(c);
    const std::string wrong = wrong_model(c.model, {});
    CHECK_INPUT(wrong.empty(), "{}", wrong);
    const std::string unused = unused_setting(cfg);
    CHECK_INPUT(unused.empty(), "{}", unused);
    BatchUnit unit = batch_unit(c, 1, c.train.micro_batch);
    unit.group = 1;         // --export needs no mesh: check_mesh() has the ranks
    check_batch(c.train.batch_tokens, unit);
    CHECK_INPUT(c.log.histograms == 0 || c.log.tensorboard,
                "log.histograms = {} with log.tensorboard = false: histograms go into TensorBoard's event "
                "file; set log.tensorboard to true, or log.histograms to 0", c.log.histograms);
    CHECK_INPUT(c.run.dir != "", "run.dir is empty: name a folder for what the run writes");
    CHECK_INPUT(c.checkpoint.resume != "", "checkpoint.resume is empty: expected auto, never, a folder "
                "step_N that a run has saved, or the folder of a run");
    CHECK_INPUT(c.model.init != "",
                "model.init is empty: set it to random, a folder step_N, or FORMAT:PATH as --help has it");
    const OptimizerConfig& o = c.optimizer;
    CHECK_INPUT(
        o.schedule != LrSchedule::Wsd || o.decay == 0 || o.warmup + o.decay <= c.train.steps ||
            c.train.steps == 0,
        "optimizer.warmup + optimizer.decay = {} + {} is more than train.steps = {}",
        o.warmup, o.decay, c.train.steps);
}

static int largest_divisor(int n, int most) {
    int d = std::min(n, most);
    while (n % d) d--;
    return d;
}

// Texts of the axes whose sizes are settings; a rare one only where it has several ranks.
template <class F> static std::string joined(const ParallelConfig& p, const char* between, F&& text_of) {
    std::string all;
    for (const AxisRow& a : axis_rows)
        if (a.setting && (!a.rare || p.*a.setting > 1)) all += (all.empty() ? "" : between) + text_of(a);
    return all;
}

static std::string cut_mistake(const AxisRow& axis, const ParallelConfig& p, const ModelConfig& m) {
    for (const auto size_of : axis.cuts) {
        if (!size_of) continue;
        const CutSize cut = size_of(m);
        const int ranks = p.*axis.setting, unit = ranks == 1 ? 1 : ranks * cut.parts;
        const int below = cut.size / unit * unit;
        if (below == cut.size) continue;
        std::string fix = fmt::format("largest that does is {}", largest_divisor(cut.size, ranks));
        if (cut.fits) fix = fmt::format("nearest multiples are {} and {}", below, below + unit);
        return fmt::format("{} = {} does not divide {} = {}{}: each rank computes {}; the {}",
                           setting_of(axis), ranks, cut.setting, cut.size, cut.note, cut.part, fix);
    }
    return "";
}

std::string mesh_mistake(const ParallelConfig& p, const ModelConfig& m, int ranks) {
    const int unit = model_ranks(p);
    if (ranks % unit)
        return fmt::format("{} = {} = {} does not divide the {} of this job: start a multiple of {} ranks, "
                           "or make {} smaller", joined(p, " x ", setting_of),
                           joined(p, " x ", [&](const AxisRow& a) { return std::to_string(p.*a.setting); }),
                           unit, counted(ranks, "rank"), unit, joined(p, " or ", setting_of));
    const MeshShape mesh = mesh_shape(p, ranks);
    const std::string order = order_mistake(p, mesh.dp);
    if (!order.empty()) return order;
    for (const AxisRow& a : axis_rows)
        if (const std::string wrong = cut_mistake(a, p, m); !wrong.empty()) return wrong;
    const int key_heads = with_sizes(m).kv_heads / p.tp;
    if (p.cp_kind == CpKind::Heads && key_heads % p.cp)
        return fmt::format("parallel.cp_kind = heads: parallel.cp = {} does not divide the {} of keys on a "
                           "rank (model.kv_heads over parallel.tp = {}); the largest that does is {}, and "
                           "parallel.cp_kind = gather takes any", p.cp, counted(key_heads, "head"), p.tp,
                           largest_divisor(key_heads, p.cp));
    const int stages = p.pp * p.virtual_stages;
    if (m.layers < stages)
        return fmt::format("parallel.pp x parallel.virtual_stages = {} x {} = {} stages are more than "
                           "model.layers = {}: each needs a layer", p.pp, p.virtual_stages, stages, m.layers);
    const int copies = ranks_of(mesh, kGradientAxes);
    if (p.zero_group && copies % p.zero_group)
        return fmt::format("parallel.zero_group = {} does not divide the {} data-parallel ranks ({} ranks "
                           "over {} = {}); the largest that does is {}", p.zero_group, copies, ranks,
                           joined(p, " x ", [](const AxisRow& a) { return std::string(a.name); }), unit,
                           largest_divisor(copies, p.zero_group));
    return "";
}

// Of weights in the host's memory a rank has its shard from parallel.zero = 1 on (base/config/sharding.h).
static bool shards_all(const Config& c) {
    return c.parallel.zero == 3 || (c.parallel.zero > 0 && offloads_weights(c.memory.offload));
}

// Why no two ranks have copies to compare; empty: some have.
static std::string no_copies(const Config& c, int ranks) {
    const MeshShape mesh = mesh_shape(c.parallel, ranks);
    const bool over_dp = ranks_of(mesh, kGradientAxes) > (shards_all(c) ? mesh.shard : 1);
    const bool tied = c.parallel.pp > 1 && c.model.tied;
    if (c.run.check_every == 0 || c.train.steps == 0 || over_dp || c.parallel.tp > 1 || tied) return "";
    return fmt::format("run.check_every = {}: {}, and no rank has a copy of what another has; set it to 0",
                       c.run.check_every,
                       ranks == 1 ? "there is one rank" : "ranks have shards of weights and state");
}

std::string ranks_mistake(const Config& c, int ranks) {
    const std::string mistake = mesh_mistake(c.parallel, c.model, ranks);
    return mistake.empty() ? no_copies(c, ranks) : mistake;
}

void check_mesh(const Config& c, int ranks) {
    check_parallel(c);
    const std::string mistake = ranks_mistake(c, ranks);
    CHECK_INPUT(mistake.empty(), "{}", mistake);
    check_batch(c, mesh_shape(c.parallel, ranks).dp, c.train.micro_batch);
    const std::string no_fp8 = fp8_mistake(c);
    CHECK_INPUT(no_fp8.empty(), "{}", no_fp8);
    const std::string no_master = master_mistake(c);
    CHECK_INPUT(no_master.empty(), "{}", no_master);
    CHECK_INPUT(
        c.parallel.reduce_dtype == ReduceDtype::Fp32 || c.run.precision != RunPrecision::Fp64,
        "parallel.reduce_dtype = {}: with run.precision = fp64 gradients travel in fp64; leave it at fp32",
        c.parallel.reduce_dtype.text());
}

}  // namespace config

#include "llmc/train/step/optimizer.h"

namespace PRECISION {

static size_t norm_blocks(const std::vector<Zero::Run>& runs) {
    size_t blocks = 0;
    for (const Zero::Run& run : runs) blocks += ops::norm_blocks(run.count);
    return blocks;
}

// Whether the rank of this index on tp counts a tensor in the gradient norm.
bool Optimizer::counts(const Tensor& t, int tp) const {
    const bool again = t.param.split == Split::None && tp > 0;          // another rank's as well
    return !again && !(t.bucket == zero.layout.wte && zero.mesh.tied.index > 0);
}

std::vector<StateSlot> Optimizer::slots(OptimizerKind kind) {
    std::vector<StateSlot> slots;
    if (!kMasterIsParam) slots.push_back({.name = "master", .planned = "master weights", .weights = true});
    slots.push_back({.name = "m", .planned = "first moments"});
    slots.push_back({.name = "v", .planned = "second moments", .of_whole = kind == OptimizerKind::Adamw});
    return slots;
}

Optimizer::Optimizer(const Config& c, Zero& z) : zero(z), cfg(c.optimizer), seed(uint64_t(c.run.seed)) {
    if (zero.mesh.replica.index == 0)
        counted = zero.shard_runs([&](const Tensor& t) { return counts(t, zero.mesh.tp.index); });
    if (cfg.kind == OptimizerKind::Muon) muon.emplace(cfg, seed, zero.mesh.tp);
    for (int b = 0; b < zero.layout.count(); b++) add_slices(slices, b, zero.offload ? kChunk : SIZE_MAX);
}

size_t Optimizer::watch(TensorStatistics& statistics) {
    tensors = &statistics;
    for (int b = 0; b < zero.layout.count(); b++) add_slices(small, b, kChunk);
    size_t most = 0;
    for (const Slice& t : small) most = std::max(most, t.count);
    return most;
}

// At least one per bucket: every rank awaits the collectives around the update of each bucket.
void Optimizer::add_slices(std::vector<Slice>& to, int b, size_t most) const {
    const Zero::Extent owned = zero.stored_state(b);
    const size_t count = muon ? zero.flat_count(owned, b) : owned.count;
    const size_t chunk = std::min(most, std::max<size_t>(1, count));
    size_t from = 0;
    do {
        to.push_back(make_slice(b, from, std::min(chunk, count - from)));
        from += chunk;
    } while (from < count);
    for (const Tensor& t : zero.layout.tensors) {
        const size_t at = t.start - zero.layout.start(b);
        if (!muon || t.bucket != b || t.owner < 0) continue;
        if (at < owned.from || at >= owned.from + owned.count) continue;        // another rank's
        to.push_back({.bucket = b, .from = at - owned.from, .count = t.param.count(), .tensors = {},
                      .rates = {}, .matrix = &t});
    }
}

double Optimizer::peak_rate(const Tensor& t) const {
    double own = 0;
    if (t.param.cols == 1) own = cfg.vector_lr;
    else if (t.param.is_table()) own = cfg.embed_lr;
    else if (t.layer < 0) own = cfg.head_lr;
    return own > 0 ? own : cfg.lr;
}

// A tensor cut over columns has an entry per rectangle, any other tensor an entry per contiguous run.
Optimizer::Slice Optimizer::make_slice(int b, size_t from, size_t count) const {
    Slice slice{.bucket = b, .from = from, .count = count, .tensors = {}, .rates = {}};
    const size_t base = zero.layout.start(b) + zero.stored_state(b).from + from;
    for (const Tensor& t : zero.layout.tensors) {
        const size_t first = std::max(t.start, base), end = std::min(t.start + t.param.count(), base + count);
        if (t.bucket != b || first >= end) continue;
        const real decay = real(t.param.decay ? cfg.weight_decay : 0);
        const size_t cols = size_t(t.param.whole_cols);
        if (t.param.cols == t.param.whole_cols)
            for_each_run(t, first - t.start, end - first, [&](size_t local, size_t global, size_t n) {
                slice.tensors.push_back({.start = t.start + local - base,
                                        .count = n,
                                        .global = t.global + global,
                                        .lr = 0,
                                        .decay = decay});
            });
        else
            for (const Piece& p : pieces_of(t, first - t.start, end - first))
                slice.tensors.push_back({.start = t.start + p.at - base, .count = p.count(),
                                        .global = t.global + p.row * cols + p.col, .lr = 0, .decay = decay,
                                        .cols = p.cols, .stride = cols});
        slice.rates.resize(slice.tensors.size(), peak_rate(t));
    }
    return slice;
}

void Optimizer::add_to(Arena& arena) {
    size_t most = 0;                // of any rank of the stage
    for (int tp = 0; tp < std::min(2, zero.mesh.tp.size); tp++)
        most = std::max(most, zero.most_of_shards([&](const Tensor& t) { return counts(t, tp); },
                                                  [](const auto& runs) { return norm_blocks(runs); }));
    arena.add("gradient norm", &sums, most);
    arena.add("gradient norm", &state, 1);
    if (muon) muon->add_to(arena, zero.layout);
    if (!zero.offload) return;
    for (State& s : chunks) {
        s.resize(zero.state.size());
        for (size_t i = 0; i < s.size(); i++) {
            size_t chunk = 0;
            for (const Slice& t : slices)
                if (has(zero.state[i], t)) chunk = std::max(chunk, t.count);
            arena.add("offloaded state in use", &s[i], chunk);
        }
    }
}

void Optimizer::sum_squares(double* out) {
    size_t blocks = 0;
    for (const Zero::Run& run : counted) {
        ops::sum_of_squares(sums + blocks, zero.grad_shard(run.bucket) + run.from, run.count);
        blocks += ops::norm_blocks(run.count);
    }
    ops::set_zero(out, sizeof *out);
    ops::sum_in_order(out, sums, blocks);
}

void Optimizer::clip(const double* all, const double* loss) {
    ops::gradient_state(state, all, loss, real(cfg.grad_clip));
}

// ---------------------------------------------------------------------------------------------------------
// the update

Optimizer::State Optimizer::state_of(const Slice& t) const {
    State state;
    for (const StateSlot& slot : zero.state)
        state.push_back(has(slot, t) ? slot.memory + slot.at[size_t(t.bucket)] + t.from : nullptr);
    return state;
}

void Optimizer::load(const Slice& t, const State& to) const {
    const State from = state_of(t);
    const size_t bytes = t.count * sizeof(real);
    for (size_t i = 0; i < to.size(); i++)
        if (from[i]) ops::start_copy(to[i], from[i], bytes);
}

void Optimizer::store(const Slice& t, const State& from) const {
    const State to = state_of(t);
    const size_t bytes = t.count * sizeof(real);
    for (size_t i = 0; i < to.size(); i++)
        if (to[i]) ops::start_copy(to[i], from[i], bytes);
}

// The rate of this step where lr is the schedule's, of a tensor whose own rate follows the same schedule.
static double rate_now(double peak, const OptimizerConfig& cfg, double lr) {
    if (peak == cfg.lr) return lr;
    return cfg.lr > 0 ? peak * (lr / cfg.lr) : 0;
}

void Optimizer::update(Slice& t, const State& s, ops::Adamw adamw, double lr) const {
    for (size_t i = 0; i < t.tensors.size(); i++) t.tensors[i].lr = real(rate_now(t.rates[i], cfg, lr));
    floatX* param = zero.owned_params(t.bucket) + t.from;
    adamw.param = kMasterIsParam ? nullptr : param;
    adamw.master = kMasterIsParam ? reinterpret_cast<real*>(param) : s.front();
    adamw.m = s[s.size() - 2];        // in the order of slots()
    adamw.v = s[s.size() - 1];
    adamw.grad = zero.owned_grads(t.bucket) + t.from;
    ops::adamw_update(adamw, t.tensors.data(), t.tensors.size());
}

void Optimizer::update_slice(Slice& t, const State& s, const ops::Adamw& adamw, double lr,
                             int64_t step) const {
    if (!tensors || !tensors->measuring) return step_slice(t, s, adamw, lr, step);
    floatX* const param = zero.owned_params(t.bucket) + t.from;
    const TensorStatistics::Updated updated{
        .bucket = t.bucket, .from = zero.stored_state(t.bucket).from + t.from, .count = t.count,
        .master = kMasterIsParam ? reinterpret_cast<real*>(param) : s.front(),
        .gradient = zero.owned_grads(t.bucket) + t.from};
    tensors->before_update(updated);
    step_slice(t, s, adamw, lr, step);
    tensors->after_update(updated);
}

void Optimizer::step_slice(Slice& t, const State& s, const ops::Adamw& adamw, double lr,
                           int64_t step) const {
    if (!t.matrix) return update(t, s, adamw, lr);
    floatX* const param = zero.owned_params(t.bucket) + t.from;
    muon->update({.tensor = t.matrix, .param = kMasterIsParam ? nullptr : param,
                  .master = kMasterIsParam ? reinterpret_cast<real*>(param) : s.front(),
                  .momentum = s[s.size() - 2], .grad = zero.owned_grads(t.bucket) + t.from, .state = state},
                 rate_now(cfg.matrix_lr, cfg, lr), step);
}

// Offloaded state has two buffers on the device: during the update of a chunk, the previous chunk is copied
// back and the next chunk is loaded.
void Optimizer::update(double lr, int64_t step) {
    const ops::Adamw adamw{.param = nullptr, .master = nullptr, .m = nullptr, .v = nullptr, .grad = nullptr,
                           .state = state, .beta1 = real(cfg.beta1), .beta2 = real(cfg.beta2),
                           .eps = real(cfg.eps), .step = step + 1, .stochastic = cfg.stochastic_rounding,
                           .cautious = cfg.cautious, .seed = seed};
    std::vector<Slice>& now = tensors && tensors->measuring ? small : slices;
    const size_t count = now.size();
    if (zero.offload && count) load(now[0], chunks[0]);
    for (size_t i = 0; i < count; i++) {
        Slice& t = now[i];
        if (i == 0 || now[i - 1].bucket != t.bucket) zero.before_update(t.bucket);
        if (zero.offload) {
            ops::finish_copies();
            if (i > 0) store(now[i - 1], chunks[(i - 1) % 2]);
            if (i + 1 < count) load(now[i + 1], chunks[(i + 1) % 2]);
            update_slice(t, chunks[i % 2], adamw, lr, step);
        } else update_slice(t, state_of(t), adamw, lr, step);
        if (i + 1 == count || now[i + 1].bucket != t.bucket) zero.after_update(t.bucket);
    }
    if (zero.offload && count) store(now[count - 1], chunks[(count - 1) % 2]);
    ops::finish_copies();
    zero.end_update();
}

}  // namespace PRECISION

#include "llmc/train/step/optimizer.h"

namespace PRECISION::inline step {

static size_t norm_blocks(const std::vector<Run>& runs) {
    size_t blocks = 0;
    for (const Run& run : runs) blocks += ops::norm_blocks(run.elements.count);
    return blocks;
}

std::vector<StateSlot> Optimizer::slots(const OptimizerConfig& o) {
    const DType moments = o.state == StateDtype::Bf16 ? DType::BF16 : dtype_of<real>;
    std::vector<StateSlot> slots;
    if (!kMasterIsParam && o.master)
        slots.push_back({.name = "master", .planned = "master weights", .weights = true});
    slots.push_back({.name = "m", .planned = "first moments", .dtype = moments});
    slots.push_back({.name = "v", .planned = "second moments",
                     .of_trailing = o.kind == OptimizerKind::Adamw, .dtype = moments});
    return slots;
}

std::vector<std::string> Optimizer::trailing(const OptimizerConfig& o, const Dims& d) {
    return o.kind == OptimizerKind::Muon ? muon_tensors(d) : std::vector<std::string>();
}

Optimizer::Optimizer(const Config& c, Zero& z)
    : zero(z), shards(z.shards), cfg(c.optimizer), seed(uint64_t(c.run.seed)),
      at{.master = kMasterIsParam || !cfg.master ? SIZE_MAX : slot_named(shards.state, "master"),
         .m = slot_named(shards.state, "m"), .v = slot_named(shards.state, "v")}, owned(shards.owned_runs()) {
    if (cfg.kind == OptimizerKind::Muon) muon.emplace(cfg, seed, zero);
    list = list_of(shards.offload ? kChunk : SIZE_MAX);
    if (shards.hosts_blocks)
        zero.before_leaving = [this](int bucket, const real* shard) {
            square(bucket, shard);
            if (health) health->sum_squares(bucket, shard);
        };
}

size_t Optimizer::attach(HealthMeter& meter) {
    health = &meter;
    small = list_of(kChunk);
    size_t most = 0;
    for (const Work& w : small) most = std::max(most, w.elements.count);
    return most;
}

// ---------------------------------------------------------------------------------------------------------
// the list of an update

std::vector<Optimizer::Work> Optimizer::list_of(size_t most) const {
    std::vector<Work> works;
    size_t round = 0;
    int begun = 0;
    const auto begin = [&](int until) {
        for (; begun <= until; begun++) works.push_back({.kind = Work::Begin, .bucket = begun});
    };
    for (int b = 0; b < shards.layout.count(); b++) {
        begin(b);
        for (; muon && round < muon->rounds_until[size_t(b)]; round++) {
            begin(Muon::last_bucket(muon->rounds[round]));
            add_round(works, round, most);
        }
        add_adamw(works, b, most);
        works.push_back({.kind = Work::End, .bucket = b});
    }
    return works;
}

void Optimizer::add_adamw(std::vector<Work>& works, int b, size_t most) const {
    Interval rest = common(shards.updated(b), {0, shards.layout.leading[size_t(b)]});
    while (!rest.empty()) works.push_back(adamw_slice(b, rest.take(most)));
}

double Optimizer::peak_rate(const Tensor& t) const {
    double own = 0;
    if (t.param.cols == 1) own = cfg.vector_lr;
    else if (t.param.is_table()) own = cfg.embed_lr;
    else if (t.layer < 0) own = cfg.head_lr;
    return own > 0 ? own : cfg.lr;
}

// A tensor cut over columns has an entry per rectangle, any other tensor an entry per contiguous run.
Optimizer::Work Optimizer::adamw_slice(int b, Interval elements) const {
    Work slice{.kind = Work::Adamw, .bucket = b, .elements = elements};
    for (const Tensor& t : shards.layout.tensors) {
        if (t.bucket != b) continue;
        const Interval whole = shards.layout.in_bucket(t);
        const Interval here = common(whole, elements).from(whole.begin);        // of the tensor
        const real decay = real(t.param.decay ? cfg.weight_decay : 0);
        const size_t cols = size_t(t.param.whole_cols);
        if (t.param.cols == t.param.whole_cols)
            for_each_run(t, here, [&](size_t local, size_t global, size_t n) {
                slice.tensors.push_back({.start = whole.begin + local - elements.begin,
                                        .count = n,
                                        .global = t.global + global,
                                        .lr = 0,
                                        .decay = decay});
            });
        else
            for (const Piece& p : pieces_of(t, here))
                slice.tensors.push_back({.start = whole.begin + p.at - elements.begin, .count = p.count(),
                                        .global = t.global + p.row * cols + p.col, .lr = 0, .decay = decay,
                                        .cols = p.cols, .stride = cols});
        slice.rates.resize(slice.tensors.size(), peak_rate(t));
    }
    return slice;
}

void Optimizer::add_to(Arena& arena) {
    arena.add("gradient norm", &sums, shards.most_owned(norm_blocks));
    arena.add("gradient norm", &state, 1);
    const ArenaOf own = arena.of(Purpose::Optimizer);
    if (muon) muon->add_to(own);
    if (!shards.offload) return;
    const auto most = [this](auto&& needed) {
        size_t count = 0;
        for (const Work& w : list)
            if (needed(w)) count = std::max(count, w.elements.count);
        return count;
    };
    for (OnDevice& to : chunks) {
        State& s = to.chunk.state;
        s.resize(shards.state.size());
        for (size_t i = 0; i < s.size(); i++)
            own.add("offloaded state in use", &s[i],
                    shards.state[i].bytes(most([&](const Work& w) { return needs(w, shards.state[i]); })));
        if (!shards.hosts_blocks) continue;
        const auto on_host = [this](const Work& w) { return w.is_slice() && shards.on_host(w.bucket); };
        own.add("offloaded weights in use", &to.chunk.param, most(on_host));
        own.add("offloaded gradients in use", &to.chunk.grad, most(on_host));
    }
}

void Optimizer::square(int bucket, const real* shard) {
    size_t blocks = 0;
    for (const Run& run : owned) {
        if (run.bucket == bucket)
            ops::sum_of_squares(sums + blocks, shard + (run.elements.begin - shards.own(bucket).begin),
                                run.elements.count);
        blocks += ops::norm_blocks(run.elements.count);
    }
}

// Blocks on the host have left theirs.
void Optimizer::sum_squares(double* out) {
    for (int b = 0; b < shards.layout.count(); b++)
        if (!shards.on_host(b)) square(b, shards.grad_shard(b));
    ops::set_zero(out, sizeof *out);
    ops::sum_in_order(out, sums, norm_blocks(owned));
}

void Optimizer::clip(const double* all, const double* loss) {
    ops::gradient_state(state, all, loss, real(cfg.grad_clip));
}

// ---------------------------------------------------------------------------------------------------------
// the update

bool Optimizer::needs(const Work& w, const StateSlot& slot) {
    if (w.kind == Work::Adamw) return true;
    return w.is_slice() && slot.of_trailing && slot.weights == (w.kind == Work::Weights);
}

Optimizer::Slice Optimizer::slice_of(const Work& w) const {
    Slice s = {.state = {}, .param = shards.weight(w.bucket, w.elements.begin),
               .grad = shards.gradient(w.bucket, w.elements.begin)};
    for (const StateSlot& slot : shards.state)
        s.state.push_back(needs(w, slot) ? shards.state_at(slot, w.bucket, w.elements.begin) : nullptr);
    return s;
}

real* Optimizer::master_of(const Slice& s) const {
    if constexpr (kMasterIsParam) return reinterpret_cast<real*>(s.param);
    else return cfg.master ? reinterpret_cast<real*>(s.state[at.master]) : nullptr;
}

// Weights come as well: a step that is skipped sends them back as they were.
void Optimizer::load(const Work& w, OnDevice& to) const {
    const Slice from = to.now = slice_of(w);
    const size_t count = w.elements.count;
    ops::host_awaits_copies(to.stored);     // a queue of all slices would be longer than CUDA's
    for (size_t i = 0; i < from.state.size(); i++)
        if (from.state[i]) {
            to.now.state[i] = to.chunk.state[i];
            ops::start_copy_to_device(to.now.state[i], from.state[i], shards.state[i].bytes(count));
        }
    if (shards.on_host(w.bucket)) {
        to.now.param = to.chunk.param;
        to.now.grad = to.chunk.grad;
        if (changes_weights(w)) ops::start_copy_to_device(to.now.param, from.param, count * sizeof(floatX));
        if (reads_gradient(w)) ops::start_copy_to_device(to.now.grad, from.grad, count * sizeof(real));
    }
    ops::mark_copies(to.loaded, CopyLane::ToDevice);
}

void Optimizer::store(const Work& w, OnDevice& from) const {
    const Slice to = slice_of(w);
    for (size_t i = 0; i < to.state.size(); i++)
        if (to.state[i])
            ops::start_copy_to_host(to.state[i], from.now.state[i], shards.state[i].bytes(w.elements.count));
    if (shards.on_host(w.bucket) && changes_weights(w))
        ops::start_copy_to_host(to.param, from.now.param, w.elements.count * sizeof(floatX));
    ops::mark_copies(from.stored, CopyLane::ToHost);
}

// The rate of this step where lr is the schedule's, of a tensor whose own rate follows the same schedule.
static double rate_now(double peak, const OptimizerConfig& cfg, double lr) {
    if (peak == cfg.lr) return lr;
    return cfg.lr > 0 ? peak * (lr / cfg.lr) : 0;
}

void Optimizer::run_adamw(Work& w, const Slice& s, double lr, int64_t step) const {
    for (size_t i = 0; i < w.tensors.size(); i++) w.tensors[i].lr = real(rate_now(w.rates[i], cfg, lr));
    const bool cautious = cfg.cautious && (cfg.kind == OptimizerKind::Adamw || cfg.cautious_adamw);
    const ops::Adamw adamw{.param = kMasterIsParam ? nullptr : s.param,
                           .master = master_of(s),
                           .m = s.state[at.m],
                           .v = s.state[at.v],
                           .grad = s.grad,
                           .state = state, .beta1 = real(cfg.beta1), .beta2 = real(cfg.beta2),
                           .eps = real(cfg.eps), .step = step + 1, .stochastic = cfg.stochastic_rounding,
                           .cautious = cautious, .seed = seed, .moments = shards.state[at.m].dtype};
    ops::adamw_update(adamw, w.tensors.data(), w.tensors.size());
}

void Optimizer::run_slice(Work& w, const Slice& s, double lr, int64_t step) const {
    if (w.kind == Work::Adamw) return run_adamw(w, s, lr, step);
    if (w.kind == Work::Momentum)
        return muon->momentum(w.run, {s.state[at.m], shards.state[at.m].dtype}, s.grad, state, step);
    muon->update(w.run, kMasterIsParam ? nullptr : s.param, master_of(s), state,
                 rate_now(cfg.matrix_lr, cfg, lr), step);
}

void Optimizer::run_measured(Work& w, const Slice& s, double lr, int64_t step) const {
    if (!health || !health->measuring || w.kind == Work::Momentum) return run_slice(w, s, lr, step);
    const HealthMeter::Updated updated{.run = {w.bucket, w.elements}, .master = master_of(s),
                                       .param = s.param, .gradient = s.grad};
    health->before_update(updated);
    run_slice(w, s, lr, step);
    health->after_update(updated);
}

void Optimizer::run_between(const Work& w) {
    if (w.kind == Work::Begin) zero.before_update(w.bucket);
    else if (w.kind == Work::End) zero.after_update(w.bucket);
    else if (w.kind == Work::Start) muon->start(w.round);
    else if (w.kind == Work::Normalize) muon->normalize(w.round);
    else muon->orthogonalize(w.round);
}

// While a slice is updated, the next is loaded and the one before is stored.
void Optimizer::run_offloaded(std::vector<Work>& works, double lr, int64_t step) {
    const auto slice_from = [&](size_t i) {
        while (i < works.size() && !works[i].is_slice()) i++;
        return i;
    };
    size_t slice = 0;
    const auto chunk = [&](size_t k) -> OnDevice& { return chunks[k % kChunks]; };
    if (const size_t first = slice_from(0); first < works.size()) load(works[first], chunk(0));
    for (size_t i = 0; i < works.size(); i++) {
        Work& w = works[i];
        if (!w.is_slice()) {
            run_between(w);
            continue;
        }
        if (const size_t next = slice_from(i + 1); next < works.size()) load(works[next], chunk(slice + 1));
        ops::await_copies(chunk(slice).loaded);
        run_measured(w, chunk(slice).now, lr, step);
        if (slice == 0 && shards.await_readers) shards.await_readers();
        store(w, chunk(slice++));
    }
    if (slice) ops::await_copies(chunk(slice - 1).stored);
}

void Optimizer::update(double lr, int64_t step) {
    std::vector<Work>& works = health && health->measuring ? small : list;
    if (shards.offload) run_offloaded(works, lr, step);
    else
        for (Work& w : works) {
            if (w.is_slice()) run_measured(w, slice_of(w), lr, step);
            else run_between(w);
        }
    zero.end_update();
}

}  // namespace PRECISION::step

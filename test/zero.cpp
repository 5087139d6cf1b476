// ZeRO over ranks that are threads: stages that must not differ, memory and bytes against formulas written here,
// what is in flight when, state on the host.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "llmc/comm/launch.h"
#include "llmc/train/checkpoint.h"
#include "test/tiny.h"

namespace PRECISION {

static constexpr int kSteps = 3, kRows = 12, T = 13;

// Sizes that no number of ranks divides: 5 blocks, C = 24, V = 67.
static Config zero_config(int ranks, int zero, int micro_batch = 2) {
    Config cfg;
    cfg.model = {.layers = 5, .heads = 3, .channels = 24, .context = T, .vocab = 67, .init = "random"};
    cfg.train = {.steps = 100, .batch_tokens = kRows * T, .micro_batch = micro_batch, .max_skips = 0};
    cfg.optimizer.lr = 1e-2, cfg.optimizer.warmup = 2;
    cfg.run.threads = 1;
    cfg.parallel.ranks = ranks, cfg.parallel.zero = zero;
    return cfg;
}

struct Outcome {
    std::vector<double> losses, norms;
    std::vector<real> weights;
    bool operator==(const Outcome& o) const {
        return losses == o.losses && norms == o.norms && weights.size() == o.weights.size() &&
               memcmp(weights.data(), o.weights.data(), weights.size() * sizeof(real)) == 0;
    }
};

static std::vector<real> all_weights(const Tiny& t) {
    std::vector<real> all;
    for (const Tensor& tensor : whole_tensors(t.d)) {
        const auto values = t.whole(tensor);
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

static Outcome train(const Config& cfg, const Mesh& mesh) {
    Tiny t(cfg, false, mesh);
    t.shake(0.1);
    const Trace trace = train_steps(t, kSteps);
    return {trace.losses, trace.norms, all_weights(t)};
}

// What rank 0 sees; that the others see the same is checked.
static Outcome run(const Config& cfg, int delay_us = 0) {
    std::vector<Outcome> seen(size_t(cfg.parallel.ranks));
    if (cfg.parallel.ranks == 1) return train(cfg, Mesh());
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        for (const Axis* axis : {&mesh.shard, &mesh.replica, &mesh.tp, &mesh.world})
            if (axis->group) axis->group->most_delay_us = delay_us;
        seen[size_t(mesh.rank)] = train(c, mesh);
        return 0;
    });
    for (const Outcome& o : seen) EXPECT(o == seen[0], "ranks disagree");
    return seen[0];
}

template <class V> static double apart(const std::vector<V>& a, const std::vector<V>& b, double floor) {
    double worst = a.size() == b.size() && !a.empty() ? 0 : INFINITY;
    for (size_t i = 0; i < a.size() && i < b.size(); i++) {
        const double d = std::abs(double(a[i]) - double(b[i])) / std::max(std::abs(double(b[i])), floor);
        worst = d <= worst ? worst : d;
    }
    return worst;
}

static void expect_near(const char* what, const Outcome& o, const Outcome& reference, double tolerance) {
    const double loss = apart(o.losses, reference.losses, 0), norm = apart(o.norms, reference.norms, 0),
                 weight = apart(o.weights, reference.weights, 1e-2);
    EXPECT(loss <= tolerance && norm <= tolerance && weight <= 100 * tolerance,
           "%s: losses %.2g apart, norms %.2g, weights %.2g", what, loss, norm, weight);
}

// ---------------------------------------------------------------------------------------------------------
// the same results

TEST(stages_agree) {
    const Outcome one = run(zero_config(1, 0));
    for (const int ranks : {2, 3, 4})
        for (const int micro_batch : {1, kRows / ranks}) {
            std::vector<Outcome> o;
            for (int zero = 0; zero < 4; zero++) o.push_back(run(zero_config(ranks, zero, micro_batch)));
            EXPECT(o[0] == o[1], "%d ranks, micro-batch %d: ZeRO 0 and 1 differ", ranks, micro_batch);
            EXPECT(o[2] == o[3], "%d ranks, micro-batch %d: ZeRO 2 and 3 differ", ranks, micro_batch);
            if (micro_batch > 1) EXPECT(o[1] == o[2], "%d ranks, one micro-batch: ZeRO 1 and 2 differ", ranks);
            if (!kIsFp64) continue;
            expect_near("ZeRO 1 and 2", o[2], o[1], 1e-12);
            expect_near("many ranks and one", o[0], one, 1e-12);
        }
}

// Shards in groups of 1, 2 or 4 of 4 ranks.
TEST(groups_agree) {
    std::vector<Outcome> whole;
    for (const int group : {0, 4, 2, 1})
        for (int zero = 0; zero < 4; zero++) {
            Config cfg = zero_config(4, zero, 3);
            cfg.parallel.zero_group = group;
            const Outcome o = run(cfg);
            if (whole.size() < 4) { whole.push_back(o); continue; }
            if (group == 4) EXPECT(o == whole[size_t(zero)], "a group of all: ZeRO %d differs", zero);
            if (kIsFp64) expect_near("groups", o, whole[size_t(zero)], 1e-12);
        }
}

// Collectives that take their time, at random, beside the computation or not: not a bit changes.
TEST(overlap_changes_no_bit) {
    for (int zero = 0; zero < 4; zero++) {
        Config cfg = zero_config(3, zero, 1);
        const Outcome plain = run(cfg);
        EXPECT(run(cfg, 300) == plain, "ZeRO %d: delays change the result", zero);
        cfg.parallel.overlap = false;
        EXPECT(run(cfg, 300) == plain, "ZeRO %d: overlap changes the result", zero);
    }
}

TEST(offloaded_state_gives_the_same) {
    for (const int ranks : {1, 3})
        for (int zero = 0; zero < 4; zero += ranks == 1 ? 4 : 1) {
            Config cfg = zero_config(ranks, zero);
            const Outcome plain = run(cfg);
            cfg.memory.offload = "optimizer";
            EXPECT(run(cfg) == plain, "%d ranks, ZeRO %d: offloading changes the result", ranks, zero);
        }
}

// Chunks that end inside tensors: a model of more than one chunk per bucket.
TEST(offloaded_state_in_several_chunks) {
    Config cfg = zero_config(1, 0, 12);
    cfg.model.channels = 288, cfg.model.layers = 2, cfg.model.vocab = 4000;
    cfg.optimizer.stochastic_rounding = true;
    const Outcome plain = run(cfg);
    cfg.memory.offload = "optimizer";
    EXPECT(run(cfg) == plain, "offloading changes the result");
}

// The key of a weight's random bits is where it is in the whole model.
TEST(stochastic_rounding_knows_no_ranks) {
    if (!kIsBf16) return;
    std::vector<Outcome> o;
    for (int zero = 0; zero < 4; zero++) {
        Config cfg = zero_config(3, zero, 4);
        cfg.optimizer.stochastic_rounding = true;
        o.push_back(run(cfg));
        EXPECT(o.back() == o[0], "ZeRO %d differs", zero);
    }
}

// A gradient that is not finite, on one rank: no rank takes the step.
TEST(a_skipped_step_changes_nothing_anywhere) {
    for (int zero = 0; zero < 4; zero++)
        run_threads(zero_config(3, zero), [](Config c, const Mesh& mesh) {
            Tiny t(c, false, mesh);
            train_steps(t, 1);
            const auto before = all_weights(t);
            Loader data(t.set, c.train.micro_batch, 0, mesh.dp.index, mesh.dp.size);
            const double share = t.model.pipeline.run(data);
            if (mesh.rank == 1) t.model.zero.grad_shard(2)[3] = real(NAN);
            const Votes votes = vote(mesh.world, share, t.model.optimizer->local_squares(), {});
            const auto [norm, finite] = t.model.optimizer->set_norm(votes.squares, votes.loss);
            t.model.optimizer->update(1e-2, 1);
            EXPECT(!finite && std::isnan(norm), "ZeRO %d: norm %g passes", c.parallel.zero, norm);
            EXPECT(all_weights(t) == before, "ZeRO %d: the weights have changed", c.parallel.zero);
            return 0;
        });
}

// ---------------------------------------------------------------------------------------------------------
// memory and bytes, by formulas that know nothing of the code

static size_t up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Elements of the buckets of zero_config()'s model over d shards.
struct Sizes {
    size_t wte, wpe, block, final, blocks = 5;
    explicit Sizes(size_t d) {
        const size_t C = 24, F = 4 * C, pad = 64 * d;
        const auto vector = [](size_t n) { return up(n, 64); };
        wte = up(128 * C, pad), wpe = up(up(T * C, 64), pad), final = up(2 * vector(C), pad);
        block = up(6 * vector(C) + vector(3 * C) + vector(F) + vector(3 * C * C) + vector(C * C) + 2 * vector(F * C),
                   pad);
    }
    size_t ends() const { return wte + wpe + final; }
    size_t all() const { return ends() + blocks * block; }
};

TEST(memory_of_a_rank_is_the_closed_form) {
    constexpr size_t w = sizeof(floatX), g = sizeof(real);
    for (const int d : {1, 2, 3, 4})
        for (int zero = 0; zero < 4; zero++) {
            const Sizes s{size_t(d)};
            const Config cfg = zero_config(d, zero, 1);
            const auto mesh = described_mesh(cfg.parallel, d, d - 1);
            const Model model(cfg, mesh->mesh, 1, false);
            std::map<std::string, size_t> plan;
            for (const auto& row : model.arena.plan()) plan[row.name] = row.bytes;
            const auto expect = [&](const char* row, size_t bytes) {
                EXPECT(plan[row] == bytes, "%d ranks, ZeRO %d: %s: %zu bytes, expected %zu", d, zero, row, plan[row],
                       bytes);
            };
            const size_t P = s.all(), n = size_t(d);
            const bool grads = zero >= 2 && d > 1, weights = zero == 3 && d > 1;
            expect("weights", weights ? P / n * w : P * w);
            expect("gathered blocks", weights ? 2 * s.block * w : 0);
            expect("gathered ends", weights ? s.ends() * w : 0);
            expect("gradients", grads ? (s.ends() + s.blocks * s.block / n) * g : P * g);
            expect("gradients of two blocks", grads ? 2 * s.block * g : 0);
            const size_t state = up(zero == 0 ? P * g : P / n * g, 64);
            expect("first moments", state);
            expect("second moments", state);
            expect("master weights", kMasterIsParam ? 0 : state);
        }
}

// What a rank says that it needs is what it takes: nothing is allocated beside the plan.
TEST(offloading_moves_state_to_the_host) {
    Config cfg = zero_config(2, 1);
    const auto mesh = described_mesh(cfg.parallel, 2, 0);
    const Model here(cfg, mesh->mesh, 2, false);
    cfg.memory.offload = "optimizer";
    const Model there(cfg, mesh->mesh, 2, false);
    const size_t states = (kMasterIsParam ? 2 : 3) * Sizes(2).all() / 2 * sizeof(real);
    EXPECT(here.host.bytes() == 0 && there.host.bytes() == up(states, 4096), "%zu bytes on the host, expected %zu",
           there.host.bytes(), states);
    for (const auto& row : there.arena.plan())
        EXPECT(row.name != "first moments" && row.name != "master weights", "%s on the device", row.name.c_str());
}

// Bytes that rank 0 sends over mesh.shard in one step, the second: at stage 3 the first finds nothing gathered.
static uint64_t bytes_of_a_step(const Config& cfg) {
    std::atomic<uint64_t> bytes{0};
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        Trace trace;
        Loader data(t.set, c.train.micro_batch, 0, mesh.dp.index, mesh.dp.size);
        const auto sent = [&] {
            uint64_t sum = 0;
            for (const Moved& m : mesh.shard.group->moved) sum += m.bytes;
            return sum;
        };
        train_step(t, data, 0, trace);
        const uint64_t before = sent();
        train_step(t, data, 1, trace);
        if (mesh.rank == 0) bytes = sent() - before;
        return 0;
    });
    return bytes;
}

// P parameters of w bytes with gradients of g bytes, d ranks, m micro-batches; E of the P lie in wte, wpe and the
// final norm, whose gradients are summed over micro-batches before they are sent, and whose weights stay gathered
// during a step. Two blocks stay gathered where forward turns into backward, and backward into the next forward.
//
//     ZeRO 0     (d-1)/d  P 2g
//     ZeRO 1     (d-1)/d  P (g + w)
//     ZeRO 2     (d-1)/d  ((P - E) (m g + w)   + E (g + w))
//     ZeRO 3     (d-1)/d  ((P - E) (m g + 2mw) + E (g + w)  - (2m - 1) 2 blocks w)
TEST(bytes_that_are_sent_are_the_formulas) {
    constexpr size_t w = sizeof(floatX), g = sizeof(real);
    for (const int d : {2, 3, 4})
        for (const int micro_batch : {1, kRows / d})
            for (int zero = 0; zero < 4; zero++) {
                const Sizes s{size_t(d)};
                const size_t m = size_t(kRows / d / micro_batch), blocks = s.all() - s.ends();
                size_t expected = 0;
                if (zero == 0) expected = s.all() * 2 * g;
                if (zero == 1) expected = s.all() * (g + w);
                if (zero == 2) expected = blocks * (m * g + w) + s.ends() * (g + w);
                if (zero == 3)
                    expected = blocks * (m * g + 2 * m * w) + s.ends() * (g + w) - (2 * m - 1) * 2 * s.block * w;
                expected = expected / size_t(d) * size_t(d - 1);
                const uint64_t bytes = bytes_of_a_step(zero_config(d, zero, micro_batch));
                EXPECT(bytes == expected, "%d ranks, %zu micro-batches, ZeRO %d: %zu bytes, expected %zu", d, m, zero,
                       size_t(bytes), expected);
            }
}

// ---------------------------------------------------------------------------------------------------------
// what is in flight when

// Zero's events with marks of the computation between them: each block's backward from the request of its
// gradients to the report that they are done.
struct Mark {
    enum Kind { StartReduce, WaitReduce, StartGather, WaitGather, Begin, End } kind;
    int block;
};

// Stands between the model and Zero.
struct Watched {
    Zero& zero;
    std::vector<ZeroEvent> events;
    std::vector<Mark> marks;
    std::function<void(Mark)> on_mark;

    explicit Watched(Zero& z) : zero(z) { zero.events = &events; }
    ~Watched() { zero.events = nullptr; }
    void take() {
        for (const ZeroEvent& e : events)
            marks.push_back({Mark::Kind(e.kind), e.bucket - zero.layout.blocks});
        events.clear();
    }
    void mark(Mark m) {
        take();
        if (on_mark) on_mark(m);
        marks.push_back(m);
    }
    auto embed() const { return zero.embed(); }
    auto head() const { return zero.head(); }
    auto final() const { return zero.final(); }
    auto embed_grads() const { return zero.embed_grads(); }
    auto head_grads() const { return zero.head_grads(); }
    auto final_grads() const { return zero.final_grads(); }
    void done_embed() { zero.done_embed(); }
    void done_head() { zero.done_head(); }
    void done_final() { zero.done_final(); }
    auto block(int l) { return zero.block(l); }
    auto block_grads(int l) {
        mark({Mark::Begin, l});
        return zero.block_grads(l);
    }
    void done_block(int l) {
        mark({Mark::End, l});
        zero.done_block(l);
        take();
    }
};

// A forward and a backward of one micro-batch.
static void one_micro_batch(Tiny& t, Watched& watched) {
    TokenBatch batch;
    load_batch(batch, t.set, 0, t.cfg.train.micro_batch);
    const Batch b{.tokens = batch.tokens.data(), .targets = batch.targets.data(), .B = batch.B, .T = T};
    const int L = t.d.L;
    std::vector<int> order;
    for (int l = 0; l < L; l++) order.push_back(l);
    for (int l = L - 1; l >= 0; l--) order.push_back(l);
    t.model.zero.begin_step(order);
    t.model.zero.clear_grads();
    t.model.zero.begin_backward(true);
    t.model.gpt.forward(watched, b);
    t.model.gpt.backward(watched, b, real(1));
    t.model.zero.finish();
    watched.take();
}

// The reduction of block l is started before the backward of block l - 1 and awaited after it.
static bool overlaps(const std::vector<Mark>& marks, int L) {
    const auto at = [&](Mark::Kind kind, int block) {
        for (size_t i = 0; i < marks.size(); i++)
            if (marks[i].kind == kind && marks[i].block == block) return long(i);
        return -1L;
    };
    bool all = true;
    for (int l = 1; l < L; l++) {
        const long start = at(Mark::StartReduce, l), wait = at(Mark::WaitReduce, l);
        all = all && start >= 0 && start < at(Mark::Begin, l - 1) && at(Mark::End, l - 1) >= 0 &&
              wait > at(Mark::End, l - 1);
    }
    return all;
}

// Gathers are started while the block before computes: between them lies no wait for another.
static bool prefetches(const std::vector<Mark>& marks) {
    int in_flight = 0, most = 0, early = 0;
    bool started_since_wait = false;
    for (const Mark& m : marks) {
        if (m.kind == Mark::StartGather) in_flight++, started_since_wait = true;
        if (m.kind == Mark::WaitGather) in_flight--, started_since_wait = false;
        if (m.kind == Mark::Begin) early += started_since_wait;
        most = std::max(most, in_flight);
    }
    return most == 1 && early > 0;
}

struct Flags {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<int, bool> set;
    void raise(int which) {
        std::lock_guard lock(mutex);
        set[which] = true;
        changed.notify_all();
    }
    bool wait(int which, double seconds) {
        std::unique_lock lock(mutex);
        return changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return set[which]; });
    }
};

// An overlap that lies: what is said to be started is done before the start returns.
static Transport blocking;
static void fake_overlap(const Mesh& mesh) {
    static std::once_flag once;
    static const Transport* real_one;
    std::call_once(once, [&] {
        real_one = mesh.shard.group->transport;
        blocking = *real_one;
        blocking.start = [](Group& g, const Job& job) {
            const uint64_t ticket = real_one->start(g, job);
            real_one->finish(g, ticket);
            return ticket;
        };
        blocking.finish = [](Group&, uint64_t) {};
    });
    mesh.shard.group->transport = &blocking;
}

struct Overlap { bool logged, real; };

// Rank 1 comes to the first reduction, of the last block, only after rank 0, which has started it, computes the
// block before: a rank whose start waits for the others never gets there.
static Overlap overlap_of(int zero, bool overlap, bool fake) {
    Config cfg = zero_config(2, zero);
    cfg.parallel.overlap = overlap;
    Flags begun;
    std::atomic<bool> logged{true}, real{true};
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        if (fake) fake_overlap(mesh);
        Watched watched(t.model.zero);
        watched.on_mark = [&](Mark m) {
            if (mesh.rank == 0 && m.kind == Mark::Begin) begun.raise(m.block);
            if (mesh.rank == 1 && m.kind == Mark::End && m.block == t.d.L - 1)
                real = begun.wait(m.block - 1, overlap && !fake ? 20 : 0.3);
        };
        one_micro_batch(t, watched);
        if (!overlaps(watched.marks, t.d.L) || (zero == 3 && !prefetches(watched.marks))) logged = false;
        return 0;
    });
    return {logged, real};
}

TEST(reductions_run_beside_the_backward_of_the_next_block) {
    for (int zero = 0; zero < 4; zero++) {
        const Overlap o = overlap_of(zero, true, false);
        EXPECT(o.logged && o.real, "ZeRO %d: %s", zero, o.logged ? "a start waits" : "the log shows no overlap");
    }
}

TEST(faked_overlap_is_noticed) {
    for (const int zero : {1, 2, 3}) {
        const Overlap none = overlap_of(zero, false, false), fake = overlap_of(zero, true, true);
        EXPECT(!none.logged && !none.real, "ZeRO %d: without overlap the checks pass (%d, %d)", zero, none.logged,
               none.real);
        EXPECT(fake.logged && !fake.real, "ZeRO %d: a start that waits passes (%d, %d)", zero, fake.logged, fake.real);
    }
}

// Stage 3 has two blocks gathered at most, evaluation and generation included: it has memory for no more, and a
// block whose weights are asked for twice in a row is gathered once.
TEST(two_blocks_are_gathered_at_most) {
    run_threads(zero_config(2, 3), [](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        Watched watched(t.model.zero);
        one_micro_batch(t, watched);
        int gathers = 0, reductions = 0;
        for (const Mark& m : watched.marks) {
            gathers += m.kind == Mark::StartGather;
            reductions += m.kind == Mark::StartReduce;
        }
        const int L = t.d.L;
        EXPECT(gathers == L + (L - 2) && reductions == L, "%d gathers, %d reductions", gathers, reductions);
        return 0;
    });
}

}  // namespace PRECISION

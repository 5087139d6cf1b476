// Reductions and gathers in flight beside the computation; a faked overlap is noticed.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "test/zero.h"

namespace PRECISION {

// Zero's events with marks of the computation in between: each block's backward, from the request for
// gradients to the report; and Given, when a block receives its weights.
struct Mark {
    enum Kind {
        StartReduce, WaitReduce, StartGather, WaitGather, StartSum, WaitSum, StartSpread, WaitSpread,
        Begin, End, Given
    } kind;
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
    uint64_t version() const { return zero.version(); }
    const BlockCodes* block_codes(int l) { return zero.block_codes(l); }
    void done_embed() { zero.done_embed(); }
    void done_head() { zero.done_head(); }
    void done_final() { zero.done_final(); }
    auto block(int l) {
        const auto weights = zero.block(l);
        take();
        marks.push_back({Mark::Given, l});
        return weights;
    }
    auto block_grads(int l) {
        mark({Mark::Begin, l});
        return zero.block_grads(l);
    }
    auto vector_grads(int l, int) { return block_grads(l); }
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

// A collective of block l is started before the backward of block l - later and awaited after it. Reductions
// run beside the next block's backward, the halves of a sum over replicas beside the next two.
static bool overlaps(const std::vector<Mark>& marks, int L, Mark::Kind starts = Mark::StartReduce,
                     Mark::Kind waits = Mark::WaitReduce, int later = 1) {
    const auto at = [&](Mark::Kind kind, int block) {
        for (size_t i = 0; i < marks.size(); i++)
            if (marks[i].kind == kind && marks[i].block == block) return long(i);
        return -1L;
    };
    bool all = true;
    for (int l = later; l < L; l++) {
        const long start = at(starts, l), wait = at(waits, l), end = at(Mark::End, l - later);
        all = all && start >= 0 && start < at(Mark::Begin, l - later) && end >= 0 && wait > end;
    }
    return all;
}

// A block's gather is in flight during the computation of the previous block, in forward and backward. The
// first block has no previous block.
static bool prefetches(const std::vector<Mark>& marks) {
    int in_flight = 0, most = 0, early = 0, gathers = 0;
    bool computes = true;
    for (const Mark& m : marks) {
        if (m.kind == Mark::StartGather) in_flight++, gathers++, computes = gathers == 1;
        if (m.kind == Mark::Given) computes = true;
        if (m.kind == Mark::WaitGather) in_flight--, early += computes;
        most = std::max(most, in_flight);
    }
    return most == 1 && gathers > 2 && early == gathers;
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

// A faked overlap: a collective completes before its start returns.
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

struct Overlap { bool logged, real, prefetched; };

// Rank 1 calls the first reduction, of the last block, only after rank 0 has started the reduction and
// computes the previous block: a rank whose start waits for the others hangs.
static Overlap overlap_of(int zero, bool overlap, bool fake) {
    Config cfg = zero_config(2, zero);
    cfg.parallel.overlap = overlap;
    Flags begun;
    std::atomic<bool> logged{true}, real{true}, prefetched{true};
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
        if (!overlaps(watched.marks, t.d.L)) logged = false;
        if (zero == 3 && !prefetches(watched.marks)) prefetched = false;
        return 0;
    });
    return {logged, real, prefetched};
}

TEST(reductions_run_beside_the_backward_of_the_next_block) {
    for (int zero = 0; zero < 4; zero++) {
        const Overlap o = overlap_of(zero, true, false);
        EXPECT(o.logged && o.real, "ZeRO %d: %s", zero,
               o.logged ? "a start waits" : "the log shows no overlap");
        EXPECT(o.prefetched, "ZeRO %d: a block's weights are asked for before they are fetched", zero);
    }
}

TEST(faked_overlap_is_noticed) {
    for (const int zero : {1, 2, 3}) {
        const Overlap none = overlap_of(zero, false, false), fake = overlap_of(zero, true, true);
        EXPECT(!none.logged && !none.real, "ZeRO %d: without overlap the checks pass (%d, %d)", zero,
               none.logged, none.real);
        EXPECT(none.prefetched == (zero < 3), "ZeRO 3: without overlap its gathers pass as early");
        EXPECT(fake.logged && !fake.real, "ZeRO %d: a start that waits passes (%d, %d)", zero, fake.logged,
               fake.real);
    }
}

// By the events of a step, and as the planner sees them: how many collectives over replicas have products
// between their start and their end in a walk, of 4 ranks in 2 groups.
TEST(sums_over_replicas_run_beside_the_backward) {
    for (int zero = 0; zero < 4; zero++)
        for (const bool overlap : {true, false}) {
            Config cfg = zero_config(4, zero, 3);
            cfg.parallel.zero_group = 2, cfg.parallel.overlap = overlap;
            run_threads(cfg, [&](Config c, const Mesh& mesh) {
                Tiny t(c, false, mesh);
                Watched watched(t.model.zero);
                one_micro_batch(t, watched);
                const int L = t.d.L;
                EXPECT(overlaps(watched.marks, L, Mark::StartSum, Mark::WaitSum, 2) == overlap &&
                       overlaps(watched.marks, L, Mark::StartSpread, Mark::WaitSpread, 3) == overlap,
                       "ZeRO %d, overlap %d: by events", zero, overlap);
                std::vector<size_t> started;
                size_t products = 0, beside = 0, all = 0;
                for (const Walk::Entry& e : t.model.step.entries) {
                    const Cost& cost = t.model.step.of(e);
                    products += cost.kind == Kind::Product;
                    if (!cost.axis || std::string(cost.axis) != "replica") continue;
                    if (cost.kind == Kind::Collective) started.push_back(products);
                    else beside += products > started[all++];
                }
                EXPECT(all == started.size() && all == 2 * size_t(t.model.zero.layout.count()),
                       "ZeRO %d: %zu of %zu", zero, all, started.size());
                EXPECT(beside == (overlap ? size_t(2 * L - 5) : 0), "ZeRO %d, overlap %d: %zu of %zu", zero,
                       overlap, beside, all);
                return 0;
            });
        }
}

// A tensor may fill its bucket to the end: no element is left over.
TEST(shards_have_equal_slices_for_their_replicas) {
    for (const int replicas : {2, 3, 6}) {
        Config cfg = zero_config(2 * replicas, 1, 1);
        cfg.parallel.zero_group = 2;
        const auto mesh = described_mesh(cfg.parallel, 2 * replicas, 0);
        const Model model(cfg, mesh->mesh, 1, false);
        for (int b = 0; b < model.shards.layout.count(); b++)
            EXPECT(model.mesh.replica.size == replicas && model.shards.shard(b) % size_t(replicas) == 0,
                   "bucket %d has %zu elements for %d replicas", b, model.shards.shard(b), replicas);
    }
}

// Stage 3 has two blocks gathered at most, evaluation and generation included: it has memory for no more, and
// a block whose weights are asked for twice in a row is gathered once.
TEST(two_blocks_are_gathered_at_most) {
    run_threads(zero_config(2, 3), [](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        Watched watched(t.model.zero);
        one_micro_batch(t, watched);
        int gathers = 0, reductions = 0;
        EXPECT(t.model.zero.gathered_blocks() == 2, "%d blocks are gathered", t.model.zero.gathered_blocks());
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

// Tensor and sequence parallelism, and chunks of blocks, against one rank.
#include "llmc/train/step/schedule.h"
#include "test/part.h"

namespace PRECISION {

// A full micro-batch and a smaller micro-batch, as at an evaluation's end: the gradients of both, summed.
static double losses_and_gradients(Rank& r) {
    const Data data(r.s);
    r.poison();
    for (const int rows : {r.s.B, 1}) {
        const Batch b = data.batch(rows, rows);
        r.gpt.forward(r.weights, b);
        r.gpt.backward(r.weights, b, real(1.0 / (b.B * b.T)));
    }
    return *r.gpt.loss;
}

static void expect_equal_to_one_rank(const Sizes& s, int tp, Recompute level) {
    const std::string what = fmt::format("tp {}, C {}, V {}, {} x {} tokens", tp, s.C, s.V, s.B, s.T);
    Global want(s), got(s);
    Sizes at_once = s;
    at_once.logit_rows = 1 << 20;
    Rank one(at_once, level);
    const double loss = losses_and_gradients(one);
    want.add(one);
    std::vector<double> found(static_cast<size_t>(tp));
    on_mesh(tp, 1, [&](const Mesh& mesh) {
        Rank r(s, mesh.tp, whole_model(s.L), {1}, level);
        found[size_t(mesh.tp.index)] = losses_and_gradients(r);
        got.add(r);
    });
    for (const double l : found) {
        EXPECT_NEAR(l / loss, 1, sizeof(floatX) == 8 ? 1e-13 : sizeof(floatX) == 4 ? 1e-6 : 5e-3);
        EXPECT(l == found[0], "the ranks have different losses");
    }
    expect_gradients(s, got, want, what.c_str());
}

TEST(gradients_are_those_of_one_rank) {
    const Sizes odd;                                                // 21 and 7 tokens, V = 301
    const Sizes one_row{.L = 1, .heads = 4, .C = 64, .T = 3, .V = 513, .B = 1};     // a rank without a token
    const Sizes even{.L = 1, .heads = 4, .C = 16, .T = 8, .V = 128, .B = 2};    // ranks without vocabulary
    for (const int tp : {2, 4})
        for (const Sizes& s : {odd, one_row, even}) expect_equal_to_one_rank(s, tp, Recompute::None);
    for (const Recompute level : {Recompute::Selective, Recompute::Block})
        expect_equal_to_one_rank(odd, 4, level);
    expect_equal_to_one_rank({.L = 1, .heads = 3, .C = 24, .T = 5, .V = 301, .B = 3}, 3, Recompute::None);
}

// Of 21 and 7 tokens, in chunks of 8.
TEST(logits_come_in_chunks) {
    expect_equal_to_one_rank(Sizes{.logit_rows = 8}, 2, Recompute::None);
}

// ---------------------------------------------------------------------------------------------------------
// what is sent

struct Calls { uint64_t gathers, gathered, scatters, scattered; };

static Calls calls_of(const Axis& a) {
    const Moved* m = a.group->moved;
    return {m[kAllGather].calls, m[kAllGather].bytes, m[kReduceScatter].calls, m[kReduceScatter].bytes};
}
static Calls operator-(const Calls& a, const Calls& b) {
    return {a.gathers - b.gathers, a.gathered - b.gathered, a.scatters - b.scatters,
            a.scattered - b.scattered};
}

// Of forward and of backward on one rank of tp.
static std::array<Calls, 2> calls_of(const Sizes& s, int tp, Recompute level) {
    std::array<Calls, 2> calls;
    on_mesh(tp, 1, [&](const Mesh& mesh) {
        Rank r(s, mesh.tp, whole_model(s.L), {1}, level);
        const Data data(s);
        const Batch b = data.batch(0);
        const Calls start = calls_of(mesh.tp);
        r.gpt.forward(r.weights, b);
        const Calls middle = calls_of(mesh.tp);
        r.gpt.backward(r.weights, b, 1);
        const Calls end = calls_of(mesh.tp);
        if (mesh.rank == 0) calls = {middle - start, end - middle};
        for (int v = 0; v < kVerbs; v++)
            EXPECT(v == kAllGather || v == kReduceScatter || mesh.tp.group->moved[v].calls == 0,
                   "%s is called", verb_names[v]);
    });
    return calls;
}

// Per block and micro-batch: forward 2 gathers and 2 scatters, backward 4 and 2, also with recomputation.
// Around the blocks: a scatter of the embedding's output, a gather of the head's input, and the same for
// their gradients; three numbers per row of logits. The rest are slices of the stream: no message has a
// weight's size.
static void expect_calls(const Sizes& s, int tp, Recompute level) {
    const auto [forward, backward] = calls_of(s, tp, level);
    const uint64_t blocks = uint64_t(s.L), N = uint64_t(s.B * s.T), others = uint64_t(tp) - 1;
    const uint64_t slice = (N + others) / uint64_t(tp) * uint64_t(s.C) * sizeof(floatX) * others;
    const uint64_t stats = N * 3 * sizeof(real) * others;
    const uint64_t gathers = 4 * blocks, scatters = 2 * blocks;
    EXPECT(forward.gathers == 2 * blocks && forward.scatters == 2 * blocks + 1,
           "forward: %lu gathers, %lu scatters", forward.gathers, forward.scatters);
    EXPECT(backward.gathers == gathers + 3 && backward.scatters == scatters + 1,
           "backward of level %d: %lu gathers, %lu scatters", int(level), backward.gathers,
           backward.scatters);
    EXPECT(forward.gathered == 2 * blocks * slice && forward.scattered == (2 * blocks + 1) * slice,
           "forward: %lu and %lu bytes", forward.gathered, forward.scattered);
    EXPECT(backward.gathered == (gathers + 2) * slice + stats &&
           backward.scattered == (scatters + 1) * slice,
           "backward of level %d: %lu and %lu bytes", int(level), backward.gathered, backward.scattered);
}

TEST(collectives_are_counted) {
    for (const Recompute level : {Recompute::None, Recompute::Selective, Recompute::Block})
        for (const int tp : {2, 4})
            for (const int L : {1, 3})
                for (const int V : {301, 2001})
                    expect_calls({.L = L, .heads = 4, .C = 32, .T = 7, .V = V, .B = 3}, tp, level);
}

// ---------------------------------------------------------------------------------------------------------
// chunks

static constexpr int kMicros = 3;

static void one_rank(Rank& r) {
    const Data data(r.s);
    for (int m = 0; m < kMicros; m++) {
        r.gpt.forward(r.weights, data.batch(m));
        r.gpt.backward(r.weights, data.batch(m), real(0.1));
    }
}

// Stages in one thread, streams carried by hand; every micro-batch is alive at once, each in its own buffer.
static double carried(const Sizes& s, int stages, int virtual_stages, Recompute level, Global& grads) {
    const Data data(s);
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int stage = 0; stage < stages; stage++) {
        ranks.push_back(std::make_unique<Rank>(s, Axis(), make_part(s.L, stage, stages, virtual_stages),
                                               std::vector<int>(size_t(virtual_stages), kMicros), level));
        ranks.back()->poison();
    }
    const int chunks = stages * virtual_stages;
    const auto rank = [&](int number) -> Rank& {
        Rank& r = *ranks[size_t(number % stages)];
        return r.use(), r;
    };
    const size_t count = rank(0).gpt.message_count(s.B * s.T);
    for (int m = 0; m < kMicros; m++)
        for (int c = 0; c < chunks; c++) {
            Rank& r = rank(c);
            if (c > 0) std::copy_n(rank(c - 1).gpt.output(), count, r.gpt.input(c / stages, m));
            rank(c).gpt.forward(r.weights, data.batch(m), c / stages, m);
        }
    for (int m = 0; m < kMicros; m++)
        for (int c = chunks - 1; c >= 0; c--) {
            Rank& r = rank(c);
            if (c < chunks - 1) std::copy_n(rank(c + 1).gpt.gradient(), count, r.gpt.gradient());
            rank(c).gpt.backward(r.weights, data.batch(m), real(0.1), c / stages, m);
        }
    for (auto& r : ranks) grads.add(*r);
    return *ranks.back()->gpt.loss;
}

// Bit for bit, but for wte: its gradient is the sum of two stages'.
static void expect_chunks(bool mixes) {
    const Sizes s{.L = 5, .heads = 2, .C = 16, .T = 5, .V = 131, .B = 3, .mixes = mixes};
    for (const Recompute level : {Recompute::None, Recompute::Selective, Recompute::Block}) {
        Rank one(s, level);
        one_rank(one);
        Global want(s);
        want.add(one);
        for (const auto& [stages, virtual_stages] : {std::pair{2, 1}, {2, 2}, {5, 1}, {3, 1}}) {
            Global got(s);
            EXPECT(carried(s, stages, virtual_stages, level, got) == *one.gpt.loss, "the loss differs");
            const std::string what = fmt::format("{} stages of {}", stages, virtual_stages);
            expect_gradients(s, got, want, what.c_str());
            const size_t wte = size_t(s.V * s.C);
            EXPECT(std::equal(got.sum.begin() + ptrdiff_t(wte), got.sum.end(),
                              want.sum.begin() + ptrdiff_t(wte)), "%s: bits differ", what.c_str());
            int wrong = 0;
            for (size_t i = 0; i < got.times.size(); i++) wrong += got.times[i] != (i < wte ? 2 : 1);
            EXPECT(wrong == 0, "%d elements are not there once, of wte twice", wrong);
        }
    }
}

TEST(chunks_in_any_split_are_the_whole_model) {
    for (const bool mixes : {false, true}) expect_chunks(mixes);
}

// Both axes at once, over the transport.
static void expect_stages(bool mixes) {
    const Sizes s{.L = 3, .heads = 4, .C = 32, .T = 7, .V = 301, .B = 3, .mixes = mixes};
    Rank one(s);
    one_rank(one);
    Global want(s), got(s);
    want.add(one);
    on_mesh(2, 2, [&](const Mesh& mesh) {
        Rank r(s, mesh.tp, make_part(s.L, mesh.pp.index, 2), {kMicros});
        const Data data(s);
        const size_t count = r.gpt.message_count(s.B * s.T);
        const bool first = mesh.pp.index == 0;
        for (int m = 0; m < kMicros; m++) {
            if (!first) mesh.pp.recv(r.gpt.input(0, m), count, 0);
            r.gpt.forward(r.weights, data.batch(m), 0, m);
            if (first) mesh.pp.send(r.gpt.output(), count, 1);
        }
        for (int m = 0; m < kMicros; m++) {
            if (first) mesh.pp.recv(r.gpt.gradient(), count, 1);
            r.gpt.backward(r.weights, data.batch(m), real(0.1), 0, m);
            if (!first) mesh.pp.send(r.gpt.gradient(), count, 0);
        }
        got.add(r);
    });
    expect_gradients(s, got, want, "tp 2, pp 2");
}

TEST(stages_of_tensor_parallel_ranks) {
    for (const bool mixes : {false, true}) expect_stages(mixes);
}

// ---------------------------------------------------------------------------------------------------------
// generation

// Logits of one sequence in pieces of several sizes, on every rank of the last stage.
static std::vector<double> logits_of(Rank& r, const Mesh& mesh) {
    const Data data(r.s);
    std::vector<double> all;
    int t0 = 0;
    for (const int count : {5, 1, 1, 3}) {
        const size_t message = r.decoder.own.message_count(count);
        if (mesh.pp.index > 0) mesh.pp.recv(r.decoder.own.input(), message, mesh.pp.index - 1);
        const floatX* row = r.decoder.forward(r.weights, data.ids.data() + t0, count, t0);
        if (!row) mesh.pp.send(r.decoder.own.output(), message, mesh.pp.index + 1);
        for (int i = 0; row && i < r.s.V; i++) all.push_back(double(row[i]));
        t0 += count;
    }
    return all;
}

static void expect_logits(const Sizes& s) {
    Rank one(s);
    const auto want = logits_of(one, Mesh());
    double largest = 0;
    for (double x : want) largest = std::max(largest, std::fabs(x));
    const double allowed = largest * (sizeof(floatX) == 8 ? 1e-13 : sizeof(floatX) == 4 ? 1e-5 : 0.03);
    for (const auto& [tp, pp] : {std::pair{2, 1}, {4, 1}, {2, 2}, {1, 3}})
        on_mesh(tp, pp, [&](const Mesh& mesh) {
            Rank r(s, mesh.tp, make_part(s.L, mesh.pp.index, mesh.pp.size), {1});
            const auto got = logits_of(r, mesh);
            const bool last = mesh.pp.index == mesh.pp.size - 1;
            EXPECT(got.size() == (last ? want.size() : 0), "%zu logits", got.size());
            double error = 0;
            for (size_t i = 0; i < got.size(); i++)
                if (const double e = std::fabs(got[i] - want[i]); !(e <= error)) error = e;
            EXPECT(error <= allowed, "tp %d, pp %d: logits are %.3g off, of %.3g", tp, pp, error, largest);
        });
}

TEST(every_rank_has_the_logits) {
    const Sizes plain{.L = 3, .heads = 4, .C = 32, .T = 11, .V = 301, .B = 1};
    Sizes mixes = plain, rotary = plain;
    mixes.mixes = true, rotary.rotary = true;
    for (const Sizes& s : {plain, mixes, rotary}) expect_logits(s);
}

}  // namespace PRECISION

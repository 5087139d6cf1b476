// Each variant of attention by tensor cores, at each head size: errors against a plain program's with the
// same rounding, the floor, and independence of the order of threads.
#include "llmc/ops/cuda/tuning/workload.h"
#include "test/attention_variants.h"

namespace PRECISION {

// Entries of the kernels that f() launches.
template <class F> static std::vector<const void*> kernels_of(F f) {
    std::vector<const void*> kernels;
    const LaunchObserver observer = {&kernels,
                                     [](void* self, const void* kernel, const Floor&) {
                                         static_cast<std::vector<const void*>*>(self)->push_back(kernel);
                                     },
                                     [](void*, const void*) {}};
    const auto before = std::exchange(launch_observer, &observer);
    f();
    launch_observer = before;
    return kernels;
}

// ---------------------------------------------------------------------------------------------------------

static double l2(const Wide& a, const Wide& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return std::sqrt(sum);
}

// The error is at most twice the plain program's error, beside FP32's rounding of cancelling sums. A tensor
// with a changed element must fail.
static void expect_alike(const char* what, const AttentionCase& c, const std::string& variant, Wide got,
                         const Wide& exact, const Wide& alike, double size) {
    const double allowed = 2 * l2(alike, exact) + 1e-6 * size * std::sqrt(double(got.size()));
    const auto name = [&] {
        return fmt::format("{} of {}, B = {}, Tq = {}, Tk = {}, D = {}", what, variant, c.s.B, c.s.Tq,
                           c.s.Tk, c.s.D);
    };
    EXPECT(got.size() == exact.size() && l2(got, exact) <= allowed, "%s: error %g, allowed %g",
           name().c_str(), l2(got, exact), allowed);
    got[got.size() / 2] += 2 * allowed;
    EXPECT(!(l2(got, exact) <= allowed), "%s: a changed element goes unnoticed", name().c_str());
}

static void expect_alike(const AttentionCase& c, double size) {
    const auto d = c.dims();
    const size_t C = size_t(c.s.NH) * c.s.D;
    const auto width = [&](size_t stride) { return stride == d.q_stride ? C : C / size_t(c.s.group); };
    const auto rows = [&](const auto& m, size_t stride) { return columns(m, stride, 0, width(stride)); };
    const auto untouched = [&](const auto& m, size_t stride) {
        for (const floatX x : columns(m, stride, width(stride), stride))
            EXPECT(std::isnan(double(x)), "written between the rows");
    };
    for_variants(
        c.s.D,
        [&](const Forward& v) {
            const AttentionResults got = run(c, v);
            expect_alike("out", c, v.name, wide(got.out), c.exact.out, c.alike.out, size);
            for (size_t i = 0; i < got.lse.size(); i++) {
                const double error = std::fabs(double(got.lse[i]) - c.exact.lse[i]);
                const double sum = 1 + 2 * size * size * std::sqrt(double(c.s.D));   // of absolute products
                EXPECT(error <= 1e-5 * sum, "lse[%zu]: %g", i, error);
            }
        },
        [&](const Backward& queries, const Backward& keys) {
            const AttentionResults got = run(c, queries, keys);
            const auto check = [&](const char* what, const char* variant, const auto& m, size_t stride,
                                   const Wide& exact, const Wide& alike) {
                expect_alike(what, c, variant, wide(rows(m, stride)), rows(exact, stride),
                             rows(alike, stride), size * size);
                untouched(m, stride);
            };
            check("dq", queries.name, got.dq, d.q_stride, c.exact.dq, c.alike.dq);
            check("dk", keys.name, got.dk, d.kv_stride, c.exact.dk, c.alike.dk);
            check("dv", keys.name, got.dv, d.kv_stride, c.exact.dv, c.alike.dv);
        });
}

TEST(errs_as_a_plain_program_that_rounds_alike) {
    for (const int D : kHeadSizes)
        for (const double size : {0.3, 1., 2.})
            for (const auto& [B, T] : {std::pair{1, 1}, {3, 17}, {1, 160}, {1, 200}})
                if (!few(D) && (size == 1 || T == 160))
                    expect_alike(AttentionCase({B, T, T, T < 100 ? 2 : 1, D, 0, 0}, size), size);
}

// Queries and keys of other positions: a cache, missing keys, and keys that no query sees. Heads of queries
// with shared keys. Windows of a token, of a whole tile or not, over everything. Rows of packed documents.
static const TestedAttention kShapes[] = {
    {1, 1, 77, 2, 0, 76, 0},             {3, 3, 140, 1, 0, 137, 0},          {1, 5, 11, 1, 0, 10, 4},
    {1, 150, 40, 1, 0, 3, 0},            {1, 20, 150, 1, 0, 10, 0},          {1, 150, 200, 1, 0, 130, 100},
    {1, 160, 160, 3, 0, 0, 0, 3},        {1, 70, 70, 4, 0, 0, 0, 4},         {1, 3, 140, 4, 0, 137, 0, 2},
    {1, 20, 150, 2, 0, 10, 0, 2},        {1, 160, 160, 1, 0, 0, 0, 1, 1},    {1, 200, 200, 1, 0, 0, 0, 1, 37},
    {1, 160, 160, 2, 0, 0, 0, 2, 64},    {1, 3, 140, 1, 0, 137, 0, 1, 70},   {1, 20, 150, 1, 0, 10, 0, 1, 8},
    {1, 70, 70, 1, 0, 0, 0, 1, 200},     {1, 20, 250, 2, 0, 220, 0, 2, 9},
    {1, 150, 200, 1, 0, 130, 100, 1, 50}, {1, 200, 200, 2, 0, 0, 0, 2, 0, 40},
    {1, 160, 160, 1, 0, 0, 0, 1, 0, 1},  {2, 150, 150, 1, 0, 0, 0, 1, 37, 60}, {1, 70, 530, 1, 0, 460, 0},
    {1, 530, 70, 1, 0, 0, 0},            {1, 140, 420, 2, 0, 210, 0, 2, 0, 90},
    {2, 70, 210, 1, 0, 0, 0, 1, 30, 40}};

TEST(offsets_shared_keys_windows_and_documents) {
    for (const int D : kHeadSizes)
        for (TestedAttention s : kShapes) if (!few(s.D = D)) expect_alike(AttentionCase(s), 1);
}

TEST(order_changes_no_bit) {
    if (kAgain) return test::skip("one order has to do there, as in the other tests");
    for (const int D : {64, 80, 128}) {
        const AttentionCase c({1, 140, 140, D == 80 ? 2 : 1, D, 0, 0, D == 80 ? 2 : 1, D == 64 ? 0 : 50});
        for_variants(
            D,
            [&](const Forward& v) {
                const AttentionResults first = run(c, v);
                in_every_order([&] { EXPECT(run(c, v) == first, "forward %s, D = %d", v.name, D); });
            },
            [&](const Backward& queries, const Backward& keys) {
                const AttentionResults first = run(c, queries, keys, true);
                in_every_order([&] {
                    EXPECT(run(c, queries, keys, true) == first, "%s %s, D = %d", queries.name, keys.name, D);
                });
            });
    }
}

TEST(moves_and_multiplies_what_its_floor_says) {
    const auto check = [](const TestedAttention& s) {
        const AttentionCase c(s);
        for_variants(
            s.D, [&](const Forward& v) { EXPECT_FLOORS([&] { run(c, v); }); },
            [&](const Backward& queries, const Backward& keys) {
                EXPECT_FLOORS([&] { run(c, queries, keys); });
            });
    };
    for (const int D : kHeadSizes) {
        if (few(D)) continue;
        for (const int T : {1, 17, D == 64 ? 200 : 160}) check({1, T, T, 1, D, 0, 0});
        check({1, 160, 160, 1, D, 0, 0, 1, 50});
    }
    for (TestedAttention s : kShapes) s.D = 64, check(s);
}

TEST(the_chosen_variant_runs) {
    const AttentionCase c({2, 70, 70, 2, 64, 0, 0});
    const CudaScratch lent;
    const auto choose = [](cuda::Op op, const char* name) { cuda::choose({op, {2, 70, 2, 64}}, {name}); };
    for_variants(
        64,
        [&](const Forward& v) {
            choose(cuda::Op::AttentionForward, v.name);
            const Forward op = {nullptr, nullptr, nullptr, [](const auto& t, const auto& d) {
                                    cuda::attention_forward(t.out, t.lse, t.q, t.k, t.v, d);
                                }};
            const auto chosen = kernels_of([&] { run(c, op); }), itself = kernels_of([&] { run(c, v); });
            EXPECT(chosen == itself && chosen.size() == 1, "forward %s is not taken", v.name);
        },
        [&](const Backward& queries, const Backward& keys) {
            choose(cuda::Op::AttentionQueries, queries.name), choose(cuda::Op::AttentionKeys, keys.name);
            const Backward none = {nullptr, nullptr, nullptr, [](const auto&, const auto&) {}};
            const Backward op = {nullptr, nullptr, nullptr, [](const auto& g, const auto& d) {
                                     cuda::attention_backward(g.t, d);
                                 }};
            const auto chosen = kernels_of([&] { run(c, op, none); }),
                       itself = kernels_of([&] { run(c, queries, keys); });
            EXPECT(chosen == itself && chosen.size() == 2, "%s and %s are not taken", queries.name,
                   keys.name);
        });
}

TEST(takes_the_lowest_floor_of_its_own_accord) {
    const AttentionCase c({1, 256, 256, 1, 64, 0, 0});
    double least = INFINITY, most = 0;
    for_variants(
        64,
        [&](const Forward& v) {
            const double bytes = v.floor(c.dims()).bytes;
            least = std::min(least, bytes), most = std::max(most, bytes);
        },
        [](const Backward&, const Backward&) {});
    const Forward op = {nullptr, nullptr, nullptr, [](const auto& t, const auto& d) {
                            cuda::attention_forward(t.out, t.lse, t.q, t.k, t.v, d);
                        }};
    static double taken;
    const LaunchObserver observer = {nullptr, [](void*, const void*, const Floor& f) { taken = f.bytes; },
                                     [](void*, const void*) {}};
    const auto before = std::exchange(launch_observer, &observer);
    run(c, op);
    launch_observer = before;
    if (sizeof(floatX) == 2) EXPECT(taken == least && least < most, "%g of %g to %g", taken, least, most);
}

// Every variant passes; a kernel whose results are spoilt does not.
TEST(tuning_compares_with_the_plain_kernels) {
    static struct { void* results; size_t bytes; int launches, spoilt; } spoils;
    const LaunchObserver observer = {
        nullptr, [](void*, const void*, const Floor&) {},
        [](void*, const void*) {
            if (++spoils.launches == spoils.spoilt) cuda::set_zero(spoils.results, spoils.bytes);
        }};
    for (const int D : kHeadSizes)
        for (const cuda::Op op :
             {cuda::Op::AttentionForward, cuda::Op::AttentionQueries, cuda::Op::AttentionKeys}) {
            if (kAgain && D != 64) continue;
            const cuda::Task task = {op, {1, 70, 2, D}};
            const CudaScratch lent;
            const OnDevice memory(std::vector<std::byte>(cuda::workload_bytes(task)));
            for (const cuda::Candidate& candidate : cuda::candidates_of(task)) {
                const std::string wrong = cuda::differences(task, candidate, memory);
                EXPECT(wrong.empty(), "%s: %s", candidate.kernel.c_str(), wrong.c_str());
                const size_t half = memory.bytes() / 2;
                spoils = {memory + half, half, 0, op == cuda::Op::AttentionKeys ? 2 : 1};
                const auto before = std::exchange(launch_observer, &observer);
                const std::string spoilt = cuda::differences(task, candidate, memory);
                launch_observer = before;
                EXPECT(!spoilt.empty(), "%s, heads of %d: nobody sees it", candidate.kernel.c_str(), D);
            }
        }
}

// Each head size has a variant for blocks with as little shared memory as on sm_86 and sm_120.
TEST(some_variant_fits_every_gpu) {
    const size_t before = std::exchange(cuda_device().shared_limit, 99 << 10);
    for (const int D : kHeadSizes) for_variants(D, [](const auto&) {}, [](const auto&, const auto&) {});
    cuda_device().shared_limit = before;
}

}  // namespace PRECISION

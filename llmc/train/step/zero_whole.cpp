// Weights by coordinates of the whole model: the same calls on every mesh.
#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/train/step/zero.h"

namespace PRECISION {

static void put_rounded(floatX* to, const real* values, size_t count) {
    static constexpr size_t kGrain = 8192;
    floatX rounded[kGrain];
    for (Interval rest{0, count}; !rest.empty();) {
        const Interval n = rest.take(kGrain);
        for (size_t i = 0; i < n.count; i++) rounded[i] = floatX(values[n.begin + i]);
        ops::copy_to_device(to + n.begin, rounded, n.count * sizeof(floatX));
    }
}
static void take_widened(real* out, const floatX* from, size_t count) {
    std::vector<floatX> values(count);
    ops::copy_to_host(values.data(), from, count * sizeof(floatX));
    std::copy(values.begin(), values.end(), out);
}

// The weights where they lie here, and the masters. elements: of the bucket.
void Zero::store(int b, Interval elements, const real* values) {
    const Interval rounded = common(home_of(b, Kept::Weights).elements, elements);
    if (!rounded.empty())
        put_rounded(weight(b, rounded.begin), values + (rounded.begin - elements.begin), rounded.count);
    if (!masters()) return;
    const Interval full = common(home_of(b, *masters()).elements, elements);
    if (!full.empty())
        ops::copy_to_device(state_at(*masters(), b, full.begin), values + (full.begin - elements.begin),
                            full.count * sizeof(real));
}

void Zero::import_tensor(const Tensor& whole, size_t first, size_t count, const real* in) {
    beat();
    stale = true;
    const Tensor* const t = tensor_here(whole.name);
    if (!t) return;
    const size_t start = layout.in_bucket(*t).begin;
    for (const Piece& p : pieces_of(*t, {0, t->param.used()}))
        for_each_run(p, size_t(t->param.whole_cols), {first, count},
                     [&](size_t local, size_t global, size_t n) {
            store(t->bucket, {start + local, n}, in + (global - first));
        });
}

// An element is given by its owner and zero bits elsewhere: a sum of integers brings every bit pattern over.
void Zero::export_tensor(const Tensor& whole, size_t first, size_t count, real* out) const {
    beat();
    using Bits = std::conditional_t<sizeof(real) == 8, int64_t, int32_t>;
    CHECK(count <= kExport || mesh.world.size == 1, "export of {} elements at once", count);
    std::fill(out, out + count, real(0));
    if (const Tensor* const t = tensor_here(whole.name)) {
        const size_t start = layout.in_bucket(*t).begin;
        for (const Piece& p : pieces_of(*t, owned(*t, Replicas::First)))
            for_each_run(p, size_t(t->param.whole_cols), {first, count},
                         [&](size_t local, size_t global, size_t n) {
                const size_t element = start + local;
                real* const to = out + (global - first);
                if (!masters()) take_widened(to, weight(t->bucket, element), n);
                else ops::copy_to_host(to, state_at(*masters(), t->bucket, element), n * sizeof(real));
            });
    }
    mesh.world.all_reduce(reinterpret_cast<Bits*>(out), count);
}

void Zero::init_weights(uint64_t seed) {
    static constexpr size_t kGrain = 2048;                    // elements of one thread at a time
    const size_t at_once = 8 * size_t(context.threads) * kGrain;
    std::vector<real> values(at_once);
    stale = true;
    for (const Tensor& t : layout.tensors) {
        beat();
        const double std = deviation(t.param, d);
        const real fixed = real(constant(t.param, t.layer, d));
        const uint64_t stream = stream_of(t.name.c_str());
        const Interval stored = home_of(t.bucket, Kept::Weights).elements;
        const size_t in_bucket = layout.in_bucket(t).begin;
        for (Interval rest{0, t.param.used()}; !rest.empty();) {
            const Interval now = rest.take(at_once);
            const auto here = [&](size_t local, size_t n) {
                return !common({in_bucket + local, n}, stored).empty();
            };
            #pragma omp parallel for num_threads(context.threads)
            for (size_t first = now.begin; first < now.end(); first += kGrain)
                for_each_run(t, common(now, {first, kGrain}), [&](size_t local, size_t global, size_t n) {
                    real* out = values.data() + (local - now.begin);
                    if (!here(local, n)) return;
                    for (size_t i = 0; i < n; i++)
                        out[i] = std > 0 ? real(std * normal(seed, stream, global + i))
                                        : fixed;
                });
            for_each_run(t, now, [&](size_t local, size_t, size_t n) {
                if (here(local, n))
                    store(t.bucket, {in_bucket + local, n}, values.data() + (local - now.begin));
            });
        }
    }
}

}  // namespace PRECISION

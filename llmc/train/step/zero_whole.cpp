// Whole tensors, from the ranks that have their elements: the same calls on every mesh.
#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/train/step/zero.h"

namespace PRECISION::inline step {

static void take_widened(real* out, const floatX* from, size_t count) {
    std::vector<floatX> values(count);
    ops::copy_to_host(values.data(), from, count * sizeof(floatX));
    std::copy(values.begin(), values.end(), out);
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

std::vector<real> whole_tensor(const Zero& zero, const Tensor& t) {
    std::vector<real> values(t.param.whole());
    for (Interval rest{0, values.size()}; !rest.empty();) {
        const auto [first, n] = rest.take(Zero::kExport);
        zero.export_tensor(t, first, n, &values[first]);
    }
    return values;
}

}  // namespace PRECISION::step

#include "llmc/train/step/whole_tensors.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/check.h"
#include "llmc/base/guard/progress_page.h"

namespace PRECISION::inline step {

static void take_widened(real* out, const floatX* from, size_t count) {
    std::vector<floatX> values(count);
    ops::copy_to_host(values.data(), from, count * sizeof(floatX));
    std::copy(values.begin(), values.end(), out);
}

// An element is given by its owner and zero bits elsewhere: a sum of integers brings every bit pattern over.
void export_tensor(const Shards& shards, const Tensor& whole, size_t first, size_t count, real* out) {
    beat();
    using Bits = std::conditional_t<sizeof(real) == 8, int64_t, int32_t>;
    CHECK(count <= kExport || shards.mesh.world.size == 1, "export of {} elements at once", count);
    std::fill(out, out + count, real(0));
    const StateSlot* const masters = shards.masters();
    if (const Tensor* const t = shards.tensor_here(whole.name)) {
        const size_t start = shards.layout.in_bucket(*t).begin;
        for (const Piece& p : pieces_of(*t, shards.owned(*t, Shards::Replicas::First)))
            for_each_run(p, size_t(t->param.whole_cols), {first, count},
                         [&](size_t local, size_t global, size_t n) {
                const size_t element = start + local;
                real* const to = out + (global - first);
                if (!masters) take_widened(to, shards.weight(t->bucket, element), n);
                else ops::copy_to_host(to, shards.state_at(*masters, t->bucket, element), n * sizeof(real));
            });
    }
    shards.mesh.world.all_reduce(reinterpret_cast<Bits*>(out), count);
}

std::vector<real> whole_tensor(const Shards& shards, const Tensor& t) {
    std::vector<real> values(t.param.whole());
    for (Interval rest{0, values.size()}; !rest.empty();) {
        const auto [first, n] = rest.take(kExport);
        export_tensor(shards, t, first, n, &values[first]);
    }
    return values;
}

static bool all_finite(const Shards& shards, const Tensor& t) {
    std::vector<real> values;
    for (size_t first = 0; first < t.param.whole(); first += values.size()) {
        values.resize(std::min(kExport, t.param.whole() - first));
        export_tensor(shards, t, first, values.size(), values.data());
        for (const real v : values)
            if (!std::isfinite(v)) return false;
    }
    return true;
}

void end_not_finite(const Shards& shards, const std::string& what) {
    for (const Tensor& t : whole_tensors(shards.d))
        if (!all_finite(shards, t))
            fatal(kExitNotFinite, __FILE__, __LINE__, "{}: not finite, as the tensor '{}' holds NaN or "
                  "infinity", what, t.name);
    fatal(kExitNotFinite, __FILE__, __LINE__, "{}: not finite, although every weight is: activations "
          "overflow", what);
}

}  // namespace PRECISION::step

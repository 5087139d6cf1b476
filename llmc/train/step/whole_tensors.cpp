#include "llmc/train/step/whole_tensors.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/guard/progress_page.h"

namespace PRECISION::inline step {

static void take_widened(real* out, const floatX* from, size_t count) {
    std::vector<floatX> values(count);
    ops::copy_to_host(values.data(), from, count * sizeof(floatX));
    std::copy(values.begin(), values.end(), out);
}

// `count` elements of the whole tensor of t's name from `first` on. An element is given by its owner and zero
// bits elsewhere: a sum of integers brings every bit pattern over.
static void export_slice(const Shards& shards, const Tensor& whole, size_t first, size_t count, real* out) {
    beat();
    using Bits = std::conditional_t<sizeof(real) == 8, int64_t, int32_t>;
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
                else ops::copy_to_host(to, shards.state_at(*masters, t->bucket, element), masters->bytes(n));
            });
    }
    shards.mesh.world.all_reduce(reinterpret_cast<Bits*>(out), count);
}

// Calls f(values) for slices of the tensor, in order.
template <class F> static void for_each_slice(const Shards& shards, const Tensor& t, F&& f) {
    std::vector<real> values;
    for (Interval rest{0, t.param.whole()}; !rest.empty();) {
        const auto [first, n] = rest.take(kExport);
        values.resize(n);
        export_slice(shards, t, first, n, values.data());
        f(std::as_const(values));
    }
}

template <class T> static std::vector<T> whole_as(const Shards& shards, const Tensor& t) {
    std::vector<T> whole;
    whole.reserve(t.param.whole());
    for_each_slice(shards, t, [&](const std::vector<real>& values) {
        whole.insert(whole.end(), values.begin(), values.end());
    });
    return whole;
}

std::vector<real> whole_tensor(const Shards& shards, const Tensor& t) { return whole_as<real>(shards, t); }
std::vector<float> whole_in_fp32(const Shards& shards, const Tensor& t) { return whole_as<float>(shards, t); }

static bool all_finite(const Shards& shards, const Tensor& t) {
    bool finite = true;
    for_each_slice(shards, t, [&](const std::vector<real>& values) {
        for (const real v : values) finite &= std::isfinite(v);
    });
    return finite;
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

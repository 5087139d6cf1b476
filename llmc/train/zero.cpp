#include "llmc/train/zero.h"

#include <cmath>

#include "llmc/base/context.h"
#include "llmc/base/rng.h"

namespace PRECISION {

void Zero::add_weights_to(Arena& arena) { arena.add("weights", &params, layout.size()); }

void Zero::add_training_to(Arena& arena) {
    arena.add("gradients", &grads, layout.size());
    if (!kMasterIsParam) arena.add("master weights", &master, layout.size());
    arena.add("first moments", &m, layout.size());
    arena.add("second moments", &v, layout.size());
}

void Zero::import_tensor(const Tensor& t, size_t first, size_t count, const real* in) {
    const size_t at = t.start + first;
    ops::round_to(params + at, in, count);
    if (master) std::copy(in, in + count, master + at);
}

void Zero::export_tensor(const Tensor& t, size_t first, size_t count, real* out) const {
    const size_t at = t.start + first;
    if (master) std::copy(master + at, master + at + count, out);
    else std::copy(params + at, params + at + count, out);
}

void Zero::init_weights(uint64_t seed) {
    static constexpr size_t kPiece = 8192;
    for (const Tensor& t : layout.tensors) {
        const bool random = t.param.init == Init::Normal || t.param.init == Init::Residual;
        const double std = t.param.init == Init::Residual ? 0.02 / std::sqrt(2.0 * d.L) : 0.02;
        const uint64_t stream = stream_of(t.name.c_str());
        const size_t used = t.param.used();
        #pragma omp parallel for num_threads(context.threads)
        for (size_t first = 0; first < used; first += kPiece) {
            real values[kPiece];
            const size_t count = std::min(kPiece, used - first);
            for (size_t i = 0; i < count; i++)
                values[i] = random ? real(std * normal(seed, stream, first + i))
                                   : real(t.param.init == Init::Ones);
            import_tensor(t, first, count, values);
        }
    }
}

}  // namespace PRECISION

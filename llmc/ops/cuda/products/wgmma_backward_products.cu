// Backward: dx = dout w; or dact = dout w, rounded, and dpre as activation_backward() computes it.
#include "llmc/ops/cuda/products/activation_math.h"
#include "llmc/ops/cuda/products/wgmma_product.h"

namespace PRECISION {
namespace cuda {

// As in wgmma_forward_products.cu; a gate's two gradients have one part of sums.
struct BackwardEpilogue {
    static constexpr ptx::Major right = ptx::Major::MN;
    static constexpr int parts = 1, ahead = 64;
    static constexpr bool biased = false, sums_columns = false;
};

struct StoredBackward : BackwardEpilogue {
    static constexpr int moved = 1;
    struct Read {};
    static __device__ __forceinline__ Read load(const FusedTensors&, int, int) { return {}; }
    static __device__ __forceinline__ void store(const FusedTensors& t, int row, int column,
                                                 const Pack (&dx)[1], Read) {
        dx[0].store_global(t.out + size_t(row) * t.width + column);
    }
};

template <class Formula> struct ActivatedBackward : BackwardEpilogue {
    static constexpr int moved = 2;
    static constexpr bool sums_columns = true;
    using Read = Pack;
    static __device__ __forceinline__ Read load(const FusedTensors& t, int row, int column) {
        return Pack::load_streaming(t.pre + size_t(row) * t.width + column);
    }
    static __device__ __forceinline__ Pack store(const FusedTensors& t, int row, int column,
                                                 const Pack (&dact)[1], const Pack& pre) {
        const Pack dpre = of_packs<ActBackward<Formula>>(dact[0], pre);
        dpre.store_global(t.out + size_t(row) * t.width + column);
        return dpre;
    }
};

template <class Formula> struct GatedBackward : BackwardEpilogue {
    static constexpr int moved = 4;
    using Read = GatedPacks;
    static __device__ __forceinline__ size_t place(const FusedTensors& t, int row, int column) {
        return size_t(row) * 2 * t.width + column;
    }
    static __device__ __forceinline__ Read load(const FusedTensors& t, int row, int column) {
        const floatX* const pre = t.pre + place(t, row, column);
        return {Pack::load_streaming(pre), Pack::load_streaming(pre + t.width)};
    }
    static __device__ __forceinline__ void store(const FusedTensors& t, int row, int column,
                                                 const Pack (&dact)[1], const GatedPacks& pre) {
        const GatedPacks d = gated_backward<Formula>(dact[0], pre);
        floatX* const dpre = t.out + place(t, row, column);
        d.gate.store_global(dpre), d.up.store_global(dpre + t.width);
    }
};

std::vector<FusedProduct> wgmma_backward_products() {
    std::vector<FusedProduct> all;
    add_products<StoredBackward>(all, Op::Input);
    add_products<ActivatedBackward<formulas::Gelu<Math>>>(all, Op::GeluInput);
    add_products<ActivatedBackward<formulas::Relu2<Math>>>(all, Op::Relu2Input);
    add_products<GatedBackward<formulas::Silu<Math>>>(all, Op::SwigluInput);
    return all;
}

}  // namespace cuda
}  // namespace PRECISION

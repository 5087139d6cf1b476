// Forward: pre = x w^T + bias, act = f(pre) of the rounded pre, as activation_forward() computes it.
#include "llmc/ops/cuda/products/activation_math.h"
#include "llmc/ops/cuda/products/wgmma_product.h"

namespace PRECISION {
namespace cuda {

// An epilogue has
//     parts     of the sums: 2 with a gate
//     moved     elements that it reads and writes, for each sum of a part
//     ahead     columns for which load() is called before the first store()
//     biased    adds a bias; sums_columns: store() returns what a bias's gradient sums
template <int Parts> struct ForwardEpilogue {
    static constexpr ptx::Major right = ptx::Major::K;
    static constexpr int parts = Parts, ahead = 32;
    static constexpr bool biased = true, sums_columns = false;
    struct Read {};
    static __device__ __forceinline__ Read load(const FusedTensors&, int, int) { return {}; }
};

struct StoredForward : ForwardEpilogue<1> {
    static constexpr int moved = 1;
    static __device__ __forceinline__ void store(const FusedTensors& t, int row, int column,
                                                 const Pack (&sum)[1], Read) {
        sum[0].store_global(t.out + size_t(row) * t.width + column);
    }
};

template <class Formula> struct ActivatedForward : ForwardEpilogue<1> {
    static constexpr int moved = 2;
    static __device__ __forceinline__ void store(const FusedTensors& t, int row, int column,
                                                 const Pack (&pre)[1], ForwardEpilogue<1>::Read) {
        const size_t at = size_t(row) * t.width + column;
        pre[0].store_global(t.pre + at);
        of_packs<ActForward<Formula>>(pre[0], pre[0]).store_global(t.out + at);
    }
};

template <class Formula> struct GatedForward : ForwardEpilogue<2> {
    static constexpr int moved = 3;
    static __device__ __forceinline__ void store(const FusedTensors& t, int row, int column,
                                                 const Pack (&pre)[2], ForwardEpilogue<2>::Read) {
        floatX* const to = t.pre + size_t(row) * 2 * t.width + column;
        pre[0].store_global(to), pre[1].store_global(to + t.width);
        gated<Formula>(pre[0], pre[1]).store_global(t.out + size_t(row) * t.width + column);
    }
};

std::vector<FusedProduct> wgmma_forward_products() {
    std::vector<FusedProduct> all;
    add_products<StoredForward>(all, Op::Forward);
    add_products<StoredForward>(all, Op::BiasForward);
    add_products<ActivatedForward<formulas::Gelu<Math>>>(all, Op::GeluForward);
    add_products<ActivatedForward<formulas::Relu2<Math>>>(all, Op::Relu2Forward);
    add_products<GatedForward<formulas::Silu<Math>>>(all, Op::SwigluForward);
    return all;
}

}  // namespace cuda
}  // namespace PRECISION

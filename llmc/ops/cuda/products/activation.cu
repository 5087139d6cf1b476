// f and f' are the formulas of base/numbers/activations.h. Rows of pre and dpre with a gate are (gate, up),
// 2F wide, and act = f(gate) up.
#include "llmc/ops/cuda/products/activation.h"

#include "llmc/ops/cuda/products/activation_math.h"

namespace PRECISION {
namespace cuda {

// A thread takes a pack of features of one row.
// FLOOR bytes = 3 N F sizeof(floatX)
template <class Formula, bool kAmaxes>
__global__ void __launch_bounds__(kElementwiseThreads)
gated_kernel(floatX* act, const floatX* pre, size_t count, int F, float* amaxes) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * Pack::size;
    Amax most;
    if (i < count) {
        const floatX* row = pre + i / F * 2 * F + i % F;
        const Pack gate = Pack::load_streaming(row), up = Pack::load_streaming(row + F);
        const Pack y = gated<Formula>(gate, up);
        y.store(act + i);
        most.see(y);
    }
    if constexpr (kAmaxes) raise_amax_of_block(amaxes, most);
}

// FLOOR bytes = 5 N F sizeof(floatX)
template <class Formula, bool kAmaxes>
__global__ void __launch_bounds__(kElementwiseThreads)
gated_backward_kernel(floatX* dpre, const floatX* dact, const floatX* pre, size_t count, int F,
                      float* amaxes) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * Pack::size;
    Amax most;
    if (i < count) {
        const size_t at = i / F * 2 * F + i % F;
        const Pack d = Pack::load_streaming(dact + i);
        const GatedPacks x = {Pack::load_streaming(pre + at), Pack::load_streaming(pre + at + F)};
        const GatedPacks dx = gated_backward<Formula>(d, x);
        dx.gate.store_global(dpre + at), dx.up.store_global(dpre + at + F);
        most.see(dx.gate), most.see(dx.up);
    }
    if constexpr (kAmaxes) raise_amax_of_block(amaxes, most);
}

static dim3 blocks_of_packs(size_t count) {
    return dim3(unsigned(div_up(count / Pack::size, kElementwiseThreads)));
}

template <class Formula, bool kGate, bool kAmaxes>
static void forward(floatX* act, const floatX* pre, size_t count, int F, float* amaxes) {
    if constexpr (kGate) {
        check_packs("activation: F", F);
        clear_amaxes(amaxes);
        launch(gated_kernel<Formula, kAmaxes>, blocks_of_packs(count), dim3(kElementwiseThreads), 0,
               {.bytes = 3. * double(count) * sizeof(floatX)}, act, pre, count, F, amaxes);
    } else {
        elementwise<ActForward<Formula>, kAmaxes>(act, pre, pre, count, amaxes);
    }
}

template <class Formula, bool kGate, bool kAmaxes>
static void backward(floatX* dpre, const floatX* dact, const floatX* pre, size_t count, int F,
                     float* amaxes) {
    if constexpr (kGate) {
        check_packs("activation: F", F);
        clear_amaxes(amaxes);
        launch(gated_backward_kernel<Formula, kAmaxes>, blocks_of_packs(count), dim3(kElementwiseThreads), 0,
               {.bytes = 5. * double(count) * sizeof(floatX)}, dpre, dact, pre, count, F, amaxes);
    } else {
        elementwise<ActBackward<Formula>, kAmaxes>(dpre, dact, pre, count, amaxes);
    }
}

void activation_forward(floatX* act, const floatX* pre, Activation f, int N, int F, float* amaxes) {
    if (walked(activation_forward_cost, f, N, F, amaxes != nullptr)) return;
    const size_t count = size_t(N) * size_t(F);
    with_formula<Math>(f, [&](auto formula, auto gate) {
        using Formula = decltype(formula);
        if (amaxes) forward<Formula, gate, true>(act, pre, count, F, amaxes);
        else forward<Formula, gate, false>(act, pre, count, F, nullptr);
    });
}

void activation_backward(floatX* dpre, const floatX* dact, const floatX* pre, Activation f, int N, int F,
                         float* amaxes) {
    if (walked(activation_backward_cost, f, N, F, amaxes != nullptr)) return;
    const size_t count = size_t(N) * size_t(F);
    with_formula<Math>(f, [&](auto formula, auto gate) {
        using Formula = decltype(formula);
        if (amaxes) backward<Formula, gate, true>(dpre, dact, pre, count, F, amaxes);
        else backward<Formula, gate, false>(dpre, dact, pre, count, F, nullptr);
    });
}

// ---------------------------------------------------------------------------------------------------------
// with a bias: what an epilogue of cuBLASLt does, where it is not the faster

// FLOOR bytes = (act ? 3 : 2) N OC sizeof(floatX) + OC sizeof(floatX)
template <bool WithGelu>
__global__ void __launch_bounds__(kElementwiseThreads)
add_bias_kernel(floatX* act, floatX* pre, const floatX* bias, size_t count, int OC) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * Pack::size;
    if (i >= count) return;
    Pack x = Pack::load_streaming(pre + i);
    const Pack b = Pack::load_cached(bias + i % OC);
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) x[k] = floatX(float(x[k]) + float(b[k]));
    x.store(pre + i);
    if constexpr (WithGelu) {
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) x[k] = floatX(formulas::Gelu<Math>::of(float(x[k])));
        x.store(act + i);
    }
}

template <bool WithGelu>
static void launch_add_bias(floatX* act, floatX* pre, const floatX* bias, int N, int OC) {
    check_packs("bias: OC", OC);
    const size_t count = size_t(N) * OC, packs = count / Pack::size;
    launch(add_bias_kernel<WithGelu>, dim3(unsigned(div_up(packs, kElementwiseThreads))),
           dim3(kElementwiseThreads), 0,
           {.bytes = ((WithGelu ? 3. : 2.) * double(count) + OC) * sizeof(floatX)}, act, pre, bias, count,
           OC);
}

void add_bias(floatX* out, const floatX* bias, int N, int OC) {
    launch_add_bias<false>(nullptr, out, bias, N, OC);
}
void add_bias_gelu(floatX* act, floatX* pre, const floatX* bias, int N, int OC) {
    launch_add_bias<true>(act, pre, bias, N, OC);
}

}  // namespace cuda
}  // namespace PRECISION

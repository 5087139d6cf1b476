// Room ops/cpu/products: products of matrices on CPUs, by oneDNN or by plain loops, with activations.
// Called through ops:: as decl/matmul.h, and by ops/cpu. The room knows sizes. It knows no layer.
//
// Matmuls by oneDNN of any version. A build without oneDNN computes nothing here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "llmc/base/numbers/dtype.h"

inline namespace onednn {

// C = A B (+ bias) (+ C).   (m, n) = (m, k) (k, n);  each may be columns of a wider matrix
struct Product {
    int64_t m, n, k;
    DType in, out;         // of A, B and bias; of C. Sums are in FP32
    bool a_transposed;     // A lies in memory as (k, m)
    bool b_transposed;     // B lies in memory as (n, k)
    bool bias;             // (n), added to every row
    bool accumulate;       // C is added to
    int64_t a_stride = 0;  // elements from row to row of A as it lies in memory; 0: dense
    int64_t b_stride = 0;  // of B
    int64_t c_stride = 0;  // of C
    bool operator==(const Product&) const = default;
};

// Whether oneDNN is the fastest way to products of this type on this CPU. FP32: wherever there is oneDNN.
// BF16: where the CPU multiplies BF16 faster than FP32. FP64: never. It asks the CPU, no clock: every run on
// a machine decides alike.
bool dnnl_computes(DType in);

bool bf16_is_fast();           // decides run.precision=auto
std::string matmul_library();  // "oneDNN 2.6.3", or empty

// Scratch of the product, in bytes. The first call for a product builds the code for later calls.
size_t dnnl_scratch(const Product& p, int threads);
size_t dnnl_built();           // products built so far, each thread's own
// What oneDNN allocates besides, while the product is computed: panels of A and B for each thread, where the
// CPU has no AVX-512 (its gemm:jit takes no scratchpad).
size_t dnnl_own_bytes(const Product& p, int threads);

struct ProductTensors {
    void* c;
    const void *a, *b, *bias;
};
void dnnl_product(const Product& p, const ProductTensors& t, std::byte* scratch, int threads);

}  // namespace onednn

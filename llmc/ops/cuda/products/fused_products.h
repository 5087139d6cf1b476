// Products in one kernel with what follows them: candidates beside cuBLASLt's (tuning/choices.h).
#pragma once
#include <vector>

#include "llmc/ops/cuda/tuning/choices.h"

namespace PRECISION {
namespace cuda {

struct FusedTensors {
    const floatX *left, *right;         // x or dout (N, K); w: forward (width, K), of a gate two such, else
                                        // (K, width)
    floatX *out, *pre;                  // out; act and pre; dx; dpre and pre, as in decl/matmul.h
    const floatX* bias;                 // forward, or null
    int N, width;                       // of sums; of a gate, features
    float* column_sums = nullptr;       // of dpre, or null: (tile_sum_rows(N), width), for add_columns()
};
struct FusedProduct {
    Op op;
    const char* name;                   // "wgmma_128x256": rows and columns of a tile
    bool (*supports)();                 // on this rank's device
    void (*run)(const FusedTensors& t, int K);
    bool sums_columns;                  // where FusedTensors asks
};
std::vector<FusedProduct> wgmma_forward_products();
std::vector<FusedProduct> wgmma_backward_products();

}  // namespace cuda
}  // namespace PRECISION

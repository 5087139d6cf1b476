// A matrix of a block and its products with activations and gradients, in floatX or by FP8 codes.
//
// run.products = fp8, per tensor and with the scale of the tensor at hand:
//
//     out = x w^T            x and w in E4M3
//     dx = dout w            dout in E5M2, w in E4M3
//     dw += dout^T x         in floatX: ops::matmul_backward_weight()
//
// Matrices of weights are coded once a step, in both layouts; a block may also come as codes. Activations and
// gradients are coded before each product. A scale is that of the whole tensor: where ranks
// have parts of it, they gather their amaxes. So codes are equal on every mesh. Norms and activations leave
// the amaxes of what they write; other inputs are read once more for theirs.
#pragma once
#include <array>
#include <vector>

#include "llmc/comm/axis.h"
#include "llmc/model/layout.h"
#include "llmc/ops/arena.h"
#include "llmc/ops/ops.h"

namespace PRECISION::inline model {

struct CodedMatrix { ops::Fp8Matrix w, transposed; };       // (OC, C), (C, OC): one scale
struct BlockCodes { CodedMatrix qkvw, attprojw, fcw, fcprojw; };

// Buffers for the codes of a product's input. Without run.products = fp8 all null.
struct InputCodes {
    uint8_t* codes;         // (N, the widest input)
    float* amaxes;          // (tp, ops::kFp8Parts)
    float* inverse;         // (1)
    // Those of this rank's part of the tensor, before they are gathered.
    float* own_amaxes(const Axis& tp) const {
        return amaxes ? amaxes + size_t(tp.index) * size_t(ops::kFp8Parts) : nullptr;
    }
};
void add_input_codes(ArenaOf arena, InputCodes& s, const Dims& d, size_t N, const Axis& tp);

// The matrix of a linear layer and how tp cuts it: Rows, so its output, or Cols, so its input.
struct Linear {
    const floatX *w, *bias;         // (OC, C); (OC), or null
    int C, OC;                      // of this rank
    Split split;
    const CodedMatrix* codes;       // null: products in floatX
};

// The input's amaxes: a pass over the input finds them, or the op that wrote this rank's part of it has left
// them in InputCodes::own_amaxes().
enum class Amaxes { Pass, Left };

// What a product needs beside its tensors.
struct LinearCall {
    const InputCodes& inputs;
    const Axis& tp;
    int N;

    // out (N, OC) = x w^T + bias
    void forward(floatX* out, const floatX* x, const Linear& l, Amaxes of_x) const;
    // act (N, F) = f(pre), pre (N, OC) = x w^T + bias. Leaves the amaxes of act.
    void forward(floatX* act, floatX* pre, const floatX* x, const Linear& l, Amaxes of_x, Activation f,
                 int F) const;
    // dx (N, C) = dout w
    void backward_input(floatX* dx, const floatX* dout, const Linear& l, Amaxes of_dout) const;
    // dpre: gradient of pre given dact (N, C) = dout w. Leaves the amaxes of dpre.
    // dbias, or null: gradient of the bias in pre.
    void backward_input(floatX* dpre, floatX* dact, const floatX* dout, const Linear& l, Amaxes of_dout,
                        const floatX* pre, Activation f, real* dbias) const;
};

// Names of params.h of the matrices with codes.
std::vector<std::string> coded_names();
inline constexpr size_t kCodedMatrices = sizeof(BlockCodes) / sizeof(CodedMatrix);

// A block that is gathered as codes: where its matrices lie in its bucket, and what else it has.
struct CodedPlace {
    std::array<Interval, kCodedMatrices> matrices;  // elements of the bucket
    std::vector<size_t> others;                     // Layout::block_at without the matrices

    CodedPlace(const Layout& layout, int l);
    BlockTensors<floatX> rest(floatX* bucket) const;            // matrices: null
    // Of the bucket's bytes. inverses: (matrices). Without the transposed matrices.
    BlockCodes codes(uint8_t* bucket, float* inverses) const;
};

// The codes of weights: of all blocks of a rank, or, where weights are gathered block by block, of the block
// in use.
struct CodedBlocks {
    struct Slot {
        BlockCodes codes = {};
        int block = -1;
        uint64_t version = 0;       // of the weights that were coded
        bool transposed = false;    // its matrices are those of the block too
    };
    std::vector<Slot> slots;        // block l is in slot l % slots
    bool gathered = false;          // blocks come as codes: a slot has the transposed matrices alone

    void add_to(ArenaOf weights, const Dims& d);
    // The codes of block l, made where the slot has others; null without slots. version changes when weights
    // do. codes: of a gathered block, else null. backward: also in the other layout.
    const BlockCodes* of(int l, const BlockTensors<floatX>& w, const BlockCodes* codes, bool backward,
                         uint64_t version, const Dims& d, const InputCodes& s, const Axis& tp);
};

}  // namespace PRECISION::model

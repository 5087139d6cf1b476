// Weights, gradients and optimizer state in flat buffers, and how they are spread over the ranks (ZeRO:
// Rajbhandari et al. 2019, arXiv 1910.02054).
//
// The model asks for weights and says when gradients are done; what that means is decided here and nowhere
// else. In this version everything is whole on the one rank (stage 0): weights are pointers, and done has
// nothing to do.
#pragma once
#include "llmc/comm/axis.h"
#include "llmc/model/gpt.h"

namespace PRECISION {

// Bit-equal to floatX where masters would only be a copy.
inline constexpr bool kMasterIsParam = sizeof(floatX) == sizeof(real);

struct Zero {
    Dims d;
    Layout layout;
    Mesh mesh;

    floatX* params;                    // (layout.size())
    real* grads = nullptr;
    real *master = nullptr, *m = nullptr, *v = nullptr;

    Zero(const Dims& dims, const Mesh& mesh) : d(dims), layout(make_layout(dims)), mesh(mesh) {}

    void add_weights_to(Arena& arena);
    void add_training_to(Arena& arena);      // gradients and optimizer state

    EmbedTensors<floatX> embed() const { return bind_embed(params + layout.embed(), d); }
    BlockTensors<floatX> block(int l) const { return bind_block(params + layout.block(l), d); }
    FinalTensors<floatX> final() const { return bind_final(params + layout.final(), d); }
    EmbedTensors<real> embed_grads() const { return bind_embed(grads + layout.embed(), d); }
    BlockTensors<real> block_grads(int l) const { return bind_block(grads + layout.block(l), d); }
    FinalTensors<real> final_grads() const { return bind_final(grads + layout.final(), d); }

    void done_embed() {}
    void done_block(int /*l*/) {}
    void done_final() {}

    void clear_grads() { ops::set_zero(grads, layout.size() * sizeof(real)); }

    // Weights from the table's initialisation: a function of (seed, tensor, index) alone.
    void init_weights(uint64_t seed);

    // `count` elements of a tensor from `first` on, padding rows left out: masters where there are any.
    void export_tensor(const Tensor& t, size_t first, size_t count, real* out) const;
    void import_tensor(const Tensor& t, size_t first, size_t count, const real* in);
};

}  // namespace PRECISION

// The whole model on one rank: embedding, blocks, final norm, tied head; forward above backward.
//
// Weights and gradients come from the provider of train/, which knows how they are spread over ranks:
//
//     embed(), block(l), final()                      weights, valid until the next but one is asked for
//     embed_grads(), block_grads(l), final_grads()    where to add gradients
//     done_embed(), done_block(l), done_final()       this micro-batch's gradients of it are complete
//
// so that no floor below train/ knows of data parallelism, and no call is virtual.
#pragma once
#include <algorithm>

#include "llmc/model/block.h"
#include "llmc/model/layout.h"

namespace PRECISION {

// A micro-batch: inputs and targets, (B, T) each.
struct Batch {
    const int32_t* tokens;
    const int32_t* targets;
    int B, T;
};

struct GptShape {
    Dims d;
    int B, T;             // largest micro-batch
    Recompute level = Recompute::None;
    bool backward = true;
};

struct Gpt {
    GptShape shape;
    Dims d;
    Axis tp;
    Block block;
    int chunk;            // rows of logits in memory at once

    std::vector<BlockActs> acts;
    BlockScratch scratch;
    floatX* xf;           // (n, C)       the residual stream after the last block
    floatX* lnf;          // (n, C)
    real *lnf_mean, *lnf_rstd;            // (n)
    floatX* logits;       // (chunk, Vp)
    real* losses;         // (N)
    double* loss;         // sum of losses since clear_loss()
    floatX* dx;           // (n, C)       gradient of the residual stream
    real* dtokens;        // (Vp, C)      fp64 only, while apart: gradient of wte as embedding
    bool apart = false;   // between begin_step() and end_step()

    // wte's gradient has two parts, from the head and from the embedding. In fp64 a step sums each in the
    // order of its tokens and adds them at its end, so that the sum is bit for bit the same however the batch
    // is cut into micro-batches.
    static constexpr bool kApart = sizeof(floatX) == sizeof(double);

    Gpt(const GptShape& shape, const Mesh& mesh);
    Gpt(const Gpt&) = delete;

    void add_to(Arena& arena);      // asks for memory
    void ready();                   // after Arena::allocate()
    ops::ScratchSizes scratch_sizes() const;

    void begin_step();              // of several calls of backward(); without the two, each call is complete
    void end_step(real* dwte);
    void clear_loss() { ops::set_zero(loss, sizeof *loss); }

    // Up to the final norm, keeping what backward needs.
    template <class Weights> void forward(Weights& weights, const Batch& b);

    // Adds the losses of the micro-batch that forward() has seen.
    template <class Weights> void head_loss(Weights& weights, const Batch& b);

    // The same and the gradients of all parameters, each token's loss weighted by dloss.
    template <class Weights> void backward(Weights& weights, const Batch& b, real dloss);

private:
    int slice(const Batch& b) const { return b.B * b.T / tp.size; }
    ops::Encoder encoder(const Batch& b) const {
        return {.tokens = b.tokens, .v0 = 0, .V = d.Vp, .N = b.B * b.T, .T = b.T, .C = d.C, .t0 = 0};
    }
    template <class Weights> void head_backward(Weights& weights, const Batch& b, real dloss);
};

template <class Weights> void Gpt::forward(Weights& weights, const Batch& b) {
    const Span span{.B = b.B, .T = b.T};
    const int n = slice(b);
    const auto embed = weights.embed();
    floatX* x = tp.whole(acts[0].x, scratch.h);
    ops::encoder_forward(x, embed.wte, embed.wpe, encoder(b));
    Stream stream{.x = tp.reduce_scatter(acts[0].x, x, size_t(n) * d.C)};

    for (int l = 0; l < d.L; l++) stream = block.forward(weights.block(l), acts[l], stream, scratch, span);

    const auto w = weights.final();
    ops::layernorm_forward({.x1 = xf, .y = lnf, .mean = lnf_mean, .rstd = lnf_rstd,
                            .x = stream.x, .r = stream.r, .bias = stream.bias, .w = w.lnfw, .b = w.lnfb},
                           n, d.C);
}

template <class Weights> void Gpt::head_loss(Weights& weights, const Batch& b) {
    const int N = b.B * b.T;
    const floatX* wte = weights.embed().wte;
    const floatX* h = tp.all_gather(scratch.h, lnf, size_t(slice(b)) * d.C);
    for (int n0 = 0; n0 < N; n0 += chunk) {
        const int rows = std::min(chunk, N - n0);
        ops::matmul_forward(logits, h + size_t(n0) * d.C, wte, nullptr, rows, d.C, d.Vp);
        ops::classifier_forward(losses + n0, logits, b.targets + n0, rows, d.V, d.Vp);
    }
    ops::sum_in_order(loss, losses, size_t(N));
}

// The chunk's logits become their gradients in place, and are used while warm. dlnf is in scratch.dh.
template <class Weights> void Gpt::head_backward(Weights& weights, const Batch& b, real dloss) {
    const int N = b.B * b.T, C = d.C;
    const floatX* wte = weights.embed().wte;
    real* dwte = weights.embed_grads().wte;
    const floatX* h = tp.all_gather(scratch.h, lnf, size_t(slice(b)) * C);
    for (int n0 = 0; n0 < N; n0 += chunk) {
        const int rows = std::min(chunk, N - n0);
        const size_t at = size_t(n0) * C;
        ops::matmul_forward(logits, h + at, wte, nullptr, rows, C, d.Vp);
        ops::classifier_forward_backward(losses + n0, logits, b.targets + n0, dloss, rows, d.V, d.Vp);
        ops::matmul_backward_weight(dwte, logits, h + at, rows, C, d.Vp);
        ops::matmul_backward_input(scratch.dh + at, logits, wte, rows, C, d.Vp);
    }
    ops::sum_in_order(loss, losses, size_t(N));
}

template <class Weights> void Gpt::backward(Weights& weights, const Batch& b, real dloss) {
    const Span span{.B = b.B, .T = b.T};
    const int n = slice(b);
    const size_t nC = size_t(n) * d.C;
    head_backward(weights, b, dloss);

    ops::set_zero(dx, nC * sizeof(floatX));
    const auto dfinal = weights.final_grads();
    const floatX* dlnf = tp.reduce_scatter(scratch.slice, scratch.dh, nC);
    ops::layernorm_backward(dx, dfinal.lnfw, dfinal.lnfb, dlnf, xf, weights.final().lnfw, lnf_mean, lnf_rstd,
                            n, d.C);
    weights.done_final();

    for (int l = d.L - 1; l >= 0; l--) {
        const BlockWeights w = weights.block(l);
        block.recompute(w, acts[l], scratch, span);
        block.backward(w, weights.block_grads(l), acts[l], dx, scratch, span);
        weights.done_block(l);
    }

    const auto dembed = weights.embed_grads();
    const floatX* dout = tp.all_gather(scratch.h, dx, nC);
    ops::encoder_backward(apart ? dtokens : dembed.wte, dembed.wpe, dout, encoder(b));
    weights.done_embed();
}

}  // namespace PRECISION

// Room model: one rank's part of the model: tables of parameters and activations, the block, the head;
// generation and scoring. Called by train/.
// The room knows the axes tp and cp. It knows no other axis of the mesh, no schedule and no
// optimizer; depth.h sets settings of all three.
//
// The legend of every shape comment. Dimensions that tp or cp cuts have this rank's size.
//
//     L   blocks                         B   sequences of a micro-batch
//     C   channels                       T   tokens of a sequence; maxT: positions of the model
//     NH  heads here                     N   tokens of a micro-batch, B T
//     KV  heads of keys and values here  n   tokens of a rank's slice, N / tp rounded up
//     D   channels of a head             V   vocabulary;  Vp: rows here, a multiple of 128;
//     A   NH D;  K: KV D;  W: A + 2K         v0: the first row here
//     F   width of the feed-forward here;  P: its width before the activation, 2F with a gate, else F
//
// On one rank of GPT-2 KV = NH, A = K = C, P = F = 4C, v0 = 0, and Vp is V rounded up. The last ranks of tp
// may hold rows past the vocabulary, even only such rows.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "llmc/base/config/model_config.h"
#include "llmc/comm/axis.h"

inline namespace model {

// Rotary positions (rotary_table.h).
struct RopeKind {
    bool used = false;          // in place of learned positions
    double theta = 1e4, still = 0;
    RopeScaling scaling = {};
};

// The kind of model: which rows the tables of params.h and acts.h have, and which op does each job (norm,
// positions, activation). The defaults are GPT-2's.
struct ModelKind {
    NormKind norm = NormKind::LayerNorm;
    bool gain = true;           // of norms
    bool bias = true;           // of matrices, and of norms that have a shift
    bool qkv_bias = true;       // of the matrix of queries, keys and values
    bool tied = true;           // the head is wte
    bool embed_norm = false;    // right after the embedding
    bool shortcut = false;      // from the embedding into each block
    bool values = false;        // embeddings of values in every other block
    bool documents = false;     // a token of a training row sees its own document alone
    InitKind init = InitKind::Gpt2;
    double softcap = 0;         // of logits; 0: none
    SoftcapKind softcap_kind = SoftcapKind::Tanh;
    double eps = 1e-5;
    double scale = 0;           // of attention; 0: D^-1/2
    std::vector<int> windows = {0};     // of attention, repeated over the layers; 0: all
    Activation activation = Activation::Gelu;
    RopeKind rope = {};
    QkNorm qk_norm = QkNorm::None;
    bool qk_gain = false;

    bool rotary() const { return rope.used || qk_norm != QkNorm::None; }

    bool shift() const { return bias && has_shift(norm); }
    int window(int layer) const { return windows[size_t(layer) % windows.size()]; }
};

struct Dims {
    int L, C, NH, KV, D, A, K, W, F, V, Vp, v0, maxT;
    int tp, tp_index;
    ModelKind kind = {};

    // Whether block l of the whole model has a value embedding.
    bool has_values(int l) const { return kind.values && (L - 1 - l) % 2 == 0; }
    int P() const { return has_gate(kind.activation) ? 2 * F : F; }
    int vocab_here() const { return std::clamp(V - v0, 0, Vp); }
};

// REQUIRES: settings.vocab is resolved, tp.size divides kv_heads and ffn_channels.
inline Dims make_dims(const ModelConfig& settings, const Axis& tp = {}) {
    const ModelConfig m = with_sizes(settings);
    const int D = m.head_channels, NH = m.heads / tp.size, KV = m.kv_heads / tp.size;
    const int Vp = (m.vocab + 128 * tp.size - 1) / (128 * tp.size) * 128;
    return {.L = m.layers, .C = m.channels, .NH = NH, .KV = KV, .D = D, .A = NH * D, .K = KV * D,
            .W = (NH + 2 * KV) * D, .F = m.ffn_channels / tp.size,
            .V = m.vocab, .Vp = Vp, .v0 = tp.index * Vp, .maxT = m.context,
            .tp = tp.size, .tp_index = tp.index,
            .kind = {.norm = m.norm, .gain = m.norm_gain, .bias = m.bias,
                     .qkv_bias = m.bias || m.qkv_bias, .tied = m.tied,
                     .embed_norm = m.embed_norm, .shortcut = m.shortcut != Shortcut::None,
                     .values = m.value_embeddings != ValueEmbeddings::None,
                     .documents = m.document_mask, .init = m.init_kind,
                     .softcap = m.softcap, .softcap_kind = m.softcap_kind,
                     .eps = m.norm_eps, .scale = m.attention_scale, .windows = m.window,
                     .activation = m.activation,
                     .rope = {.used = m.position == PositionKind::Rope, .theta = m.rope_theta,
                              .still = m.rope_still, .scaling = m.rope_scaling},
                     .qk_norm = m.qk_norm, .qk_gain = m.qk_norm != QkNorm::None && m.qk_gain}};
}

}  // namespace model

// The section `model` of config.h: size and kind of the model. The defaults are GPT-2's.
#pragma once
#include <string>
#include <vector>

#include "llmc/base/config/choice.h"
#include "llmc/base/config/visit.h"

inline namespace config {

// RoPE scaling: positions rotate slower, for a context longer than that of the first training. The formula of
// each kind stands in model/rotary_table.h. Numbers that a kind does not have are those of the defaults.
struct RopeScaling {
    RopeScalingKind kind = RopeScalingKind::None;
    double factor = 8, low = 1, high = 4;
    int context = 8192;             // tokens of a sequence in the first training
    double beta_fast = 32, beta_slow = 1;       // rotations over `context`
    double attention = 0;           // factor of cos and sin; 0: 0.1 ln(factor) + 1

    bool used() const { return kind != RopeScalingKind::None; }
    bool operator==(const RopeScaling&) const = default;

    // f(key, member, whether it must be named) for each number of the kind. Where files leave YaRN's last
    // three out, the paper's values are meant; of the others a default would be a guess about weights.
    template <class F> void visit(F&& f) {
        using enum RopeScalingKind;
        if (kind != None) f("factor", factor, true);
        if (kind == Llama3) f("low", low, true);
        if (kind == Llama3) f("high", high, true);
        if (kind == Llama3 || kind == Yarn) f("context", context, true);
        if (kind == Yarn) f("beta_fast", beta_fast, false);
        if (kind == Yarn) f("beta_slow", beta_slow, false);
        if (kind == Yarn) f("attention", attention, false);
    }
};

struct ModelConfig {
    int layers = 12, heads = 12, channels = 768, context = 1024, vocab = 0;
    std::string init = "random";
    int depth = 0;
    Choice<NormKind> norm = NormKind::LayerNorm;
    bool norm_gain = true;
    double norm_eps = 1e-5;
    bool bias = true, qkv_bias = false;
    Choice<PositionKind> position = PositionKind::Learned;
    double rope_theta = 1e4, rope_still = 0;
    RopeScaling rope_scaling = {};
    Choice<QkNorm> qk_norm = QkNorm::None;
    bool qk_gain = true;
    double attention_scale = 0;
    std::vector<int> window = {0};
    int kv_heads = 0, head_channels = 0;
    Choice<Activation> activation = Activation::Gelu;
    int ffn_channels = 0;
    bool tied = true;
    double softcap = 0;
    Choice<SoftcapKind> softcap_kind = SoftcapKind::Tanh;
    bool embed_norm = false;
    Choice<Shortcut> shortcut = Shortcut::None;
    Choice<ValueEmbeddings> value_embeddings = ValueEmbeddings::None;
    bool document_mask = false;
    Choice<InitKind> init_kind = InitKind::Gpt2;

    template <class F> void visit(F&& f) {
        f("layers", layers, "transformer blocks (L)", range(1, 1024));
        f("heads", heads, "attention heads (NH)", range(1, 4096));
        f("channels", channels, "width of the residual stream (C)", range(1, 1 << 20));
        f("context", context, "tokens of a sequence (T)", range(1, 1 << 24));
        f("vocab", vocab, "token ids (V); 0: the tokenizer's, or the shards'", range(0, 1 << 24));
        f("init", init, "random, or weights to start from: a folder step_N, or a "
          "model of another program (--export has the formats). They set every model.* that is not named");
        f("depth", depth, "a dial: layers, channels, heads, batch, steps and learning rates by the rules of "
          "scripts/nano.json, where they are not named; 0: off", range(0, 1024));
        f("norm", norm, "of the stream before attention, feed-forward and head");
        f("norm_gain", norm_gain, "a learned factor for each channel of a norm");
        f("norm_eps", norm_eps, "added to the variance, or of rmsnorm to the mean square", range(1e-30, 1));
        f("bias", bias, "of all matrices of blocks, of layernorm, and of a head of its own");
        f("qkv_bias", qkv_bias, "of the matrices of queries, keys and values, where model.bias is false");
        f("position", position, "learned: an embedding; rope: rotation of queries and keys");
        f("rope_theta", rope_theta, "base of the angles: pair i of a head's channels rotates by "
          "theta^(-2i/D) from token to token", range(1e-3, 1e12));
        f("rope_still", rope_still, "fraction of channel pairs, of lowest frequency, without rotation; the m "
          "others rotate by theta^(-i/(m-1))", half_open(0, 1));
        f("rope_scaling", rope_scaling, "slower rotation for a context longer than that of the first "
          "training: none, or by llama3, linear, yarn");
        f("qk_norm", qk_norm, "rmsnorm of each head's queries and keys, before or after their rotation");
        f("qk_gain", qk_gain, "a learned factor for each channel of a qk_norm");
        f("attention_scale", attention_scale, "factor of the scores; 0: 1 / root of a head's channels",
          range(0, 1e3));
        f("window", window, "tokens that a token attends to, itself the last; a list is repeated over the "
          "layers; 0: all");
        f("kv_heads", kv_heads, "heads of keys and values, each shared by equally many of model.heads; 0: "
          "model.heads", range(0, 4096));
        f("head_channels", head_channels, "channels of a head (D); 0: model.channels / model.heads",
          range(0, 1 << 16));
        f("activation", activation, "of the feed-forward layer; relu2: the square of relu");
        f("ffn_channels", ffn_channels, "width of the feed-forward layer; 0: 4 model.channels",
          range(0, 1 << 20));
        f("tied", tied, "the head is the token embedding; false: a matrix of its own");
        f("softcap", softcap, "bound c of the logits; 0: none", range(0, 1e6));
        f("softcap_kind", softcap_kind, "tanh: c tanh(l / c); sqrt: c l / sqrt(l^2 + c^2)");
        f("embed_norm", embed_norm, "a norm right after the embedding, with gain and shift as other norms");
        f("shortcut", shortcut, "x0: before block l the stream becomes r x + z x0; x0: the embedded tokens, "
          "r and z: learned, at the start 1.15 - 0.1 l / (layers - 1) and 0.2 - 0.15 l / (layers - 1), as in "
          "nanochat");
        f("value_embeddings", value_embeddings, "alternate: in every other block, the last included, values "
          "are v + 3 sigmoid(h[:12] Wg) E[token] for each head of keys and values; h: the normed input, Wg: "
          "zero at the start, E: (vocabulary, channels of all these heads), its deviation 1 / root of "
          "channels with init_kind unit, as in nanochat");
        f("document_mask", document_mask, "in training a token attends to its own document alone, whose "
          "positions begin at 0; text is generated as one document");
        f("init_kind", init_kind, "random weights. gpt2: deviation 0.02, of projections into the stream "
          "0.02 / root of 2 layers; unit: embeddings 1, matrices 1 / root of their inputs, projections into "
          "the stream and a head of its own 0");
    }
};

// Whether model.init asks for random weights.
inline bool starts_random(const std::string& init) { return init == "random"; }

// Whether a key of section `model` concerns training alone. A file of weights has no such key.
inline bool is_of_training(const std::string& key) {
    return key == "init" || key == "init_kind" || key == "document_mask";
}

// Whether block l has a value embedding: every other block, the last included.
inline bool has_values(const ModelConfig& m, int l) {
    return m.value_embeddings == ValueEmbeddings::Alternate && (m.layers - 1 - l) % 2 == 0;
}

// m with sizes in place of the zeros of kv_heads, head_channels and ffn_channels.
inline ModelConfig with_sizes(ModelConfig m) {
    if (m.kv_heads == 0) m.kv_heads = m.heads;
    if (m.head_channels == 0) m.head_channels = m.channels / m.heads;
    if (m.ffn_channels == 0) m.ffn_channels = 4 * m.channels;
    return m;
}

// Names of a model's sizes in some file, for messages.
struct ShapeKeys {
    const char *layers = "model.layers", *heads = "model.heads", *channels = "model.channels",
               *context = "model.context", *vocab = "model.vocab";
};
// Why the limits of the settings exclude the shape; empty: the shape is valid. REQUIRES: vocab is resolved.
std::string wrong_shape(const ModelConfig& shape, const ShapeKeys& keys);
// Why rules between the settings of the model exclude m; empty: m is valid. REQUIRES: each setting is within
// its own limits.
std::string wrong_model(const ModelConfig& m, const ShapeKeys& keys);

}  // namespace config

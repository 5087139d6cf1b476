// The section `model` of config.h: size and kind of the model. The defaults are GPT-2's.
#pragma once
#include <string>

#include "llmc/base/config/choice.h"
#include "llmc/base/config/visit.h"

struct ModelConfig {
    int layers = 12, heads = 12, channels = 768, context = 1024, vocab = 0;
    std::string init = "random";
    Choice<NormKind> norm = NormKind::LayerNorm;
    bool norm_gain = true;
    double norm_eps = 1e-5;
    bool bias = true;
    double attention_scale = 0;
    Choice<Activation> activation = Activation::Gelu;
    int ffn_channels = 0;

    template <class F> void visit(F&& f) {
        f("layers", layers, "transformer blocks (L)", range(1, 1024));
        f("heads", heads, "attention heads (NH); they divide model.channels", range(1, 4096));
        f("channels", channels, "width of the residual stream (C)", range(1, 1 << 20));
        f("context", context, "tokens of a sequence (T)", range(1, 1 << 24));
        f("vocab", vocab, "token ids (V); 0: the tokenizer's, or the shards'", range(0, 1 << 24));
        f("init", init, "random, or weights to start from: a folder step_N, or a "
          "model of another program (--export has the formats). They set every model.* that is not named");
        f("norm", norm, "of the stream before attention, feed-forward and head");
        f("norm_gain", norm_gain, "a learned factor for each channel of a norm");
        f("norm_eps", norm_eps, "added to the variance, or of rmsnorm to the mean square", range(1e-30, 1));
        f("bias", bias, "of all matrices of blocks, and of layernorm");
        f("attention_scale", attention_scale, "factor of the scores; 0: 1 / root of a head's channels",
          range(0, 1e3));
        f("activation", activation, "of the feed-forward layer; relu2: the square of relu");
        f("ffn_channels", ffn_channels, "width of the feed-forward layer; 0: 4 model.channels",
          range(0, 1 << 20));
    }
};

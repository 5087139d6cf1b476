// Kinds of models for tests of whole models, on either backend.
#pragma once
#include <algorithm>

#include "llmc/base/config/model_config.h"

// Kinds of models, by the settings that differ from GPT-2's. kv_heads: heads that share one of keys.
inline const ModelConfig kKinds[] = {
    {},
    {.norm = NormKind::RmsNorm, .norm_eps = 1e-6, .bias = false},
    {.norm = NormKind::RmsNorm, .norm_gain = false, .norm_eps = 1e-2},
    {.norm_gain = false, .bias = false, .attention_scale = 0.5, .activation = Activation::Relu2,
     .ffn_channels = 24},
    {.norm = NormKind::RmsNorm, .window = {3}, .activation = Activation::Swiglu, .ffn_channels = 36},
    {.norm = NormKind::RmsNorm, .bias = false, .qkv_bias = true, .position = PositionKind::Rope,
     .rope_scaling = {.kind = RopeScalingKind::Yarn, .factor = 3, .context = 20, .beta_fast = 2},
     .kv_heads = 2, .activation = Activation::Swiglu},                                          // Qwen2
    {.kv_heads = 2, .head_channels = 24, .embed_norm = true},
    {.norm = NormKind::RmsNorm, .norm_eps = 1e-6, .bias = false, .position = PositionKind::Rope,
     .rope_theta = 1e2, .rope_scaling = {RopeScalingKind::Llama3, 4, 1, 3, 20}, .qk_norm = QkNorm::Before,
     .window = {5, 0, 8}, .kv_heads = 2, .head_channels = 20, .activation = Activation::Swiglu},   // Qwen3
    {.norm = NormKind::RmsNorm, .norm_gain = false, .bias = false, .position = PositionKind::Rope,
     .qk_norm = QkNorm::After, .qk_gain = false, .kv_heads = 2, .head_channels = 8,
     .activation = Activation::Relu2, .tied = false, .softcap = 2, .embed_norm = true},         // NanoChat
    {.norm = NormKind::RmsNorm, .position = PositionKind::Rope, .rope_theta = 1024, .rope_still = 0.5,
     .qk_norm = QkNorm::After, .attention_scale = 0.12, .activation = Activation::Relu2, .tied = false,
     .softcap = 2, .softcap_kind = SoftcapKind::Sqrt, .embed_norm = true,
     .init_kind = InitKind::Unit},                              // `simple`, but for its norm of q and k
    {.norm = NormKind::RmsNorm, .norm_gain = false, .bias = false, .position = PositionKind::Rope,
     .qk_norm = QkNorm::After, .qk_gain = false, .window = {5, 0}, .kv_heads = 2, .head_channels = 8,
     .activation = Activation::Relu2, .tied = false, .softcap = 2, .embed_norm = true,
     .shortcut = Shortcut::X0, .value_embeddings = ValueEmbeddings::Alternate},                 // nanochat
    {.shortcut = Shortcut::X0, .value_embeddings = ValueEmbeddings::Alternate},
    {.norm = NormKind::RmsNorm, .norm_eps = 1.2e-7, .position = PositionKind::Rope, .rope_theta = 1024,
     .rope_still = 0.5, .qk_norm = QkNorm::Before, .qk_gain = false, .attention_scale = 0.12,
     .activation = Activation::Relu2, .tied = false, .softcap = 2, .softcap_kind = SoftcapKind::Sqrt,
     .embed_norm = true, .init_kind = InitKind::Unit},                                          // `simple`
};
// The kind in place of a model's own, with the model's sizes; the heads are those of keys.
inline ModelConfig of_kind(const ModelConfig& kind, const ModelConfig& sizes) {
    ModelConfig m = kind;
    m.layers = sizes.layers, m.channels = sizes.channels;
    m.heads = sizes.heads * std::max(1, kind.kv_heads), m.kv_heads = kind.kv_heads ? sizes.heads : 0;
    m.context = sizes.context, m.vocab = sizes.vocab;
    return m;
}

// The architectures of llama.cpp that this program reads and writes: a table each.
#include "llmc/train/save/formats/format_gguf.h"

inline namespace formats {

using enum FormatKey::Use;

static ForeignKind gpt2_kind() {
    return {
        .name = "GPT-2 of llama.cpp", .id = "gpt2", .blocks = "blk.",
        .tensors = {
            {"wte", "token_embd.weight"}, {"wpe", "position_embd.weight"},
            {"ln1w", "attn_norm.weight"}, {"ln1b", "attn_norm.bias"},
            {"qkvw", "attn_qkv.weight"}, {"qkvb", "attn_qkv.bias"},
            {"attprojw", "attn_output.weight"}, {"attprojb", "attn_output.bias"},
            {"ln2w", "ffn_norm.weight"}, {"ln2b", "ffn_norm.bias"},
            {"fcw", "ffn_up.weight"}, {"fcb", "ffn_up.bias"},
            {"fcprojw", "ffn_down.weight"}, {"fcprojb", "ffn_down.bias"},
            {"lnfw", "output_norm.weight"}, {"lnfb", "output_norm.bias"}},
        .keys = {{"gpt2.context_length", "context"}, {"gpt2.embedding_length", "channels"},
                 {"gpt2.feed_forward_length", "ffn_channels"}, {"gpt2.block_count", "layers"},
                 {"gpt2.attention.head_count", "heads"},
                 {"gpt2.attention.layer_norm_epsilon", "norm_eps"}, {"gpt2.vocab_size", "vocab"}},
        .others = {}, .fixed = {},
        .two_heads = true};         // not every version of llama.cpp takes the head from the embedding
}

// Keys of Llama and its successors. The strings live as long as the table.
#define LLAMA_KEYS(ARCH)                                                                                   \
    {{ARCH ".context_length", "context"}, {ARCH ".embedding_length", "channels"},                          \
     {ARCH ".feed_forward_length", "ffn_channels"}, {ARCH ".block_count", "layers"},                       \
     {ARCH ".attention.head_count", "heads"}, {ARCH ".attention.head_count_kv", "kv_heads", {0}},          \
     {ARCH ".attention.key_length", "head_channels", {0}},                                                 \
     {ARCH ".attention.value_length", "head_channels", {}, Write},                                         \
     {ARCH ".rope.dimension_count", "head_channels", {}, Write},                                           \
     {ARCH ".attention.layer_norm_rms_epsilon", "norm_eps"}, {ARCH ".rope.freq_base", "rope_theta", {1e4}},\
     {ARCH ".vocab_size", "vocab"},                                                                        \
     {ARCH ".rope.scaling.type", nullptr, {}, Read},                 /* these five: rotary_gguf.cpp */     \
     {ARCH ".rope.scaling.factor", nullptr, {}, Read}, {ARCH ".rope.scale_linear", nullptr, {}, Read},     \
     {ARCH ".rope.scaling.attn_factor", nullptr, {}, Read},                                                \
     {ARCH ".rope.scaling.original_context_length", nullptr, {}, Read},                                    \
     {ARCH ".rope.scaling.yarn_beta_fast", nullptr, {32.0}, Read},   /* not read by all of llama.cpp: */   \
     {ARCH ".rope.scaling.yarn_beta_slow", nullptr, {1.0}, Read},    /* values as without the key */       \
     {ARCH ".rope.scaling.yarn_ext_factor", nullptr, {1.0, -1.0}, Read},                                   \
     {ARCH ".rope.scaling.yarn_attn_factor", nullptr, {1.0, -1.0}, Read},                                  \
     {ARCH ".rope.scaling.yarn_log_multiplier", nullptr, {0.0}, Read},                                     \
     {ARCH ".rope.scaling.finetuned", nullptr, {}, Read},            /* a remark */                        \
     {ARCH ".attention.causal", nullptr, {true}, Read}, {ARCH ".attention.scale", nullptr, {0.0}, Read},   \
     {ARCH ".expert_count", nullptr, {0}, Read}, {ARCH ".expert_used_count", nullptr, {}, Read},           \
     {ARCH ".tensor_data_layout", nullptr, {}, Read}, {ARCH ".pooling_type", nullptr, {}, Read},           \
     {ARCH ".logit_scale", nullptr, {1.0, 0.0}, Read},                                                     \
     {ARCH ".attention.sliding_window", nullptr, {0}, Read}}

// The tensors likewise; order: of the rows of queries and keys.
static std::vector<TensorName> llama_tensors(Rows order) {
    return {{"wte", "token_embd.weight"}, {"ln1w", "attn_norm.weight"}, {"qkvw", "attn_q.weight", order},
            {"qkvw", "attn_k.weight", order}, {"qkvw", "attn_v.weight"}, {"attprojw", "attn_output.weight"},
            {"ln2w", "ffn_norm.weight"}, {"fcw", "ffn_gate.weight"}, {"fcw", "ffn_up.weight"},
            {"fcprojw", "ffn_down.weight"}, {"lnfw", "output_norm.weight"}, {"headw", kHead}};
}

static ForeignKind llama_kind() {
    return {.name = "Llama of llama.cpp", .id = "llama", .blocks = "blk.",
            .tensors = llama_tensors(Rows::Pairs), .keys = LLAMA_KEYS("llama"),
            .others = {"tied", "rope_scaling"},
            .fixed = {{"norm", "rmsnorm"}, {"position", "rope"}, {"activation", "swiglu"},
                      {"bias", "false"}},
            .betas = false};
}

static ForeignKind qwen3_kind() {
    ForeignKind kind = {
        .name = "Qwen3 of llama.cpp", .id = "qwen3", .blocks = "blk.", .tensors = llama_tensors(Rows::Same),
        .keys = LLAMA_KEYS("qwen3"), .others = {"tied", "rope_scaling"},
        .fixed = {{"norm", "rmsnorm"}, {"position", "rope"}, {"activation", "swiglu"}, {"bias", "false"},
                  {"qk_norm", "before"}},
        .llama3 = false, .betas = false};
    kind.tensors.push_back({"qnw", "attn_q_norm.weight"});
    kind.tensors.push_back({"knw", "attn_k_norm.weight"});
    return kind;
}

static ForeignKind qwen2_kind() {
    ForeignKind kind = {
        .name = "Qwen2 of llama.cpp", .id = "qwen2", .blocks = "blk.", .tensors = llama_tensors(Rows::Same),
        .keys = LLAMA_KEYS("qwen2"), .others = {"tied", "rope_scaling"},
        .fixed = {{"norm", "rmsnorm"}, {"position", "rope"}, {"activation", "swiglu"}, {"bias", "false"},
                  {"qkv_bias", "true"}},
        .llama3 = false, .betas = false};
    for (const char* name : {"attn_q.bias", "attn_k.bias", "attn_v.bias"})
        kind.tensors.push_back({"qkvb", name});
    return kind;
}
#undef LLAMA_KEYS

const std::vector<ForeignKind>& gguf_kinds() {
    static const std::vector<ForeignKind> kinds = {gpt2_kind(), llama_kind(), qwen3_kind(), qwen2_kind()};
    return kinds;
}

}  // namespace formats

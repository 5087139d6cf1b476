// The classes of transformers that this program reads and writes: a table each.
#include "llmc/train/save/formats/format_hf.h"

inline namespace formats {

using enum FormatKey::Use;

static HfClass gpt2() {
    return {.kind = {
        .name = "GPT2LMHeadModel", .id = "gpt2", .blocks = "h.",
        .tensors = {
            {"wte", "wte.weight"}, {"wpe", "wpe.weight"}, {"ln1w", "ln_1.weight"}, {"ln1b", "ln_1.bias"},
            {"qkvw", "attn.c_attn.weight"}, {"qkvb", "attn.c_attn.bias"},
            {"attprojw", "attn.c_proj.weight"}, {"attprojb", "attn.c_proj.bias"},
            {"ln2w", "ln_2.weight"}, {"ln2b", "ln_2.bias"},
            {"fcw", "mlp.c_fc.weight"}, {"fcb", "mlp.c_fc.bias"},
            {"fcprojw", "mlp.c_proj.weight"}, {"fcprojb", "mlp.c_proj.bias"},
            {"lnfw", "ln_f.weight"}, {"lnfb", "ln_f.bias"}},
        .keys = {
            {"n_layer", "layers"}, {"n_head", "heads"}, {"n_embd", "channels"}, {"n_positions", "context"},
            {"n_ctx", "context", {}, Write}, {"n_inner", "ffn_channels", {0}, Short}, {"vocab_size", "vocab"},
            {"activation_function", nullptr, {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}},  // one formula
            {"layer_norm_epsilon", "norm_eps", {1e-5}}, {"initializer_range", nullptr, {0.02}, Write},
            {"scale_attn_weights", nullptr, {true}}, {"tie_word_embeddings", nullptr, {true}},
            {"use_cache", nullptr, {true}, Write}, {"attn_pdrop", nullptr, {0.0}, Write},
            {"embd_pdrop", nullptr, {0.0}, Write}, {"resid_pdrop", nullptr, {0.0}, Write},
            {"torch_dtype", nullptr, {"float32"}, Write},
            {"scale_attn_by_inverse_layer_idx", nullptr, {false}, Read},
            {"add_cross_attention", nullptr, {false}, Read},
            {"pruned_heads", nullptr, {Json::Members{}, nullptr}, Read},
            {"quantization_config", nullptr, {nullptr}, Read},
            {"auto_map", nullptr, {nullptr}, Read}},                                   // code of its own
        .others = {}, .fixed = {}},
        .prefix = "transformer.", .transposed = true};
}

// What Llama and its successors have in common.
static const std::vector<TensorName> kLlamaTensors = {
    {"wte", "model.embed_tokens.weight"}, {"ln1w", "input_layernorm.weight"},
    {"qkvw", "self_attn.q_proj.weight"}, {"qkvw", "self_attn.k_proj.weight"},
    {"qkvw", "self_attn.v_proj.weight"}, {"attprojw", "self_attn.o_proj.weight"},
    {"ln2w", "post_attention_layernorm.weight"},
    {"fcw", "mlp.gate_proj.weight"}, {"fcw", "mlp.up_proj.weight"}, {"fcprojw", "mlp.down_proj.weight"},
    {"lnfw", "model.norm.weight"}, {"headw", kHfHead}};

template <class T> static std::vector<T> joined(std::vector<T> a, const std::vector<T>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// head_dim: what its absence stands for.
static std::vector<FormatKey> llama_keys(int head_dim, const char* activation) {
    return {{"vocab_size", "vocab"}, {"hidden_size", "channels"}, {"intermediate_size", "ffn_channels"},
            {"num_hidden_layers", "layers"}, {"num_attention_heads", "heads"},
            {"num_key_value_heads", "kv_heads", {0}}, {"head_dim", "head_channels", {head_dim, 0}},
            {"hidden_act", nullptr, {activation}}, {"max_position_embeddings", "context"},
            {"initializer_range", nullptr, {0.02}, Write}, {"rms_norm_eps", "norm_eps", {1e-6}},
            {"use_cache", nullptr, {true}, Write}, {"tie_word_embeddings", "tied", {false}},
            {"attention_dropout", nullptr, {0.0}, Write}, {"dtype", nullptr, {"float32"}, Write},
            {"torch_dtype", nullptr, {"float32"}, Write}, {"partial_rotary_factor", nullptr, {1.0}, Read},
            {"rope_interleaved", nullptr, {false}, Read}, {"quantization_config", nullptr, {nullptr}, Read},
            {"auto_map", nullptr, {nullptr}, Read}};
}

static const std::vector<const char*> kRope = {"rope_theta", "rope_scaling"};

static HfClass llama() {
    return {.kind = {
        .name = "LlamaForCausalLM", .id = "llama", .blocks = "model.layers.",
        .tensors = joined(kLlamaTensors, {
            {"qkvb", "self_attn.q_proj.bias"}, {"qkvb", "self_attn.k_proj.bias"},
            {"qkvb", "self_attn.v_proj.bias"}, {"attprojb", "self_attn.o_proj.bias"},
            {"fcb", "mlp.gate_proj.bias"}, {"fcb", "mlp.up_proj.bias"}, {"fcprojb", "mlp.down_proj.bias"}}),
        .keys = joined(llama_keys(0, "silu"), {
            {"attention_bias", "bias", {false}}, {"mlp_bias", "bias", {false}},
            {"pretraining_tp", nullptr, {1}, Write}}),
        .others = kRope,
        .fixed = {{"norm", "rmsnorm"}, {"position", "rope"}, {"activation", "swiglu"}}},
        .prefix = "", .transposed = false};
}

static HfClass qwen3() {
    return {.kind = {
        .name = "Qwen3ForCausalLM", .id = "qwen3", .blocks = "model.layers.",
        .tensors = joined(kLlamaTensors, {{"qnw", "self_attn.q_norm.weight"},
                                          {"knw", "self_attn.k_norm.weight"}}),
        .keys = joined(llama_keys(128, "silu"), {
            {"attention_bias", nullptr, {false}}}),
        .others = {"rope_theta", "rope_scaling", "window"},
        .fixed = {{"norm", "rmsnorm"}, {"position", "rope"}, {"activation", "swiglu"},
                  {"qk_norm", "before"}, {"bias", "false"}}},
        .prefix = "", .transposed = false};
}

static HfClass qwen2() {
    return {.kind = {
        .name = "Qwen2ForCausalLM", .id = "qwen2", .blocks = "model.layers.",
        .tensors = joined(kLlamaTensors, {
            {"qkvb", "self_attn.q_proj.bias"}, {"qkvb", "self_attn.k_proj.bias"},
            {"qkvb", "self_attn.v_proj.bias"}}),
        .keys = llama_keys(0, "silu"),
        .others = {"rope_theta", "rope_scaling", "window"},
        .fixed = {{"norm", "rmsnorm"}, {"position", "rope"}, {"activation", "swiglu"}, {"bias", "false"},
                  {"qkv_bias", "true"}}},
        .prefix = "", .transposed = false};
}

// Llama, where a token sees the last sliding_window tokens in every layer.
static HfClass mistral() {
    return {.kind = {
        .name = "MistralForCausalLM", .id = "mistral", .blocks = "model.layers.", .tensors = kLlamaTensors,
        .keys = llama_keys(0, "silu"), .others = {"rope_theta", "rope_scaling", "window"},
        .fixed = {{"norm", "rmsnorm"}, {"position", "rope"}, {"activation", "swiglu"}, {"bias", "false"}},
        .one_window = true},
        .prefix = "", .transposed = false};
}

// Heads turn in the other direction there.
static HfClass nanochat() {
    return {.kind = {
        .name = "NanoChatForCausalLM", .id = "nanochat", .blocks = "model.layers.",
        .tensors = {
            {"wte", "model.embed_tokens.weight"}, {"qkvw", "self_attn.q_proj.weight", Rows::Swapped},
            {"qkvw", "self_attn.k_proj.weight", Rows::Swapped}, {"qkvw", "self_attn.v_proj.weight"},
            {"attprojw", "self_attn.o_proj.weight"}, {"fcw", "mlp.fc1.weight"}, {"fcprojw", "mlp.fc2.weight"},
            {"headw", kHfHead}},
        .keys = joined(llama_keys(0, "relu2"), {
            {"attention_bias", nullptr, {false}},
            {"final_logit_softcapping", "softcap", {15.0, 0.0}, Short}}),
        .others = kRope,
        .fixed = {{"norm", "rmsnorm"}, {"norm_gain", "false"}, {"position", "rope"}, {"activation", "relu2"},
                  {"qk_norm", "after"}, {"qk_gain", "false"}, {"bias", "false"}, {"embed_norm", "true"}}},
        .prefix = "", .transposed = false};
}

const std::vector<HfClass>& hf_classes() {
    static const std::vector<HfClass> classes = {gpt2(), llama(), qwen3(), qwen2(), mistral(), nanochat()};
    return classes;
}

std::vector<const ForeignKind*> hf_kinds() {
    std::vector<const ForeignKind*> kinds;
    for (const HfClass& c : hf_classes()) kinds.push_back(&c.kind);
    return kinds;
}

}  // namespace formats

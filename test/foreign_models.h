// Small models of the kinds that formats hold, exported, with the trainer's logits.
#pragma once
#include <filesystem>
#include <map>

#include "llmc/io/files/safetensors.h"
#include "llmc/train/save/formats/formats.h"
#include "test/plain_model.h"
#include "test/tiny.h"

namespace PRECISION {

inline constexpr RopeScaling kLlama3 = {.kind = RopeScalingKind::Llama3, .factor = 4, .low = 0.5, .high = 2,
                                        .context = 24};
inline constexpr RopeScaling kYarn = {.kind = RopeScalingKind::Yarn, .factor = 3, .context = 12,
                                      .beta_fast = 1.5, .beta_slow = 0.5};

// Under the name of Hugging Face's class.
inline const std::map<std::string, ModelConfig> kForeign = {
    {"Llama", {.norm = NormKind::RmsNorm, .bias = false, .position = PositionKind::Rope, .rope_theta = 1e3,
               .kv_heads = 2, .head_channels = 8, .activation = Activation::Swiglu, .ffn_channels = 40,
               .tied = false}},
    {"LlamaTied", {.norm = NormKind::RmsNorm, .norm_eps = 1e-6, .position = PositionKind::Rope,
                   .rope_scaling = kLlama3, .activation = Activation::Swiglu}},         // with biases
    {"LlamaScaled", {.norm = NormKind::RmsNorm, .bias = false, .position = PositionKind::Rope,
                     .rope_scaling = kLlama3, .kv_heads = 2, .head_channels = 8,
                     .activation = Activation::Swiglu}},
    {"LlamaLinear", {.norm = NormKind::RmsNorm, .bias = false, .position = PositionKind::Rope,
                     .rope_scaling = {.kind = RopeScalingKind::Linear, .factor = 2.5},
                     .activation = Activation::Swiglu}},
    {"Qwen3", {.norm = NormKind::RmsNorm, .norm_eps = 1e-6, .bias = false, .position = PositionKind::Rope,
               .rope_theta = 1e2, .qk_norm = QkNorm::Before, .kv_heads = 2, .head_channels = 20,
               .activation = Activation::Swiglu}},
    {"Qwen3Window", {.norm = NormKind::RmsNorm, .norm_eps = 1e-6, .bias = false,
                     .position = PositionKind::Rope, .rope_scaling = kYarn, .qk_norm = QkNorm::Before,
                     .window = {0, 5},
                     .activation = Activation::Swiglu}},
    {"Qwen2", {.norm = NormKind::RmsNorm, .norm_eps = 1e-6, .bias = false, .qkv_bias = true,
               .position = PositionKind::Rope,
               .rope_scaling = {.kind = RopeScalingKind::Yarn, .factor = 4, .context = 300, .attention = 1.7},
               .kv_heads = 2, .head_channels = 8, .activation = Activation::Swiglu, .ffn_channels = 40,
               .tied = false}},
    {"Mistral", {.norm = NormKind::RmsNorm, .bias = false, .position = PositionKind::Rope, .window = {5},
                 .kv_heads = 2, .head_channels = 8, .activation = Activation::Swiglu, .ffn_channels = 40,
                 .tied = false}},
    {"NanoChat", {.norm = NormKind::RmsNorm, .norm_gain = false, .norm_eps = 1e-6, .bias = false,
                  .position = PositionKind::Rope, .rope_scaling = kYarn, .qk_norm = QkNorm::After,
                  .qk_gain = false, .kv_heads = 2, .head_channels = 8, .activation = Activation::Relu2,
                  .tied = false, .softcap = 2, .embed_norm = true}}};

struct Exported {
    Config cfg;
    std::vector<int32_t> ids;
    test::Vector logits;                                        // after the last token
    std::map<std::string, std::vector<float>> values;           // by our names
};

// A model with random gains and biases, exported to each of `to`.
inline Exported export_kind(const std::string& kind, const std::vector<std::string>& to,
                            uint64_t largest_file = 5'000'000'000,
                            const Tokenizer* tokenizer = nullptr) {
    Exported x{.cfg = tiny_config(), .ids = {}, .logits = {}, .values = {}};
    x.cfg.model = of_kind(kForeign.at(kind), x.cfg.model);
    x.cfg.train.micro_batch = 1, x.cfg.train.batch_tokens = x.cfg.model.context;
    Tiny t(x.cfg, true);
    t.shake();
    const auto read = t.reads();
    for (const Tensor& tensor : t.model.shards.layout.tensors) x.values[tensor.name] = read(tensor);
    const OwnModel own{.shape = x.cfg.model, .layout = t.model.shards.layout, .read = read,
                       .tokenizer = tokenizer, .bf16 = false, .largest_file = largest_file};
    for (const std::string& place : to) {
        check_export_kind(place, x.cfg.model);
        export_to(own, place);
    }
    x.ids = test::random_ids(29, t.d.V, 4);
    const floatX* row = t.model.decoder->forward(t.model.zero, x.ids.data(), int(x.ids.size()), 0);
    const auto logits = t.model.decoder->on_host(row);
    x.logits.assign(logits.begin(), logits.end());
    return x;
}

inline void expect_same(const test::Vector& theirs, const test::Vector& own, const std::string& whose) {
    double worst = 0, scale = 0;
    EXPECT(theirs.size() == own.size(), "%s: %zu logits", whose.c_str(), theirs.size());
    for (size_t i = 0; i < std::min(own.size(), theirs.size()); i++) {
        scale = std::max(scale, std::abs(own[i]));
        worst = test::larger_difference(worst, std::abs(own[i] - theirs[i]));
    }
    EXPECT(scale > 0.1 && worst <= 1e-5 * scale, "%s: logits %.3g apart, of %.3g", whose.c_str(), worst,
           scale);
}

// Every tensor of a model by our names, in slices that begin anywhere.
inline void expect_values(const std::string& from, const Exported& e, double near) {
    const ForeignModel m = open_foreign(from);
    for (const Tensor& t : whole_tensors(make_dims(m.shape))) {
        const std::vector<float>& own = e.values.at(t.name);
        const size_t cols = size_t(t.param.whole_cols), rows = size_t(t.param.whole_rows);
        std::vector<float> read(own.size());
        for (size_t row = 0, n; row < rows; row += n) {
            n = std::min<size_t>(7, rows - row);
            m.read(t, row, n, &read[row * cols]);
        }
        double worst = 0;
        for (size_t i = 0; i < own.size(); i++) {
            const double off = std::abs(double(read[i] - own[i]));
            worst = test::larger_difference(worst, off - near * std::abs(own[i]));
        }
        EXPECT(worst <= near * 1e-3, "%s: %s is %g off", from.c_str(), t.name.c_str(), worst);
    }
}

}  // namespace PRECISION

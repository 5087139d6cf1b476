// The models of bench_ops, and their tokens.
#pragma once
#include <string>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/config/config.h"
#include "llmc/train/price/random_tokens.h"

struct Options {
    int B = 4, T = 256, threads = 0;
    bool rates = false, muon = false, trace = false;
    std::string model = "gpt2", json;
    std::vector<std::string> precisions;
};

// gpt2: GPT-2 124M. llama: as many layers and channels, with GQA. features: those missing in both, and Muon.
// packed: llama under a document mask, with the other softcap.
inline Config config_of(const Options& o) {
    Config cfg;
    ModelConfig& m = cfg.model;
    m = {.layers = 12, .heads = 12, .channels = 768, .context = o.T, .vocab = 50257, .init = "random"};
    CHECK_INPUT(o.model == "gpt2" || o.model == "llama" || o.model == "features" || o.model == "packed",
                "--model={}: gpt2, llama, features or packed", o.model);
    if (o.model != "gpt2") {
        m.kv_heads = 4, m.norm = NormKind::RmsNorm, m.bias = false, m.position = PositionKind::Rope;
        m.activation = Activation::Swiglu, m.ffn_channels = 2048;
    }
    if (o.model == "features") {
        m.qk_norm = QkNorm::Before, m.activation = Activation::Relu2, m.softcap = 15, m.embed_norm = true;
        m.window = {o.T / 4, 0};
        m.shortcut = Shortcut::X0, m.value_embeddings = ValueEmbeddings::Alternate;
        cfg.optimizer.kind = OptimizerKind::Muon;
    }
    if (o.model == "packed")
        m.document_mask = true, m.softcap = 15, m.softcap_kind = SoftcapKind::Sqrt;
    cfg.train = {.steps = 1000, .batch_tokens = int64_t(o.B) * o.T, .micro_batch = o.B, .max_skips = 0};
    cfg.checkpoint.every = 0;
    return cfg;
}

// The model of scripts/quickstart.json, whose matrices are small, and Muon.
inline Config config_of_quickstart() {
    Config cfg;
    ModelConfig& m = cfg.model;
    m = {.layers = 4, .heads = 6, .channels = 192, .context = 128, .vocab = 4096, .init = "random"};
    m.norm = NormKind::RmsNorm, m.norm_gain = false, m.embed_norm = true, m.bias = false;
    m.position = PositionKind::Rope, m.qk_norm = QkNorm::After, m.qk_gain = false;
    m.activation = Activation::Relu2, m.tied = false, m.softcap = 15;
    cfg.train = {.steps = 1000, .batch_tokens = 2048, .micro_batch = 8, .max_skips = 0};
    cfg.checkpoint.every = 0;
    return cfg;
}

// Length of a document, a quarter of a row, where the model has a document mask.
inline int document_of(const Config& cfg) { return cfg.model.context / 4; }

// What bench_ops runs: the models, and tokens for them.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/io/files/shard.h"
#include "llmc/train/step/dataset.h"

struct Options {
    int B = 4, T = 256, threads = 0;
    bool rates = false, muon = false, trace = false;
    std::string model = "gpt2", json;
    std::vector<std::string> precisions;
};

// gpt2: GPT-2 124M. llama: as many layers and channels, with GQA. slots: what neither of them has, and Muon.
// packed: llama under a document mask.
inline Config config_of(const Options& o) {
    Config cfg;
    ModelConfig& m = cfg.model;
    m = {.layers = 12, .heads = 12, .channels = 768, .context = o.T, .vocab = 50257, .init = "random"};
    CHECK_INPUT(o.model == "gpt2" || o.model == "llama" || o.model == "slots" || o.model == "packed",
                "--model={}: gpt2, llama, slots or packed", o.model);
    if (o.model != "gpt2") {
        m.kv_heads = 4, m.norm = NormKind::RmsNorm, m.bias = false, m.position = PositionKind::Rope;
        m.activation = Activation::Swiglu, m.ffn_channels = 2048;
    }
    if (o.model == "slots") {
        m.qk_norm = QkNorm::Before, m.activation = Activation::Relu2, m.softcap = 15, m.embed_norm = true;
        m.window = {o.T / 4, 0};
        cfg.optimizer.kind = OptimizerKind::Muon;
    }
    m.document_mask = o.model == "packed";
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

// Documents of a quarter of a row each, where the model keeps them apart.
inline int document_of(const Config& cfg) { return cfg.model.context / 4; }

// A shard of random ids, gone at the end.
struct RandomTokens {
    std::string path =
        fmt::format("{}/bench_ops_{}.bin", std::filesystem::temp_directory_path().string(), int(getpid()));
    Dataset set;
    RandomTokens(const Config& cfg, size_t count) {
        FILE* f = fopen(path.c_str(), "wb");
        CHECK_INPUT(f, "{} cannot be written", path);
        std::vector<uint16_t> ids(512 + count);
        const int32_t header[3] = {20240520, 1, int32_t(count)};
        memcpy(ids.data(), header, sizeof header);
        const uint32_t eot = uint32_t(cfg.model.vocab) - 1;
        uint32_t h = 1;
        for (size_t i = 0; i < count; i++) {
            const bool begins = cfg.model.document_mask && i % size_t(document_of(cfg)) == 0;
            ids[512 + i] = uint16_t(begins ? eot : ((h = h * 1664525 + 1013904223) >> 8) % eot);
        }
        const bool whole = fwrite(ids.data(), sizeof ids[0], ids.size(), f) == ids.size();
        CHECK_INPUT(fclose(f) == 0 && whole, "{} cannot be written", path);
        set = open_dataset("data.train", {{path}}, cfg.model.context, 1, true,
                           {.kind = RowKind::Stream, .eot = eot, .masks = cfg.model.document_mask});
        validate_ids(set, cfg.model.vocab);
    }
    ~RandomTokens() { remove(path.c_str()); }
};

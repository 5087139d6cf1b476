// The presets of scripts/ as small models of the same kind.
#pragma once
#include <algorithm>

#include "llmc/base/config/config.h"
#include "llmc/base/disk/files.h"

inline std::vector<std::string> preset_paths() {
    std::vector<std::string> paths;
    for (const std::string& path : glob_files("scripts/*.json"))
        if (!path.ends_with("references.json") && !path.ends_with("grafana.json")) paths.push_back(path);
    return paths;
}

// A preset's settings on a small model: its ratio of layers and heads stays, channels and lengths do not.
inline Config shrunk(const std::string& path) {
    Config cfg = load_config(path);
    cfg.model.layers = std::max(4, cfg.model.layers / 12);
    cfg.model.channels = 4 * cfg.model.heads, cfg.model.context = 16, cfg.model.vocab = 67;
    cfg.model.depth = 0;
    if (cfg.model.head_channels) cfg.model.head_channels = 6;
    if (cfg.model.ffn_channels) cfg.model.ffn_channels = 12 * cfg.model.heads;
    for (int& window : cfg.model.window) window = std::min(window, 5);
    cfg.train.steps = 2, cfg.train.batch_tokens = 16 * 8, cfg.train.micro_batch = 1;
    cfg.checkpoint.every = 0;
    cfg.run.threads = 1;
    return cfg;
}

// Of sizes that kernels for GPUs take, with a few heads.
inline Config shrunk_for_gpus(const std::string& path) {
    Config cfg = shrunk(path);
    ModelConfig& m = cfg.model;
    const int shared = m.kv_heads ? std::min(4, m.heads / m.kv_heads) : 1;
    m.heads = m.kv_heads ? 2 * shared : m.heads % 2 ? 5 : 4;
    if (m.kv_heads) m.kv_heads = 2;
    m.layers = m.window.empty() ? 2 : 4;
    m.channels = 16 * m.heads;
    if (m.head_channels) m.head_channels = 32;
    if (m.ffn_channels) m.ffn_channels = 24 * m.heads;
    cfg.train.batch_tokens = 16 * 4;
    return cfg;
}

#include "llmc/model/depth.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/model/layout.h"

inline namespace model {

static int channels_of(int depth) { return (64 * depth + 127) / 128 * 128; }

// Parameters of block matrices and head.
static double scaled_parameters(ModelConfig m, int depth, int channels) {
    m.layers = depth;
    m.channels = channels;
    m.heads = std::max(1, channels / 128);
    double count = 0;
    for (const Tensor& t : whole_tensors(make_dims(m))) {
        const bool head = t.name == (m.tied ? "wte" : "headw");
        if (head || (t.layer >= 0 && t.param.is_matrix())) count += double(t.param.whole());
    }
    return count;
}

// A list that ends with the whole context means the last layer too, wherever the repetition stops.
static void end_with_whole_context(std::vector<int>& window, int layers) {
    if (window.back() != 0 || window[size_t(layers - 1) % window.size()] == 0) return;
    const std::vector<int> repeated = std::exchange(window, {});
    for (int l = 0; l < layers; l++) window.push_back(repeated[size_t(l) % repeated.size()]);
    window.back() = 0;
}

void apply_depth(Config& cfg) {
    const int depth = cfg.model.depth;
    if (depth == 0) return;
    CHECK_INPUT(cfg.model.vocab > 0, "model.depth = {} needs model.vocab: batch and steps follow from the "
                "size of the head", depth);
    const auto set = [&](const char* path, auto& to, double value) {
        const auto& named = cfg.named;
        if (std::find(named.begin(), named.end(), path) == named.end()) to = decltype(+to)(value);
    };
    const ModelConfig as_written = cfg.model;
    set("model.layers", cfg.model.layers, depth);
    set("model.channels", cfg.model.channels, channels_of(depth));
    set("model.heads", cfg.model.heads, std::max(1, cfg.model.channels / 128));
    end_with_whole_context(cfg.model.window, cfg.model.layers);
    const double P = scaled_parameters(as_written, cfg.model.layers, cfg.model.channels);
    const double of_12 = scaled_parameters(as_written, 12, channels_of(12));
    const double batch = std::exp2(std::round(19 + 0.383 * std::log2(P / of_12)));
    set("train.batch_tokens", cfg.train.batch_tokens, batch);
    const double tokens = double(cfg.train.batch_tokens);
    set("train.steps", cfg.train.steps, std::max(1., std::round(10.5 * P / tokens)));
    set("optimizer.decay", cfg.optimizer.decay, std::round(0.65 * double(cfg.train.steps)));
    const double s = std::sqrt(tokens / std::exp2(19)), w = 1 / std::sqrt(cfg.model.channels / 768.);
    set("optimizer.matrix_lr", cfg.optimizer.matrix_lr, 0.02 * s);
    set("optimizer.embed_lr", cfg.optimizer.embed_lr, 0.3 * s * w);
    set("optimizer.head_lr", cfg.optimizer.head_lr, 0.008 * s * w);
    set("optimizer.lr", cfg.optimizer.lr, 0.008 * s * w);
    cfg.model.depth = 0;
}

}  // namespace model

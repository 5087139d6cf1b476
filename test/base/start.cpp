// A model before its first step: its weights, and what libraries have built by then.
#include "llmc/ops/cpu/products/dnnl.h"
#include "test/tiny.h"

namespace PRECISION {

// Normal of 0.02, and of 0.02 / sqrt(2 L) where a branch comes back to the stream; biases 0, norms 1.
TEST(weights_begin_as_gpt2s) {
    Config cfg = tiny_config();
    cfg.model.layers = 6, cfg.model.channels = 96;
    const Tiny t(cfg);
    for (const Tensor& tensor : t.model.shards.layout.tensors) {
        const std::vector<real> values = t.whole(tensor);
        const std::string name = tensor.name;
        const size_t used = tensor.param.used();
        double mean = 0, square = 0;
        for (size_t i = 0; i < used; i++) mean += double(values[i]) / double(used);
        for (size_t i = 0; i < used; i++) square += std::pow(double(values[i]) - mean, 2) / double(used);
        const bool scale = name.find("ln") != name.npos && name.ends_with("w");
        const bool matrix = tensor.param.whole_cols > 1, back = name.find("proj") != name.npos;
        const double std = !matrix ? 0 : back ? 0.02 / std::sqrt(12.0) : 0.02;
        const double of_mean = matrix ? 5 * std / std::sqrt(double(used)) : 0;
        EXPECT(std::abs(mean - scale) <= of_mean + 1e-6, "%s: mean %.3g", name.c_str(), mean);
        EXPECT(std::abs(std::sqrt(square) - std) <= 0.05 * std + 1e-6, "%s: deviation %.4g, not %.4g",
               name.c_str(), std::sqrt(square), std);
    }
}

// Code that a library builds within a step costs time of the step, and memory outside the plan.
// masks: rows of documents of their own, which begin in any block of keys.
static void expect_nothing_built(bool masks) {
    Config cfg = tiny_config();
    cfg.model.context = 421, cfg.model.channels = 96, cfg.model.document_mask = masks;
    cfg.train.batch_tokens = 4 * 421, cfg.train.micro_batch = 2;
    set_threads(2);
    Tiny t(cfg);
    if (masks) t.set.mask_eot = 7;
    const uint64_t rows = t.model.pipeline.rows_of_evaluation(t.set, 0);
    const bool part_is_left = rows % 2 == 1;
    EXPECT(part_is_left, "%llu rows", (unsigned long long)rows);
    warm_up(t.cfg, t.model, rows);
    const size_t built = dnnl_built();
    Trace trace;
    Loader data(t.set, cfg.train.micro_batch, 0);
    train_step(t, data, 0, trace);
    t.model.pipeline.evaluate(t.set, 0, {});
    EXPECT(dnnl_built() == built, "masks %d: %zu built in a step", masks, dnnl_built() - built);
    set_threads(1);
}

TEST_IF(!kIsFp64, a_step_builds_nothing_after_the_warm_up) {
    if (matmul_library().empty()) return test::skip("built without oneDNN");
    expect_nothing_built(false);
    expect_nothing_built(true);
}

}  // namespace PRECISION

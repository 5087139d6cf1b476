// The main loop passes the right arguments: ./train_gpt has the same figures and texts as the same parts
// called here one after the other.
#include <chrono>
#include <thread>

#include "llmc/base/json/json.h"
#include "llmc/base/progress.h"
#include "llmc/train/run/generate.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run/step_log.h"
#include "test/program.h"
#include "test/tiny.h"

namespace PRECISION {

// The learning rate, compiled twice, may differ in its last bit.
static bool near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// As metrics.jsonl has it: valid UTF-8.
static std::string in_json(const std::string& text) {
    return test::json::parse(JsonLine("sample").add("text", text).str())["text"];
}

TEST(a_run_is_what_its_parts_make) {
    const std::string precision = kIsFp64 ? "fp64" : kIsBf16 ? "bf16" : "fp32", name = "loop_" + precision;
    test::json changes = test::text_config();
    changes.merge_patch({{"run", {{"precision", precision}}}, {"optimizer", {{"schedule", "linear"}}},
                         {"sample", {{"every", 4}, {"tokens", 12}}}, {"train", {{"steps", 8}}},
                         {"log", {{"peak_tflops", 2.5}}}});
    const std::string path = test::tiny_program_config(name, changes);
    const test::Ran ran = test::train_gpt(path);
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    const auto steps = test::rows_of(name, "train"), texts = test::rows_of(name, "sample");
    EXPECT(steps.size() == 8 && texts.size() == 2, "%zu steps, %zu texts", steps.size(), texts.size());

    set_threads(1);
    Config cfg = load_config(path);
    const RunData data = open_run_data(cfg);
    cfg.model.vocab = data.vocab;
    Model model(cfg, Mesh(), cfg.train.micro_batch, true);
    model.allocate();
    restore(model.shards, random_weights(model.shards.d, uint64_t(cfg.run.seed)));
    Loader loader(data.train, cfg.train.micro_batch, 0);
    Generator generator(cfg, Mesh(), *model.decoder, model.zero);
    for (int64_t step = 0; step < 8; step++) {
        model.pipeline.run(loader);
        const double lr = learning_rate(cfg.optimizer, 8, step);
        enqueue_update(model, lr, step);
        const StepResult f = model.statistics->read();
        const test::json& row = steps.at(size_t(step));
        EXPECT(near(row["loss"], f.loss) && near(row["norm"], f.norm) && near(row["lr"], lr),
               "step %d: loss %.9g, %s", int(step) + 1, f.loss, row.dump().c_str());
        const double flops = model_flops_per_token(cfg.model, int64_t(model.shards.layout.parameters));
        EXPECT_NEAR(row["mfu"].get<double>() / row["tokens_per_s"].get<double>() * 2.5e12 / flops, 1, 1e-3);
        if (step % 4 != 3) continue;
        const auto written = generator.run(*data.tokenizer, data.prompt, uint64_t(step) + 1);
        const std::string text = cfg.sample.prompt + *written;
        EXPECT(texts.at(size_t(step / 4))["text"] == in_json(text), "step %d: '%s'", int(step) + 1,
               text.c_str());
    }
}

// The log may read a step long after the step's end: a GPU's host is ahead of the device.
// Weights that overflow in training: the text of that step ends the run, and names the tensor.
TEST(a_text_of_weights_that_are_not_finite) {
    Config cfg = tiny_config();
    cfg.train.micro_batch = 1, cfg.train.batch_tokens = cfg.model.context;
    Tiny t(cfg, true);
    const Tensor& broken = t.tensor("h.1.fcw");
    std::vector<real> values = t.whole(broken);
    values[7] = INFINITY;
    set_tensor(t.model.shards, broken, values);
    Generator generator(cfg, Mesh(), *t.model.decoder, t.model.zero);
    TextState text{.ids = {1, 2, 3}};
    const Fatal end = test::fatal_of([&] { (void)generator.next(text, 0); });
    EXPECT(end.code == kExitNotFinite && strstr(end.what(), "'h.1.fcw'"), "code %d, '%s'", end.code,
           end.what());
}

TEST(a_step_ends_when_its_statistics_arrive) {
    Tiny t(tiny_config());
    Config cfg = t.cfg;
    cfg.run.dir = test::temporary_directory() + "/late_read";
    cfg.log.every = 0;
    make_directories(cfg.run.dir);
    RunLog log(cfg);
    RunState state;
    StepLog step_log(cfg, {}, t.model, log, state);
    Loader data(t.set, cfg.train.micro_batch, 0);
    const double begin = seconds_now();
    step_log.begin();
    t.model.pipeline.run(data);
    const StepSums sums = t.model.statistics->sum_over_ranks({}, 0);
    t.model.optimizer->clip(sums.squares, sums.loss);
    t.model.optimizer->update(1e-3, 0);
    step_log.add(1, 1e-3);
    const double most = 1e3 * (seconds_now() - begin);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    step_log.write();
    const double ms = step_log.meter.totals.ms;
    EXPECT(ms > 0 && ms <= most, "%g ms, of %g", ms, most);
}

}  // namespace PRECISION

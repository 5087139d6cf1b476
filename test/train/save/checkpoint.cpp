// Checkpoints: what is saved comes back bit for bit, weights alone as well as all state.
#include "llmc/train/save/checkpoint.h"

#include <filesystem>

#include "llmc/base/files.h"
#include "test/tiny.h"

namespace fs = std::filesystem;

namespace PRECISION {

static std::string fresh_folder() {
    static int count = 0;
    const std::string path =
        test::temporary_directory() + "/" TEST_PRECISION "_run" + std::to_string(count++);
    fs::create_directories(path);
    return path;
}

static Config config_in(const std::string& dir) {
    Config cfg = tiny_config();
    cfg.run.dir = dir;
    return cfg;
}

static std::vector<real> masters_of(Tiny& t) { return {t.masters(), t.masters() + t.size()}; }
static bool same(const std::vector<real>& a, const std::vector<real>& b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(real)) == 0;
}

static std::string save(Tiny& t, int64_t step) {
    RunState state;
    state.step = step;
    Checkpoint checkpoint(t.cfg, t.model.zero, t.model.snapshot, nullptr);
    const std::optional<std::string> folder = checkpoint.save(state, true);
    return folder ? *folder : "";
}

TEST(saved_weights_come_back_bit_for_bit) {
    const std::string dir = fresh_folder();
    Tiny a(config_in(dir));
    train_steps(a, 3);
    const std::string path = save(a, 3);
    EXPECT(path == dir + "/step_3" && newest_checkpoint(dir) == path, "saved as '%s'", path.c_str());
    const auto saved = masters_of(a);
    const std::vector<floatX> params(a.model.zero.params, a.model.zero.params + a.size());

    Config cfg = config_in(dir);
    cfg.model.init = path, cfg.run.seed = 5;
    Tiny b(cfg);
    EXPECT(!same(masters_of(b), saved), "another seed has other weights");
    Checkpoint(b.cfg, b.model.zero, b.model.snapshot, nullptr).load_or_init(std::nullopt);
    EXPECT(same(masters_of(b), saved), "masters differ");
    EXPECT(memcmp(b.model.zero.params, params.data(), params.size() * sizeof(floatX)) == 0, "weights differ");
    EXPECT(load_config(path + "/config.json").model.channels == 48, "the config is in the folder");
}

// Weights for generation alone: no masters, the same rounding.
TEST(weights_without_masters) {
    const std::string dir = fresh_folder();
    Tiny a(config_in(dir));
    a.shake();
    const std::string path = save(a, 1);
    Config cfg = config_in(dir);
    cfg.train.steps = 0, cfg.model.init = path;
    Tiny b(cfg);
    EXPECT(!b.model.zero.master && !b.model.zero.grads, "there is memory for training");
    Checkpoint(b.cfg, b.model.zero, b.model.snapshot, nullptr).load_weights(path);
    EXPECT(memcmp(b.model.zero.params, a.model.zero.params, a.size() * sizeof(floatX)) == 0,
           "weights differ");
}

// A signal that comes while a checkpoint is being written is not forgotten; one that is due is skipped.
TEST(what_a_signal_asks_for_is_saved_after_the_one_before) {
    Config cfg = config_in(fresh_folder());
    cfg.checkpoint.every = 5;
    Tiny t(cfg);
    Checkpoint c(t.cfg, t.model.zero, t.model.snapshot, nullptr);
    EXPECT(c.async(), "saves beside training");
    EXPECT(!c.wanted(false, 1, false) && c.wanted(false, 5, false) && c.wanted(true, 6, false), "idle");
    EXPECT(!c.wanted(false, 7, false), "asked for once, saved once");
    RunState state;
    state.step = 8;
    c.save(state, false);
    EXPECT(c.saver.busy() && !c.wanted(true, 9, false) && c.wanted(true, 10, false), "busy");
    EXPECT(!c.wanted(false, 11, false) && c.wanted(false, 12, true), "the last one waits for it");
    EXPECT(!c.wanted(true, 13, false), "busy");
    while (c.saver.busy()) c.take(c.saver.mine());
    EXPECT(c.wanted(false, 14, false) && !c.wanted(false, 16, false), "then it comes, once");
}

TEST(weights_of_another_shape) {
    const std::string dir = fresh_folder();
    Tiny a(config_in(dir));
    const std::string path = save(a, 1);
    const auto load = [&](auto change, std::vector<std::string> words) {
        Config cfg = config_in(dir);
        change(cfg.model);
        Tiny b(cfg);
        Checkpoint c(b.cfg, b.model.zero, b.model.snapshot, nullptr);
        const Fatal e = test::fatal_of([&] { c.load_weights(path); });
        EXPECT(e.code == kExitConfig, "code %d, '%s'", e.code, e.what());
        for (const auto& w : words)
            EXPECT(strstr(e.what(), w.c_str()), "no '%s' in '%s'", w.c_str(), e.what());
    };
    load([](ModelConfig& m) { m.channels = 96; }, {path, "wte", "66", "96", "48"});
    load([](ModelConfig& m) { m.vocab = 70; }, {path, "wte", "70", "66"});
    load([](ModelConfig& m) { m.layers = 3; }, {path, "h.2.", "another model"});
    Checkpoint of_a(a.cfg, a.model.zero, a.model.snapshot, nullptr);
    const Fatal e = test::fatal_of([&] { of_a.load_weights(dir + "/step_9"); });
    EXPECT(e.code == kExitConfig && strstr(e.what(), "step_9"), "code %d, '%s'", e.code, e.what());
}

}  // namespace PRECISION

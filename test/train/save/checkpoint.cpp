// Checkpoints: saved state comes back bit for bit, weights alone and with the optimizer's state.
#include "llmc/train/save/checkpoint.h"

#include <filesystem>

#include "llmc/base/disk/files.h"
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
    Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
    checkpoint.save(state, true);
    return checkpoint.newest;
}

TEST(saved_weights_come_back_bit_for_bit) {
    const std::string dir = fresh_folder();
    Tiny a(config_in(dir));
    train_steps(a, 3);
    const std::string path = save(a, 3);
    EXPECT(path == dir + "/step_3" && newest_checkpoint(dir).folder == path, "saved as '%s'", path.c_str());
    const auto saved = masters_of(a);
    const std::vector<floatX> params(a.model.shards.params, a.model.shards.params + a.size());

    Config cfg = config_in(dir);
    cfg.model.init = path, cfg.run.seed = 5;
    Tiny b(cfg);
    EXPECT(!same(masters_of(b), saved), "another seed has other weights");
    Checkpoint(b.cfg, b.model.shards, b.model.votes, b.model.snapshot, {}, b.model.images)
        .load_or_init(std::nullopt);
    EXPECT(same(masters_of(b), saved), "masters differ");
    EXPECT(memcmp(b.model.shards.params, params.data(), params.size() * sizeof(floatX)) == 0,
           "weights differ");
    EXPECT(load_config(path + "/config.json").model.channels == 48, "the config is in the folder");
}

// By training and by programs that read the weights alone.
TEST(weights_that_are_not_finite_are_named) {
    const std::string dir = fresh_folder();
    Tiny a(config_in(dir));
    const Tensor& broken = a.tensor("lnfw");
    std::vector<real> values = a.whole(broken);
    values[3] = NAN;
    set_tensor(a.model.shards, broken, values);
    const std::string path = save(a, 3);
    Checkpoint checkpoint(a.cfg, a.model.shards, a.model.votes, a.model.snapshot, {}, a.model.images);
    for (const bool resumes : {true, false}) {
        const Fatal end = test::fatal_of([&] {
            if (resumes) (void)checkpoint.load_or_init(open_checkpoint(path));
            else load_weights(a.model.shards, path);
        });
        EXPECT(end.code == kExitNotFinite && strstr(end.what(), "'lnfw'") && strstr(end.what(), path.c_str()),
               "code %d, '%s'", end.code, end.what());
    }
}

// Slots of another optimizer: every slot of the list is planned, offloaded, saved and loaded.
TEST(state_is_what_the_list_of_slots_says) {
    const Config cfg = config_in(fresh_folder());
    const std::vector<StateSlot> slots = {{.name = "momentum", .planned = "momentum of all"},
                                          {.name = "row", .planned = "rows"}};
    struct Own {
        Shards shards;
        Zero zero{shards};
        Arena arena, host;
        std::byte* snapshot = nullptr;
        Own(const Config& c, const std::vector<StateSlot>& slots)
            : shards(dims_of(c, c.model.vocab, Axis()), whole_model(c.model.layers), Mesh(),
                   {.state = slots, .offload = true}) {
            zero.add_weights_to(arena, host), zero.add_training_to(arena, host);
            arena.allocate(ops::device_allocate, ops::device_free);
            host.allocate(ops::host_allocate, ops::host_free);
        }
    };
    Own a(cfg, slots), b(cfg, slots);
    const size_t size = a.shards.layout.size();
    EXPECT(a.host.plan().size() >= slots.size(), "%zu rows on the host", a.host.plan().size());
    for (size_t i = 0; i < slots.size(); i++) {
        const Arena::Row row = a.host.plan()[i];
        EXPECT(row.name == slots[i].planned && row.bytes == size * sizeof(real), "'%s' of %zu bytes",
               row.name.c_str(), row.bytes);
    }
    restore(a.shards, random_weights(a.shards.d, 1));
    for (const Tensor& t : a.shards.layout.tensors)
        for (size_t i = t.start; i < t.start + t.param.used(); i++)
            for (size_t s = 0; s < slots.size(); s++)
                reinterpret_cast<real*>(a.shards.state[s].memory)[i] = real(i + s * size);
    Votes votes;
    Images images({}, a.shards);
    Checkpoint checkpoint(cfg, a.shards, votes, a.snapshot, {}, images);
    RunState state;
    state.step = 1;
    checkpoint.save(state, true);
    const Origin saved = open_checkpoint(checkpoint.newest);
    restore(b.shards, checkpoint_state(saved.folder, saved.manifest), true);
    for (size_t s = 0; s < slots.size(); s++)
        EXPECT(memcmp(a.shards.state[s].memory, b.shards.state[s].memory, size * sizeof(real)) == 0,
               "%s differs", slots[s].name);
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
    EXPECT(!b.model.shards.masters() && !b.model.shards.grads, "there is memory for training");
    load_weights(b.model.shards, path);
    EXPECT(memcmp(b.model.shards.params, a.model.shards.params, a.size() * sizeof(floatX)) == 0,
           "weights differ");
}

// A signal during a save is remembered; a save due during a save is skipped.
TEST(what_a_signal_asks_for_is_saved_after_the_one_before) {
    Config cfg = config_in(fresh_folder());
    cfg.checkpoint.every = 5;
    Tiny t(cfg);
    Checkpoint c(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
    EXPECT(c.async(), "saves beside training");
    const auto at = [&](int64_t step, bool asked = false, bool ends = false) {
        RunState state;
        state.step = step;
        const std::string said = test::captured(2, [&] { c.save_if_due(state, asked, ends); });
        return said.empty() ? c.saver.busy() : false;
    };
    const auto saved = [&] {
        while (c.saver.busy()) c.votes.receive(c.votes.send().data()), c.poll();
        return c.saved;
    };
    EXPECT(!at(1) && at(5) && saved() == 5 && at(6, true) && saved() == 6, "step %ld", long(c.saved));
    EXPECT(!at(7), "asked for once, saved once");
    EXPECT(at(8, true) && at(9, true) && !at(10), "9 waits, 10 is skipped: busy");
    EXPECT(saved() == 8 && c.due(11) && at(11) && saved() == 11 && !c.due(12), "9 comes at 11, once");
    EXPECT(at(13, true), "busy");
    at(14, true, true);
    EXPECT(!c.saver.busy() && c.saved == 14 && !c.due(16), "the last one waits for it");
}

// Votes sent before the save began do not count for the save.
TEST(votes_of_an_earlier_step_end_no_save) {
    Config cfg = config_in(fresh_folder());
    Tiny t(cfg);
    Checkpoint c(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images);
    RunState state;
    state.step = 3;
    const Votes::Words before = {0, 0, 1, 0};
    c.votes.send();
    c.save(state, false);
    c.votes.receive(before.data());
    c.poll();
    while (c.votes.mine[kSaveDone] == 0) usleep(100);
    EXPECT(!fs::exists(c.cfg.run.dir + "/step_3"), "published before all ranks have said so");
    while (c.saver.busy()) c.votes.receive(c.votes.send().data()), c.poll();
    EXPECT(c.saved == 3, "not saved");
}

TEST(weights_of_another_shape) {
    const std::string dir = fresh_folder();
    Tiny a(config_in(dir));
    const std::string path = save(a, 1);
    const auto load = [&](auto change, std::vector<std::string> words) {
        Config cfg = config_in(dir);
        change(cfg.model);
        Tiny b(cfg);
        const Fatal e = test::fatal_of([&] { load_weights(b.model.shards, path); });
        EXPECT(e.code == kExitConfig, "code %d, '%s'", e.code, e.what());
        for (const auto& w : words)
            EXPECT(strstr(e.what(), w.c_str()), "no '%s' in '%s'", w.c_str(), e.what());
    };
    load([](ModelConfig& m) { m.channels = 96; }, {path, "wte", "66", "96", "48"});
    load([](ModelConfig& m) { m.vocab = 70; }, {path, "wte", "70", "66"});
    load([](ModelConfig& m) { m.layers = 3; }, {path, "h.2.", "another model"});
    const Fatal e = test::fatal_of([&] { load_weights(a.model.shards, dir + "/step_9"); });
    EXPECT(e.code == kExitConfig && strstr(e.what(), "step_9"), "code %d, '%s'", e.code, e.what());
}

}  // namespace PRECISION

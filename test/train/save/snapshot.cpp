// A checkpoint written beside training has the state of the moment of the request.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "llmc/base/disk/files.h"
#include "llmc/train/save/checkpoint.h"
#include "test/tiny.h"

namespace fs = std::filesystem;

namespace PRECISION {

static Config config_in(const char* name) {
    Config cfg = tiny_config();
    cfg.run.dir = test::folder(TEST_PRECISION "_") + name;
    cfg.checkpoint.async = true, cfg.checkpoint.every = 1;
    fs::create_directories(cfg.run.dir);
    return cfg;
}

// Writes nothing before it is told to.
static std::atomic<bool> go;
static Disk waiting_disk() {
    Disk disk = posix_disk();
    disk.write = [below = disk.write](int file, const void* data, size_t bytes) {
        while (!go) usleep(100);
        return below(file, data, bytes);
    };
    go = false;
    return disk;
}

// A step of a rank that is alone.
static void step_alone(Checkpoint& checkpoint) {
    checkpoint.votes.receive(checkpoint.votes.send().data());
    checkpoint.poll();
}

static RunState at(int64_t step) {
    RunState state;
    state.step = step;
    return state;
}

// Everything loaded from a checkpoint.
static Trace state_of(const std::string& folder) {
    Config cfg = config_in("loaded");
    Tiny t(cfg);
    const Manifest manifest = open_checkpoint(folder).manifest;
    restore(t.model.shards, checkpoint_state(folder, manifest), true);
    Trace trace;
    trace.keep_state(t);
    return trace;
}

TEST(weights_may_move_while_they_are_written) {
    Tiny t(config_in("moves"));
    train_steps(t, 2);
    Trace then;
    then.keep_state(t);
    Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {},
                          t.model.images, waiting_disk());
    checkpoint.save(at(2), false);
    EXPECT(checkpoint.async() && checkpoint.saver.busy(), "it is not waited for");
    t.use();
    train_steps(t, 3);
    t.shake();
    Trace now;
    now.keep_state(t);
    EXPECT(!(now == then), "nothing has moved");
    go = true;
    checkpoint.finish();
    const std::string& folder = checkpoint.newest;
    EXPECT(folder == t.cfg.run.dir + "/step_2", "'%s'", folder.c_str());
    if (!folder.empty()) EXPECT(state_of(folder) == then, "it is not of step 2");
}

// Offloaded state has no second copy: its next update waits until it is written. The bytes on the disk are
// those of a run without offload.
TEST(offloaded_state_stays_until_it_is_written) {
    Config cfg = config_in("offloaded");
    Tiny plain(cfg);
    train_steps(plain, 2);
    Model& m = plain.model;
    Checkpoint(cfg, m.shards, m.votes, m.snapshot, {}, m.images).save(at(2), true);
    const std::string folder = cfg.run.dir + "/step_2", rank_file = folder + "/rank_00000.safetensors";
    const std::string bytes = read_file(rank_file);
    fs::remove_all(folder);
    cfg.memory.offload = Offload::Optimizer;
    Tiny t(cfg);
    train_steps(t, 2);
    Trace then, now;
    then.keep_state(t);
    Checkpoint checkpoint(cfg, t.model.shards, t.model.votes, t.model.snapshot, {},
                          t.model.images, waiting_disk());
    checkpoint.save(at(2), false);
    EXPECT(checkpoint.saver.busy(), "it is not waited for");
    bool stayed = false;
    std::thread later([&] {
        usleep(50000);
        stayed = t.values("m") == then.m;
        go = true;
    });
    train_steps(t, 1);
    later.join();
    checkpoint.finish();
    EXPECT(stayed, "an update while the disk waits");
    now.keep_state(t);
    EXPECT(now.m != then.m && read_file(rank_file) == bytes, "other bytes than without offload");
}

// A save due meanwhile is skipped, with a line; the last save waits for both.
TEST(one_at_a_time_and_the_last_waits) {
    Tiny t(config_in("due"));
    Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {},
                          t.model.images, waiting_disk());
    const std::string first = test::captured(2, [&] { checkpoint.save(at(1), false); });
    const std::string second = test::captured(2, [&] { checkpoint.save(at(2), false); });
    EXPECT(first.empty() && second.find("step 2 is skipped") != second.npos, "'%s' '%s'", first.c_str(),
           second.c_str());
    const std::string more = test::captured(2, [&] {        // the 2nd, 4th and 8th of 9 skips
        for (int i = 0; i < 8; i++) checkpoint.save(at(2), false);
    });
    EXPECT(std::count(more.begin(), more.end(), '\n') == 3 && more.find("(8 skipped so far)") != more.npos,
           "'%s'", more.c_str());
    std::thread later([] { usleep(50000); go = true; });
    const std::string said = test::captured(1, [&] { checkpoint.save(at(3), true); });
    later.join();
    const std::string& dir = t.cfg.run.dir;
    const bool kept = fs::exists(dir + "/step_1") && !fs::exists(dir + "/step_2");
    EXPECT(checkpoint.newest == dir + "/step_3" && kept, "'%s'", checkpoint.newest.c_str());
    EXPECT(said == "          saved  " + dir + "/step_1\n          saved  " + dir + "/step_3\n", "'%s'",
           said.c_str());
}

// The writing thread alone has low priority, and not while training waits.
TEST(only_the_writer_gives_way) {
    const auto own = [] { return getpriority(PRIO_PROCESS, id_t(gettid())); };
    Tiny t(config_in("nice"));
    std::atomic<int> writers = -100;
    Disk disk = posix_disk();
    disk.write = [&, below = disk.write](int file, const void* data, size_t bytes) {
        writers = own();
        return below(file, data, bytes);
    };
    Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images, disk);
    const int before = own();
    checkpoint.save(at(1), false), checkpoint.finish();
    EXPECT(checkpoint.saved == 1, "not saved");
    EXPECT(writers == std::min(before + 10, 19) && own() == before, "from %d: the writer at %d, this one at "
           "%d", before, writers.load(), own());
    checkpoint.save(at(2), true);
    EXPECT(checkpoint.saved == 2 && writers == before, "from %d: %d", before, writers.load());
}

// A failed save is a warning in a later step, and training continues; a failed last save ends the run.
TEST(a_failure_is_heard_of_later) {
    Tiny t(config_in("fails"));
    Disk disk = waiting_disk();
    bool fails = true;
    disk.sync = [&, below = disk.sync](int file) { return fails ? EIO : below(file); };
    Checkpoint checkpoint(t.cfg, t.model.shards, t.model.votes, t.model.snapshot, {}, t.model.images, disk);
    const auto steps = [&] {
        for (int i = 0; i < 5000 && checkpoint.saver.busy(); i++, usleep(100)) step_alone(checkpoint);
        return checkpoint.newest;
    };
    checkpoint.save(at(1), false);
    EXPECT(checkpoint.saver.busy(), "it is not waited for");
    go = true;
    const std::string said = test::captured(2, [&] { EXPECT(steps().empty(), "saved"); });
    EXPECT(said.find("step 1 is not saved") != said.npos && said.find("Training goes on") != said.npos,
           "'%s'", said.c_str());
    const Fatal end = test::fatal_of([&] { checkpoint.save(at(2), true); });
    EXPECT(end.code == 78 && strstr(end.what(), "run's last"), "code %d, '%s'", end.code, end.what());
    fails = false;
    checkpoint.save(at(3), false);
    const std::string folder = steps();
    EXPECT(folder == t.cfg.run.dir + "/step_3", "'%s'", folder.c_str());
}

}  // namespace PRECISION

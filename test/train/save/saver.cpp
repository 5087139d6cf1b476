// Saving on several ranks, as threads, each with a scripted disk: the ranks agree on the outcome after any
// fault on any rank, and training continues meanwhile.
#include "llmc/train/save/saver.h"

#include <atomic>
#include <cstring>
#include <filesystem>

#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/comm/votes.h"
#include "llmc/train/save/run_folder.h"
#include "test/faulty_disk.h"
#include "test/ranks.h"
#include "test/saving.h"

namespace fs = std::filesystem;
using namespace test;

static constexpr int kRanks = 3;

// In memory, since much is synced here.
static std::string fresh_folder() {
    struct Folder {
        std::string path =
            (fs::exists("/dev/shm") ? "/dev/shm" : temporary_directory()) + "/saver_" +
            std::to_string(getpid());
        ~Folder() { fs::remove_all(path); }
    };
    static const Folder folder;
    fs::remove_all(folder.path);
    return folder.path;
}

// The folder of a run with steps 1 and 2 in it: the next save removes the first.
static std::string two_checkpoints() {
    const std::string dir = fresh_folder();
    int64_t acknowledged = 0;
    run_to(posix_disk(), dir, kRanks, 2, &acknowledged);
    return dir;
}

// A rank that saves.
struct Rank {
    const Axis& world;
    std::string dir;
    Votes votes = {};
    Saver saver;
    Share share;

    Rank(const Axis& world, const std::string& dir, Disk disk)
        : world(world), dir(dir), saver(world, two_are_kept(), votes, std::move(disk)) {}

    void begin(int64_t step, bool again = false, uint64_t bytes = 1000) {
        if (world.index == 0 && !again) log_row(posix_disk(), dir, step);
        share = share_of(world.index, world.size, step);
        const auto data = std::as_bytes(std::span(share.data));
        SaveJob job = {};
        job.place.run_dir = dir, job.place.step = step;
        job.pieces = share.pieces, job.total_bytes = bytes, job.manifest = head_of(step);
        job.data = {data.first(data.size() / 2), data.last(data.size() / 2)};
        job.extras.push_back({"config.json", shared_text("{}\n")});
        saver.begin(std::move(job));
    }
    // As at the end of each step.
    std::optional<Saver::Outcome> step() {
        votes.receive(sum_over(world, votes.send()).data());
        return saver.poll();
    }
    // Steps on until it is over.
    Saver::Outcome outcome() {
        for (;;) if (const auto o = step()) return *o;
    }
};

static void on_ranks(const std::function<void(const Axis&)>& body) {
    run_threads(config_of(kRanks), [&](Config, const Mesh& mesh) {
        body(mesh.world);
        return 0;
    });
}

// A save of step 3 with the fault on rank `faulty`, then a save of step 4 without. Returns the first outcome
// as each rank saw.
static std::vector<std::string> save_with(int faulty, const Fault& fault, const std::string& dir,
                                          std::shared_ptr<FaultCount> count) {
    std::vector<std::string> heard(kRanks);
    on_ranks([&](const Axis& world) {
        const bool mine = world.index == faulty;
        Rank rank(world, dir, mine ? faulty_disk(posix_disk(), fault, count) : posix_disk());
        rank.begin(3);
        const Saver::Outcome o = rank.outcome();
        EXPECT(o.step == 3 && o.error.empty() == (o.dir == dir + "/step_3"), "'%s' '%s'", o.dir.c_str(),
               o.error.c_str());
        heard[size_t(world.index)] = o.error;
        EXPECT(!rank.saver.busy(), "a save that is over");
        if (fault.action == Fault::None) return;
        EXPECT(!o.complete || (!o.error.empty() && fs::exists(dir + "/step_3/manifest.json")), "'%s'",
               o.error.c_str());
        if (!o.error.empty()) {
            rank.begin(3, true);
            const Saver::Outcome again = rank.outcome();
            EXPECT(again.dir == dir + "/step_3", "the same once more: '%s'", again.error.c_str());
        }
        rank.begin(4);
        const Saver::Outcome next = rank.outcome();
        EXPECT(next.dir == dir + "/step_4", "the next one: '%s'", next.error.c_str());
    });
    return heard;
}

TEST(all_ranks_agree_whatever_fails_on_one) {
    size_t failed = 0, warned = 0;
    for (int faulty = 0; faulty < kRanks; faulty++) {
        auto count = std::make_shared<FaultCount>();
        EXPECT(save_with(faulty, {}, two_checkpoints(), count)[0].empty(), "without a fault");
        for (const int code : {ENOSPC, EIO, EDQUOT})
            for (int64_t at = 0; at < count->operations; at++) {
                const std::string dir = two_checkpoints();
                const Fault fault{.action = Fault::Error, .at = at, .bytes = size_t(at % 50), .code = code};
                const auto heard = save_with(faulty, fault, dir, std::make_shared<FaultCount>());
                for (const std::string& h : heard)
                    EXPECT(h == heard[0], "'%s', '%s'", h.c_str(), heard[0].c_str());
                const bool says = heard[0].starts_with(fmt::format("rank {}: ", faulty)) &&
                                  heard[0].find(strerror(code)) != heard[0].npos;
                EXPECT(heard[0].empty() || says, "rank %d, operation %ld: '%s'", faulty, at,
                       heard[0].c_str());
                (heard[0].empty() ? warned : failed)++;
                const std::string wrong = first_fault(posix_disk(), dir, 4);
                EXPECT(wrong.empty(), "rank %d, operation %ld: %s", faulty, at, wrong.c_str());
            }
        const auto heard = save_with(faulty, {.action = Fault::Short, .at = 0, .bytes = 3, .lasting = true},
                                     two_checkpoints(), std::make_shared<FaultCount>());
        EXPECT(heard[0].empty(), "short writes: '%s'", heard[0].c_str());
    }
    printf("%zu operations fail the save, %zu of pruning do not\n", failed, warned);
    EXPECT(failed > 100 && warned < failed / 4, "%zu and %zu", failed, warned);
}

// The old checkpoint stays where a disk that is full stays full.
TEST(a_full_disk_keeps_what_is_there) {
    const std::string dir = two_checkpoints();
    on_ranks([&](const Axis& world) {
        const Fault fault{.action = Fault::Error, .at = 3, .code = ENOSPC, .lasting = true};
        const Disk full = faulty_disk(posix_disk(), fault, std::make_shared<FaultCount>());
        Rank rank(world, dir, world.index == 1 ? full : posix_disk());
        for (const int64_t step : {3, 4}) {
            rank.begin(step);
            EXPECT(rank.outcome().error.starts_with("rank 1: "), "step %ld", step);
            world.barrier();
            const std::string begun = fmt::format("step_{}.tmp-", step);
            for (const fs::directory_entry& left : fs::directory_iterator(dir))
                EXPECT(!left.path().filename().string().starts_with(begun), "%s is left",
                       left.path().c_str());
        }
    });
    const std::string wrong = first_fault(posix_disk(), dir, 2);
    EXPECT(wrong.empty(), "%s", wrong.c_str());
}

// Free space is checked before any rank writes; a single rank without room is enough.
TEST(no_room_on_one_rank) {
    const std::string dir = two_checkpoints();
    std::atomic<int64_t> free = 1000, written = 0;
    on_ranks([&](const Axis& world) {
        Disk disk = posix_disk();
        disk.free_bytes = [&](auto&, uint64_t* bytes) { *bytes = uint64_t(free.load()); return 0; };
        disk.write = [&, below = disk.write](int file, const void* data, size_t bytes) {
            free -= int64_t(bytes), written += int64_t(bytes);
            return below(file, data, bytes);
        };
        if (world.index > 0) usleep(20000);             // the others would be writing by now
        Rank rank(world, dir, disk);
        rank.begin(3);
        EXPECT(rank.outcome().dir == dir + "/step_3", "there was room for all");
        if (world.index == 2) free = 999, written = 0;
        world.barrier();
        rank.begin(4);
        const Saver::Outcome o = rank.outcome();
        EXPECT(o.error.find("rank 0: no room") == 0 && written == 0, "'%s'", o.error.c_str());
        EXPECT(!fs::exists(dir + "/step_4.tmp-2"), "something is left");
    });
}

// Whether there is room cannot be told: no figure is made up.
TEST(a_run_dir_that_is_gone) {
    const std::string dir = two_checkpoints();
    fs::remove_all(dir);
    on_ranks([&](const Axis& world) {
        Rank rank(world, dir, posix_disk());
        rank.begin(3);
        const std::string error = rank.outcome().error;
        EXPECT(error == "rank 0: cannot look for room in " + dir + ": No such file or directory", "'%s'",
               error.c_str());
    });
}

// A host that has another folder under the name of run.dir.
TEST(a_folder_that_not_all_see) {
    const std::string dir = two_checkpoints();
    const auto on_all = [&](bool (*others)(const std::string&)) {
        return fatal_of([&] {
            on_ranks([&](const Axis& world) {
                check_shared(dir, world, world.index == 1 ? others : file_exists, 5, 1);
            });
        });
    };
    const Fatal e = on_all([](const std::string&) { return false; });
    EXPECT(e.code == 78 && strstr(e.what(), "1 of 3 ranks do not see"), "code %d, '%s'", e.code, e.what());
    EXPECT(on_all(file_exists).code == 0, "a folder that all see");
    // NFS forgets after a while that a name was not there
    static std::atomic<int> looks;
    looks = 0;
    const auto late = [](const std::string&) { return ++looks == 4; };
    const int code = on_all(late).code;
    EXPECT(code == 0 && looks == 4, "code %d after %d looks", code, looks.load());
    for (const auto& entry : fs::directory_iterator(dir))
        EXPECT(entry.path().filename().string().find("tmp") == std::string::npos, "%s", entry.path().c_str());
}

// ---------------------------------------------------------------------------------------------------------
// beside training

// Steps continue beside a slow disk; every rank learns of the save in the same later step.
TEST(steps_go_on_meanwhile) {
    const std::string dir = two_checkpoints();
    std::atomic<bool> go = false;
    std::vector<int> steps(kRanks);
    on_ranks([&](const Axis& world) {
        Disk disk = posix_disk();
        disk.write = [&, below = disk.write](int file, const void* data, size_t bytes) {
            while (!go) usleep(100);
            return below(file, data, bytes);
        };
        Rank rank(world, dir, disk);
        rank.begin(3);
        for (int i = 0; i < 20; i++) EXPECT(!rank.step() && rank.saver.busy(), "step %d: over", i);
        EXPECT(!fs::exists(dir + "/step_3"), "there before it is written");
        world.barrier();
        go = true;
        std::optional<Saver::Outcome> o;
        for (; !o; steps[size_t(world.index)]++) o = rank.step();
        EXPECT(o->dir == dir + "/step_3" && fs::exists(o->dir + "/manifest.json"), "'%s'", o->error.c_str());
        EXPECT(!rank.step() && !rank.saver.finish(), "heard of twice");
    });
    EXPECT(steps[0] >= 2 && steps[1] == steps[0] && steps[2] == steps[0], "%d, %d, %d", steps[0], steps[1],
           steps[2]);
}

// The end of a run waits.
TEST(finish_waits) {
    const std::string dir = two_checkpoints();
    on_ranks([&](const Axis& world) {
        Disk disk = posix_disk();
        disk.sync = [below = disk.sync](int file) { usleep(5000); return below(file); };
        Rank rank(world, dir, disk);
        rank.begin(3);
        const auto o = rank.saver.finish();
        EXPECT(o && o->dir == dir + "/step_3" && !rank.saver.busy(), "not finished");
    });
}

// At the end of a large checkpoint a sync writes gigabytes: as long as a slow disk needs for the bytes of all
// ranks, the waiting ranks send heartbeats.
TEST(a_long_sync_is_no_hang) {
    for (const bool large : {true, false}) {
        const std::string dir = two_checkpoints();
        std::atomic<uint64_t> beats = 0;
        on_ranks([&](const Axis& world) {
            RankProgress progress = {};
            context.progress = &progress;
            Disk disk = posix_disk();
            disk.free_bytes = [](auto&, uint64_t* bytes) { *bytes = uint64_t(1) << 40; return 0; };
            std::atomic<bool> first = world.index == 1;
            disk.sync = [&, below = disk.sync](int file) {
                if (!first.exchange(false)) return below(file);
                usleep(200000);                     // the rank waits for the save by now
                const uint64_t before = progress.beats;
                usleep(500000);
                beats = progress.beats - before;
                return below(file);
            };
            Rank rank(world, dir, disk);
            rank.begin(3, false, large ? uint64_t(1) << 30 : 1000);
            EXPECT(rank.saver.finish(), "not finished");
            context.progress = nullptr;
        });
        EXPECT(large ? beats >= 2 : beats == 0, "%lu heartbeats, large %d", beats.load(), large);
    }
}

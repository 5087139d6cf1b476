// A power cut in any state loses nothing that was acknowledged, and no damaged checkpoint is taken for a good
// one. Each promise is seen to be broken by a protocol that leaves a step out.
#include <filesystem>

#include "test/saving.h"
#include "test/simulated_disk.h"

namespace fs = std::filesystem;
using namespace test;

static constexpr const char* kRun = "/run";

struct Outcome { size_t states = 0, lost = 0, corrupt = 0, other = 0; std::string first; };

// `spoil` takes something away from the disk that the run writes to.
using Spoil = void (*)(Disk&);

// Cuts the power before each operation of a run of three saves; `states` random survivors of each.
static Outcome cut_everywhere(int ranks, int states, Spoil spoil, const Mutant& mutant = {}) {
    Outcome o;
    std::mt19937_64 rng(11);
    for (int64_t at = 0;; at++) {
        SimulatedDisk medium;
        medium.tree["/run"] = {kRun, nullptr, true};
        medium.durable = medium.tree;
        medium.stop_at = at;
        Disk disk = medium.disk();
        spoil(disk);
        int64_t acknowledged = 0;
        bool cut = false;
        try {
            run_to(disk, kRun, ranks, 3, &acknowledged, mutant);
        } catch (const SimulatedDisk::PowerCut&) {
            cut = true;
        }
        for (int i = 0; i < states; i++, o.states++) {
            SimulatedDisk left = medium.after_power_cut(rng);
            const std::string wrong = verdict(left.disk(), kRun, acknowledged);
            if (wrong.empty()) continue;
            if (o.first.empty()) o.first = strf("before operation %ld: ", at) + wrong;
            (wrong.starts_with("lost") ? o.lost : wrong.starts_with("corrupt") ? o.corrupt : o.other)++;
        }
        if (!cut) return o;
    }
}

static void nothing(Disk&) {}

TEST(a_power_cut_loses_nothing) {
    for (const int ranks : {1, 2, 4}) {
        const Outcome o = cut_everywhere(ranks, 40, nothing);
        printf("%d ranks: %zu states\n", ranks, o.states);
        EXPECT(o.states > 2000 && o.first.empty(),
               "%d ranks, %zu states: %zu lost, %zu corrupt, %zu else; %s", ranks,
               o.states, o.lost, o.corrupt, o.other, o.first.c_str());
    }
}

TEST(without_sync_of_the_parent_checkpoints_are_lost) {
    const Outcome o = cut_everywhere(1, 40, [](Disk& d) {
        d.sync_folder = [below = d.sync_folder](auto& path) { return path == kRun ? 0 : below(path); };
    });
    EXPECT(o.lost > 0, "%zu states, none lost", o.states);
}

TEST(without_sync_of_files_checkpoints_are_damaged) {
    const Outcome o = cut_everywhere(1, 40, [](Disk& d) { d.sync = [](int) { return 0; }; });
    EXPECT(o.corrupt + o.lost > 0, "%zu states, all good", o.states);
}

TEST(manifest_before_the_data_leaves_damage) {
    const Outcome o = cut_everywhere(2, 40, nothing, {.unsynced_parts = true});
    EXPECT(o.corrupt + o.lost > 0, "%zu states, all good", o.states);
}

// ---------------------------------------------------------------------------------------------------------
// damage

struct Kept { SimulatedDisk medium; Disk disk; };
static void two_checkpoints(Kept& k) {
    k.medium.tree["/run"] = {kRun, nullptr, true};
    k.disk = k.medium.disk();
    int64_t acknowledged = 0;
    run_to(k.disk, kRun, 2, 2, &acknowledged);
    CHECK(acknowledged == 2, "two checkpoints");
}

// The damage is seen, the file is named, the older checkpoint is used.
static void expect_older(Kept& k, const std::string& file, const char* what, size_t at) {
    const Recovery r = recover(k.disk, kRun);
    EXPECT(r.manifest && r.manifest->step == 1, "%s at %zu of %s: not step 1", what, at, file.c_str());
    EXPECT(r.damaged.size() == 1 && r.damaged[0].find("/run/step_2/" + file + ":") == 0 &&
           r.damaged[0].find("step_2.damaged") != std::string::npos, "%s at %zu of %s: said %s", what, at,
           file.c_str(), r.damaged.empty() ? "nothing" : r.damaged[0].c_str());
}

TEST(every_truncation_and_every_flipped_bit_is_seen) {
    Kept first;
    two_checkpoints(first);
    std::vector<std::string> files;
    first.disk.list("/run/step_2", &files);
    EXPECT(files.size() == 4, "%zu files: two parts, config and manifest expected", files.size());
    for (const std::string& file : files) {
        const std::string path = "/run/step_2/" + file, whole = first.medium.tree[path].file->content;
        for (size_t at = 0; at < whole.size(); at++)
            for (const bool cut : {true, false}) {
                Kept k;
                two_checkpoints(k);
                std::string& content = k.medium.tree[path].file->content;
                if (cut) content.resize(at);
                else content[at] = char(content[at] ^ 1 << (at % 8));
                expect_older(k, file, cut ? "cut" : "bit flipped", at);
            }
    }
}

// Which tensor: the values of "w" are behind the header.
TEST(the_tensor_is_named) {
    Kept k;
    two_checkpoints(k);
    const Verified v = verify_checkpoint(k.disk, "/run/step_2");
    const SavedPiece& p = v.manifest->pieces.at(0);
    k.medium.tree["/run/step_2/" + p.file].file->content[size_t(p.at)] ^= 1;
    const std::string problem = verify_checkpoint(k.disk, "/run/step_2").problem;
    EXPECT(problem.find("master of w") != problem.npos, "%s", problem.c_str());
    EXPECT(verify_checkpoint(k.disk, "/run/step_2", Check::Sizes).problem.empty(),
           "without hashes a flipped bit goes unnoticed: this test can fail");
}

TEST(none_left_is_hopeless) {
    Kept k;
    EXPECT(!recover(k.medium.disk(), kRun).hopeless, "no folder: a new run");
    two_checkpoints(k);
    for (const char* step : {"step_1", "step_2"})
        k.medium.tree["/run/" + std::string(step) + "/manifest.json"].file->content[3] ^= 8;
    const Recovery r = recover(k.disk, kRun);
    EXPECT(!r.manifest && r.hopeless && r.damaged.size() == 2, "%zu set aside", r.damaged.size());
    EXPECT(recover(k.disk, kRun).hopeless, "and the next time as well");
}

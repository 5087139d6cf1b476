// A power cut in any state loses no acknowledged checkpoint, and recovery accepts no damaged checkpoint. Each
// promise is seen broken by a protocol with a missing step.
#include <cstring>
#include <random>
#include <set>
#include <unordered_set>

#include "test/saving.h"
#include "test/simulated_disk.h"

using namespace test;

// The run makes its folder, and the one above.
static constexpr const char* kRun = "/vol/runs/a";

// Most states of a cut to test. More in `make test-full`.
static const bool kAll = getenv("CRASH_POINTS") && !strcmp(getenv("CRASH_POINTS"), "all");
static const size_t kEnumerated = kAll ? 4096 : kAddressSanitizer ? 32 : 512, kSampled = kAll ? 512 : 32;

static SimulatedDisk empty_disk() {
    SimulatedDisk d;
    d.tree["/vol"] = {"/vol", nullptr, true};
    d.durable = d.tree;
    return d;
}

// A save in another order: the manifest with names and hashes, the rename, the acknowledgement; then the
// shares.
static std::string save_manifest_first(const Disk& disk, const std::string& dir, int64_t step, int ranks) {
    SimulatedDisk elsewhere = empty_disk();
    const Disk draft = elsewhere.disk();
    (void)save(draft, "/vol", step, ranks, 1);
    const SavePlace place{.run_dir = dir, .step = step, .attempt = 1};
    const auto copy = [&](const std::string& name, const std::string& folder) {
        const std::string from = "/vol/step_" + std::to_string(step) + "/" + name;
        const std::string content = elsewhere.tree[from].file->content;
        int file;
        if (disk.create(folder + "/" + name, &file)) return;
        (void)write_whole(disk, file, content.data(), content.size());
        (void)disk.sync(file), (void)disk.close(file);
    };
    (void)disk.make_folder(place.temporary());
    copy(kManifest, place.temporary());
    (void)disk.sync_folder(place.temporary());
    (void)disk.rename(place.temporary(), place.folder());
    (void)disk.sync_folder(dir);
    DiskQueue acknowledge;
    add_acknowledgement(acknowledge, disk, place);
    acknowledge.run();
    copy("config.json", place.folder());
    for (int r = 0; r < ranks; r++) copy(fmt::format("rank_{:05}.safetensors", r), place.folder());
    (void)disk.sync_folder(place.folder());
    return acknowledge.error;
}

struct Outcome {
    size_t states = 0, enumerated = 0, cuts = 0, twice = 0, bad = 0, lost = 0, corrupt = 0, accepted = 0;
    std::string first;

    // lost, corrupt, accepted for good though it is not
    void count(const std::string& wrong, int64_t at) {
        states++;
        if (wrong.empty()) return;
        if (first.empty()) first = fmt::format("before operation {}: ", at) + wrong;
        bad++, lost += wrong.starts_with("lost"), corrupt += wrong.starts_with("corrupt");
        accepted += wrong.find("was saved") != wrong.npos;
    }
};

// `spoil` takes something away from the disk that the run writes to.
using Spoil = void (*)(Disk&);
static void nothing(Disk&) {}

// False: the power failed.
static bool run_until_cut(SimulatedDisk& medium, int ranks, Spoil spoil, const Mutant& mutant,
                          int64_t* acknowledged) {
    Disk disk = medium.disk();
    spoil(disk);
    try {
        run_to(disk, kRun, ranks, 3, acknowledged, mutant);
    } catch (const SimulatedDisk::PowerCut&) {
        return false;
    }
    return true;
}

static SimulatedDisk::Choice any_choice(SimulatedDisk::Choice most, std::mt19937_64& rng) {
    for (uint64_t& n : most) n = rng() % 3 ? (rng() % 2 ? n : 0) : rng() % (n + 1);
    return most;
}

// States that a cut may leave, each write lost, half done or done; a sample if too many.
static std::vector<SimulatedDisk::Choice> choices_of(const SimulatedDisk& medium, std::mt19937_64& rng,
                                                     Outcome& o) {
    const SimulatedDisk::Choice most = medium.undecided();
    std::vector<SimulatedDisk::Choice> all = {{}};
    for (const uint64_t n : most) {
        std::vector<SimulatedDisk::Choice> longer;
        for (const auto& choice : all)
            for (const uint64_t pick : std::set<uint64_t>{0, n / 2, n}) {
                longer.push_back(choice);
                longer.back().push_back(pick);
            }
        all = std::move(longer);
        if (all.size() <= kEnumerated) continue;
        all.clear();
        for (size_t i = 0; i < kSampled; i++) all.push_back(any_choice(most, rng));
        return all;
    }
    o.enumerated++;
    return all;
}

// Cuts the power before each operation of a run of three saves, and looks at the distinct states that may be
// left; on some the run goes on, to a second cut.
static Outcome cut_everywhere(int ranks, Spoil spoil, const Mutant& mutant = {}) {
    Outcome o;
    std::mt19937_64 rng(11);
    std::unordered_set<size_t> seen;
    const bool sizes = mutant.check == Check::Sizes;    // slow under ASan: some of what is broken has to do
    for (bool ended = false; !ended && !(kAddressSanitizer && (sizes ? o.accepted : o.bad / 20)); o.cuts++) {
        SimulatedDisk medium = empty_disk();
        const int64_t at = medium.stop_at = int64_t(o.cuts);
        int64_t acknowledged = 0;
        ended = run_until_cut(medium, ranks, spoil, mutant, &acknowledged);
        for (const SimulatedDisk::Choice& choice : choices_of(medium, rng, o)) {
            SimulatedDisk left = medium.after_power_cut(choice);
            if (!seen.insert(left.fingerprint() * 4 + size_t(acknowledged)).second) continue;
            if (rng() % 4 == 0) {
                SimulatedDisk again = medium.after_power_cut(choice);
                again.stop_at = int64_t(rng() % 60);
                int64_t known = acknowledged;
                (void)run_until_cut(again, ranks, spoil, mutant, &known);
                SimulatedDisk last = again.after_power_cut(any_choice(again.undecided(), rng));
                o.count(first_fault(last.disk(), kRun, known, false, mutant.check), at);
                o.twice++;
            }
            o.count(first_fault(left.disk(), kRun, acknowledged, false, mutant.check), at);
        }
    }
    return o;
}

TEST(a_power_cut_loses_nothing) {
    for (const int ranks : {1, 2, 4}) {
        if (test::kAddressSanitizer && ranks != 2) continue;        // ten times slower there
        const Outcome o = cut_everywhere(ranks, nothing);
        printf("%d ranks: %zu distinct states of %zu cuts, all there are of %zu; %zu after a second cut\n",
               ranks, o.states, o.cuts, o.enumerated, o.twice);
        EXPECT(o.states > 500 && o.twice > 100 && o.first.empty(),
               "%d ranks, %zu states: %zu bad, %zu lost, %zu corrupt; %s", ranks, o.states, o.bad, o.lost,
               o.corrupt, o.first.c_str());
    }
}

TEST(without_sync_of_the_parent_checkpoints_are_lost) {
    const Outcome o = cut_everywhere(1, [](Disk& d) {
        d.sync_folder = [below = d.sync_folder](auto& path) { return path == kRun ? 0 : below(path); };
    });
    EXPECT(o.lost > 0, "%zu states, none lost", o.states);
}

TEST(without_sync_of_the_folders_above_all_is_lost) {
    const Outcome o = cut_everywhere(1, [](Disk& d) {
        d.sync_folder = [below = d.sync_folder](auto& path) { return path == "/vol/runs" ? 0 : below(path); };
    });
    EXPECT(o.lost > 0, "%zu states, none lost", o.states);
}

TEST(without_sync_of_files_checkpoints_are_damaged) {
    const Outcome o = cut_everywhere(1, [](Disk& d) { d.sync = [](int) { return 0; }; });
    EXPECT(o.corrupt + o.lost > 0, "%zu states, all good", o.states);
}

TEST(without_sync_of_the_rows_they_are_lost) {
    const Outcome o = cut_everywhere(1, nothing, {.unsynced_rows = true});
    EXPECT(o.lost > 0 && o.first.find("rows") != o.first.npos, "%zu states; %s", o.states, o.first.c_str());
}

TEST(without_sync_between_rename_and_removal_old_ones_are_damaged) {
    const Outcome o = cut_everywhere(1, nothing, {.unsynced_prune = true});
    EXPECT(o.corrupt > 0, "%zu states, all good", o.states);
}

TEST(shares_that_are_not_synced_leave_damage) {
    const Outcome o = cut_everywhere(2, nothing, {.unsynced_shares = true});
    EXPECT(o.corrupt > 0 && o.accepted == 0, "%zu states, %zu corrupt, %zu of them accepted", o.states,
           o.corrupt, o.accepted);
}

TEST(without_hashes_they_are_accepted) {
    const Outcome o = cut_everywhere(2, nothing, {.unsynced_shares = true, .check = Check::Sizes});
    EXPECT(o.accepted > 0, "%zu states, none accepted", o.states);
}

TEST(manifest_first_leaves_damage) {
    const Outcome o = cut_everywhere(2, nothing, {.save = save_manifest_first});
    EXPECT(o.corrupt > 0, "%zu states, all good", o.states);
}

// ---------------------------------------------------------------------------------------------------------
// damage

struct Kept { SimulatedDisk medium; Disk disk; };
static void two_checkpoints(Kept& k) {
    k.medium = empty_disk();
    k.disk = k.medium.disk();
    int64_t acknowledged = 0;
    run_to(k.disk, kRun, 2, 2, &acknowledged);
    CHECK(acknowledged == 2, "two checkpoints");
}
static std::string in_run(const std::string& name) { return std::string(kRun) + "/" + name; }

// The damage is seen, file and tensors are named, the older checkpoint is used. tensors: those hit.
static void expect_older(Kept& k, const std::string& file, const std::vector<std::string>& tensors,
                         const char* what, size_t at) {
    const Recovery r = recover(k.disk, kRun);
    EXPECT(r.manifest && r.manifest->step == 1, "%s at %zu of %s: not step 1", what, at, file.c_str());
    const std::string said = r.damaged.empty() ? "nothing" : r.damaged[0];
    EXPECT(r.damaged.size() == 1 && said.starts_with(in_run("step_2/" + file + ":")) &&
           said.find("step_2.damaged") != std::string::npos, "%s at %zu of %s: said %s", what, at,
           file.c_str(), said.c_str());
    for (const std::string& tensor : tensors)
        EXPECT(said.find(tensor) != said.npos, "%s at %zu of %s: no %s in %s", what, at, file.c_str(),
               tensor.c_str(), said.c_str());
}

// Arrays of tensors that have a byte of the file in [begin, end).
static std::vector<std::string> tensors_at(const Manifest& m, const std::string& file, uint64_t begin,
                                           uint64_t end) {
    std::vector<std::string> names;
    for (const SavedPiece& p : m.pieces)
        if (p.file == file && p.at < end && p.at + p.bytes() > begin)
            names.push_back(p.array + " of " + p.tensor);
    return names;
}

TEST(every_truncation_and_every_flipped_bit_is_seen) {
    Kept first;
    two_checkpoints(first);
    const Manifest m = *verify_checkpoint(first.disk, in_run("step_2")).manifest;
    std::vector<std::string> files;
    first.disk.list(in_run("step_2"), &files);
    EXPECT(files.size() == 4, "%zu files: two shares, config and manifest expected", files.size());
    size_t accepted = 0, named = 0;
    const size_t step = kAddressSanitizer ? 17 : 1;     // ten times slower
    for (const std::string& file : files) {
        const std::string path = in_run("step_2/" + file), whole = first.medium.tree[path].file->content;
        for (size_t at = 0; at < whole.size(); at += step)
            for (const bool cut : {true, false}) {
                Kept k;
                two_checkpoints(k);
                std::string& content = k.medium.tree[path].file->content;
                if (cut) content.resize(at);
                else content[at] = char(content[at] ^ 1 << (at % 8));
                accepted += !first_fault(k.disk, kRun, 0, true, Check::Sizes).empty();
                const auto tensors = tensors_at(m, file, at, cut ? whole.size() : at + 1);
                named += !tensors.empty();
                expect_older(k, file, tensors, cut ? "cut" : "bit flipped", at);
            }
    }
    EXPECT(accepted * step > 100 && named * step > 200,
           "%zu flips go unnoticed without hashes; %zu times a tensor was to be named", accepted, named);
}

// Of a file of several chunks, the tensors of the chunk that is damaged.
TEST(no_other_tensor_is_named) {
    Kept k;
    k.medium = empty_disk();
    k.disk = k.medium.disk();
    const std::vector<float> values(2 * 400000, 1.0f);
    const auto data = std::as_bytes(std::span(values));
    std::vector<SavedPiece> pieces;
    for (const char* tensor : {"a", "b"})
        pieces.push_back({.tensor = tensor, .array = "m", .dtype = "F32", .shape = {400000}, .start = {0},
                          .extent = {400000}, .file = "", .at = 0});
    const SavePlace place{.run_dir = "/vol", .step = 1, .attempt = 1};
    save_share(k.disk, place, 0, pieces, {data.first(data.size() / 2), data.last(data.size() / 2)}).run();
    save_publish(k.disk, place, head_of(1), {0}, {}).run();
    std::string& content = k.medium.tree["/vol/step_1/rank_00000.safetensors"].file->content;
    for (const bool second : {false, true}) {
        const size_t at = second ? content.size() - 1 : 1000;
        content[at] ^= 1;
        const std::string problem = verify_checkpoint(k.disk, "/vol/step_1").problem;
        content[at] ^= 1;
        EXPECT((problem.find("m of a") == problem.npos) == second &&
               (problem.find("m of b") == problem.npos) != second, "%zu: %s", at, problem.c_str());
    }
}

TEST(none_left_is_all_damaged) {
    Kept k;
    EXPECT(!recover(k.medium.disk(), kRun).all_damaged, "no folder: a new run");
    two_checkpoints(k);
    for (const char* step : {"step_1", "step_2"})
        k.medium.tree[in_run(step) + "/manifest.json"].file->content[3] ^= 8;
    const Recovery r = recover(k.disk, kRun);
    EXPECT(!r.manifest && r.all_damaged && r.damaged.size() == 2, "%zu set aside", r.damaged.size());
    EXPECT(recover(k.disk, kRun).all_damaged, "and the next time as well");
}

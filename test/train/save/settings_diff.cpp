// Settings that may change on resume, and the messages.
#include "llmc/train/save/settings_diff.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/train/save/resume.h"
#include "test/test.h"

static SettingsDiff diff_of(const std::vector<std::pair<std::string, std::string>>& changes) {
    const Config saved;
    Config now;
    for (const auto& [key, value] : changes) set_value(now, key, value);
    return settings_diff(saved, now);
}

TEST(nothing_changed) {
    const SettingsDiff d = diff_of({});
    EXPECT(d.table.empty() && d.refused.empty(), "'%s'", d.table.c_str());
}

TEST(what_changes_the_math_is_refused) {
    for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
             {"model.layers", "3"}, {"data.train", "other.bin"}, {"optimizer.lr", "1e-2"}, {"run.seed", "9"},
             {"optimizer.kind", "muon"},
             {"run.precision", "fp64"}, {"train.batch_tokens", "1024"}, {"train.steps", "77"}}) {
        const SettingsDiff d = diff_of({{key, value}});
        EXPECT(d.refused == "\"" + key + "\"", "%s: '%s'", key.c_str(), d.refused.c_str());
        for (const char* word : {key.c_str(), "refused", "checkpoint", "now", "effective"})
            EXPECT(d.table.find(word) != std::string::npos, "no '%s' in '%s'", word, d.table.c_str());
        const SettingsDiff allowed = diff_of({{key, value}, {"checkpoint.override", "[\"" + key + "\"]"}});
        EXPECT(allowed.refused.empty() && allowed.table.find("refused") == std::string::npos, "%s",
               allowed.table.c_str());
    }
}

TEST(a_change_of_the_optimizer_names_both) {
    const std::string table = diff_of({{"optimizer.kind", "muon"}}).table;
    EXPECT(table.find("adamw") != table.npos && table.find("muon") != table.npos, "'%s'", table.c_str());
    Origin origin{.folder = "step_4", .manifest = {}, .settings = {}};
    origin.manifest.state = to_json(RunState());
    Config now;
    now.optimizer.kind = OptimizerKind::Muon, now.optimizer.lr = 0.5;
    now.data.train = {{std::string(60, 'x')}};
    const std::string line = test::fatal_of([&] { check_settings(now, origin, {}, false); }).what();
    for (const char* words : {"step_4: these settings change", "optimizer.kind \"adamw\" -> \"muon\"",
                              "optimizer.lr 3e-04 -> 0.5", "(data.train, "})
        EXPECT(line.find(words) != line.npos, "no '%s' in '%s'", words, line.c_str());
}

TEST(another_type_of_moments_says_what_becomes_of_them) {
    Config full, rounded;
    rounded.optimizer.state = StateDtype::Bf16, rounded.optimizer.master = false;
    full.checkpoint.override_ = rounded.checkpoint.override_ = {"optimizer.state", "optimizer.master"};
    const auto expect_line = [](const Config& was, const Config& is, const char* line) {
        const SettingsDiff d = settings_diff(was, is);
        EXPECT(d.refused.empty() && d.table.find(line) != std::string::npos, "'%s'", d.table.c_str());
    };
    expect_line(full, rounded, "  the checkpoint's moments are rounded to the nearest bf16\n");
    expect_line(rounded, full, "  the checkpoint's moments begin as they are, in bf16\n");
    expect_line(full, rounded, "  the checkpoint's masters are not read: its bf16 weights go on\n");
    expect_line(rounded, full, "  the checkpoint has no masters: they begin as its bf16 weights\n");
    const std::string other = diff_of({{"optimizer.lr", "1"}}).table;
    EXPECT(other.find("moments") == std::string::npos, "'%s'", other.c_str());
}

TEST(what_does_not_is_only_shown) {
    for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
             {"parallel.tp", "2"}, {"memory.recompute", "block"}, {"eval.every", "7"},
             {"checkpoint.every", "3"}}) {
        const SettingsDiff d = diff_of({{key, value}});
        EXPECT(d.refused.empty() && d.table.find(key) != std::string::npos, "%s: '%s'", key.c_str(),
               d.table.c_str());
    }
    EXPECT(diff_of({{"run.dir", "elsewhere"}}).table.empty(), "the folder says nothing about the run");
    // a constant learning rate does not depend on the length of the run
    Config saved, now;
    saved.optimizer.schedule = now.optimizer.schedule = "constant";
    now.train.steps = 5000;
    EXPECT(settings_diff(saved, now).refused.empty(), "more steps");
}

// The checkpoint has the resolved settings; settings on auto take these values. The tokenizer's file may be
// gone: the checkpoint's copy counts as unchanged.
TEST(open_settings_take_the_checkpoints_value) {
    Origin origin{.folder = test::temporary_directory(), .manifest = {}, .settings = {}};
    origin.manifest.state = to_json(RunState());
    const std::string file = origin.folder + "/mine.json";
    write_file(file, "");
    origin.settings.model.vocab = 50257, origin.settings.data.tokenizer = file;
    Config open, closed;
    adopt_open_settings(open, origin, false);
    EXPECT(open.model.vocab == 50257 && open.data.tokenizer == file, "%d, '%s'", open.model.vocab,
           open.data.tokenizer.c_str());
    EXPECT(settings_diff(origin.settings, open).table.empty(), "%s",
           settings_diff(origin.settings, open).table.c_str());
    closed.model.vocab = 7, closed.data.tokenizer = "other.json";
    adopt_open_settings(closed, origin, false);
    EXPECT(closed.model.vocab == 7 && closed.data.tokenizer == "other.json", "what is set stays");

    std::filesystem::remove(file);
    Config moved;
    adopt_open_settings(moved, origin, false);
    EXPECT(moved.data.tokenizer == origin.folder + "/tokenizer.json", "'%s'", moved.data.tokenizer.c_str());
    EXPECT(test::fatal_of([&] { check_settings(moved, origin, {}, false); }).code == 0, "its own tokenizer");
    EXPECT(test::fatal_of([&] { check_settings(closed, origin, {}, false); }).code == 78, "another one");
}

// ---------------------------------------------------------------------------------------------------------
// data

static std::string bytes_of(size_t count) {
    std::string bytes(count, '\0');
    for (size_t i = 0; i < count; i++) bytes[i] = char(i * 7 + i / 256);
    return bytes;
}

static FileContent content(const std::string& name, const std::string& bytes) {
    const std::string path = test::folder(name);
    write_file(path, bytes);
    return content_of_file(path);
}

// Of a large file: first byte, last byte, a shift, another size; whatever the name.
TEST(a_changed_file_has_another_hash) {
    for (const size_t size : {size_t(1000), size_t(kHashedWhole) + 12345}) {
        const std::string bytes = bytes_of(size);
        const FileContent before = content("before", bytes);
        EXPECT(before.same(content("renamed", bytes)) && before.size == size, "%zu bytes", size);
        std::string first = bytes, last = bytes, shifted = bytes;
        first.front() ^= 1, last.back() ^= 1;
        std::rotate(shifted.begin(), shifted.begin() + ptrdiff_t(size / 2), shifted.end());
        const std::string longer = bytes + '\0';
        for (const std::string& changed : {first, last, shifted, longer})
            EXPECT(!before.same(content("changed", changed)), "%zu bytes", size);
    }
}

// Large files are read in part; a shard of 200 MB costs what one of 20 MB does.
TEST(a_large_file_is_hashed_in_parts) {
    std::string bytes = bytes_of(2 * kHashedWhole);
    const FileContent before = content("parts", bytes);
    bytes[kHashedBlock + 1] ^= 1;       // between the first two blocks
    EXPECT(before.same(content("parts", bytes)), "read whole");
}

static SettingsDiff diff_of_data(const Config& saved, const Config& now, uint64_t hash, uint64_t now_hash,
                                 const char* key = "data.train") {
    const Contents a = {{key, {{.name = "x", .size = 10, .hash = hash}}}},
                   b = {{key, {{.name = "x", .size = 10, .hash = now_hash}}}};
    return settings_diff(saved, now, a, b);
}

TEST(data_is_compared_by_contents) {
    Config saved, moved, weights, allowed;
    moved.data.train = {{"elsewhere.bin"}};
    weights.data.train = {{"data/*_train_*.bin", 0.5}};
    allowed.checkpoint.override_ = {"data.train"};
    const SettingsDiff same = diff_of_data(saved, moved, 5, 5), other = diff_of_data(saved, saved, 5, 6);
    EXPECT(same.refused.empty() && same.table.find("elsewhere.bin") != same.table.npos, "equal files, moved");
    EXPECT(diff_of_data(saved, saved, 5, 5).table.empty(), "no change, no row");
    EXPECT(other.refused == "\"data.train\"" && other.changes == "data.train: other contents", "'%s'",
           other.changes.c_str());
    EXPECT(other.table.find("1 file of 10, x 0000") != other.table.npos, "%s", other.table.c_str());
    EXPECT(diff_of_data(saved, weights, 5, 5).refused == "\"data.train\"", "another weight");
    EXPECT(diff_of_data(saved, allowed, 5, 6).refused.empty(), "allowed");
    for (const char* key : {"data.val", "data.tokenizer", "eval.tasks"})
        EXPECT(!diff_of_data(saved, saved, 5, 6, key).refused.empty(), "%s", key);
    const FileContent x = {.name = "x", .size = 1, .hash = 1}, y = {.name = "y", .size = 1, .hash = 2};
    const Contents two = {{"eval.tasks", {x, y}}}, one = {{"eval.tasks", {y}}};
    EXPECT(settings_diff(saved, saved, one, two).table.empty(), "a further task changes no other");
    EXPECT(!settings_diff(saved, moved).refused.empty(), "an older checkpoint: by the path");
}

TEST(contents_come_back) {
    RunState state;
    state.tokens = 4096;
    const FileContent file = {.name = "a \"b\"", .size = 12, .hash = 0xfedcba9876543210, .corpus = 3};
    state.contents = {{"data.train", {file}}, {"data.val", {}}};
    const RunState back = run_state_of(to_json(state));
    EXPECT(to_json(back) == to_json(state) && back.tokens == 4096, "%s", to_json(back).c_str());
    EXPECT(same_contents(back.contents.at("data.train"), state.contents.at("data.train")), "contents");
    std::string old = to_json(RunState());
    for (const char* part : {",\"tokens\":0", ",\"contents\":{}"}) old.erase(old.find(part), strlen(part));
    Origin origin{.folder = "step_4", .manifest = {}, .settings = {}};
    origin.manifest.state = old;
    EXPECT(origin.state().tokens == 0 && origin.state().contents.empty(), "of an older version");
}

// ---------------------------------------------------------------------------------------------------------
// runs that go on beyond their end

static std::string jump(int64_t step, int64_t steps, const char* schedule,
                        const std::string& folder = "r/step_1") {
    Config was;
    was.train.steps = 20;
    was.optimizer.warmup = 2, was.optimizer.schedule = schedule;
    Config now = was;
    now.train.steps = steps;
    return jump_of_learning_rate(folder, step, was, now);
}

TEST(a_longer_run_names_the_jump_of_its_learning_rate) {
    const std::string line = jump(20, 40, "cosine");
    EXPECT(line.find("from 3e-05 (step 20) to 0.000165 (step 21)") != line.npos, "'%s'", line.c_str());
    EXPECT(jump(20, 40, "constant").empty() && jump(10, 20, "cosine").empty(), "no jump");
    const std::string dir = test::temporary_directory() + "/decays";
    for (const char* step : {"/step_8", "/step_16", "/step_18"})
        std::filesystem::create_directories(dir + step);
    const std::string wsd = jump(20, 40, "wsd", dir + "/step_20");
    const std::string resume = "--checkpoint.resume=" + dir + "/step_16 ";
    EXPECT(wsd.find("after step 16") != wsd.npos && wsd.find(resume) != wsd.npos, "'%s'", wsd.c_str());
    const std::string early = jump(16, 40, "wsd", dir + "/step_16");
    EXPECT(early.find("--checkpoint.resume") == early.npos, "not decayed: '%s'", early.c_str());
    const std::string none = jump(20, 40, "wsd", dir + "_none/step_20");
    EXPECT(none.find("no checkpoint from before it is left") != none.npos, "'%s'", none.c_str());
}

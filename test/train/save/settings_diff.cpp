// Settings that may change on resume, and the messages.
#include "llmc/train/save/settings_diff.h"

#include <filesystem>

#include "llmc/base/files.h"
#include "llmc/base/output_file.h"
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
    Config now;
    now.optimizer.kind = OptimizerKind::Muon, now.optimizer.lr = 0.5;
    now.data.train = {{std::string(60, 'x')}};
    const std::string line = test::fatal_of([&] { check_settings(now, origin, false); }).what();
    for (const char* words : {"step_4: these settings change", "optimizer.kind \"adamw\" -> \"muon\"",
                              "optimizer.lr 3e-04 -> 0.5", "(data.train, "})
        EXPECT(line.find(words) != line.npos, "no '%s' in '%s'", words, line.c_str());
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
    EXPECT(test::fatal_of([&] { check_settings(moved, origin, false); }).code == 0, "its own tokenizer");
    EXPECT(test::fatal_of([&] { check_settings(closed, origin, false); }).code == 78, "another one");
}

// Which checkpoints a folder has, and which are kept.
#include "llmc/train/run_folder.h"

#include <filesystem>

#include "llmc/base/files.h"
#include "test/test.h"

namespace fs = std::filesystem;
using Steps = std::vector<int64_t>;

static std::string folder_with(const std::vector<std::string>& names) {
    static int count = 0;
    const std::string dir = test::temporary_directory() + "/folder" + std::to_string(count++);
    for (const auto& n : names) fs::create_directories(dir + "/" + n);
    return dir;
}

static Steps after_pruning(int keep_last, int64_t keep_every) {
    const std::string dir =
        folder_with({"step_5", "step_10", "step_15", "step_20", "step_25", "step_99.incomplete", "other"});
    CheckpointConfig cfg;
    cfg.keep_last = keep_last, cfg.keep_every = keep_every;
    prune_checkpoints(cfg, dir);
    EXPECT(fs::exists(dir + "/other") && fs::exists(dir + "/step_99.incomplete"),
           "what is no checkpoint was deleted");
    return checkpoint_steps(dir);
}

TEST(steps_are_numbers) {
    const std::string dir = folder_with(
        {"step_9", "step_10", "step_100", "step_", "step_7x", "step_200.incomplete", "Step_300", "step_x"});
    EXPECT((checkpoint_steps(dir) == Steps{9, 10, 100}), "%zu checkpoints", checkpoint_steps(dir).size());
    EXPECT(newest_checkpoint(dir) == dir + "/step_100", "'%s'", newest_checkpoint(dir).c_str());
    EXPECT(newest_checkpoint(folder_with({"step_9", "step_10"})).ends_with("/step_10"), "10 comes after 9");
    EXPECT(newest_checkpoint("/nowhere/at/all") == "" && newest_checkpoint(folder_with({"x"})) == "", "none");
}

TEST(the_newest_are_kept) {
    EXPECT((after_pruning(0, 0) == Steps{5, 10, 15, 20, 25}), "keep_last = 0 keeps all");
    EXPECT((after_pruning(2, 0) == Steps{20, 25}), "keep_last = 2");
    EXPECT((after_pruning(1, 10) == Steps{10, 20, 25}), "keep_last = 1, keep_every = 10");
    EXPECT((after_pruning(9, 0) == Steps{5, 10, 15, 20, 25}), "keep_last = 9");
}

TEST(acknowledged_line_by_line) {
    const std::string dir = folder_with({"x"});
    acknowledge_checkpoint(dir, 5, dir + "/step_5");
    acknowledge_checkpoint(dir, 10, "a \"name\"");
    EXPECT(read_file(dir + "/checkpoints.jsonl") ==
               "{\"step\":5,\"dir\":\"" + dir + "/step_5\"}\n{\"step\":10,\"dir\":\"a \\\"name\\\"\"}\n",
           "'%s'", read_file(dir + "/checkpoints.jsonl").c_str());
}

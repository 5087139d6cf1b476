// Runs with train.rollback, on data with random ids in between, and what two of them have to have in common.
#pragma once
#include <filesystem>

#include "llmc/base/disk/files.h"
#include "test/program.h"

namespace test {

inline constexpr int kRandom = 71;          // the first step of random ids, of four

// A row of 32 tokens repeats itself; 8 rows are a step.
inline std::string spiky_data() {
    const std::string path = folder("spiky.bin");
    if (there(path)) return path;
    std::vector<int> ids;
    for (int i = 0; i < 140 * 256; i++) {
        const int step = 1 + i / 256;
        const bool random = step >= kRandom && step < kRandom + 4;
        ids.push_back(random ? int(philox(5, 1, uint64_t(i)).x[0] % 500) : i * i % 16);
    }
    write_shard(path, ids);
    return path;
}

inline json rolling(int checkpoints, const json& more = json::object()) {
    const json rule = {{"every", 5}, {"z", 6}, {"steps", 3}, {"skip", 9}};
    json changes = {{"train", {{"steps", 100}, {"rollback", rule}}},
                    {"optimizer", {{"schedule", "constant"}, {"lr", 5e-3}}},
                    {"data", {{"train", spiky_data()}, {"shuffle", false}}},
                    {"eval", {{"every", 20}}},
                    {"log", {{"health", 30}}},
                    {"checkpoint", {{"every", checkpoints}, {"keep_last", 0}, {"async", false}}}};
    changes.merge_patch(more);
    return changes;
}

// Rows without starts, times and lost ranks; of the last step its windows of figures and its tensors.
inline std::string run_of(const std::string& name) {
    std::string text;
    std::stringstream rows(timeless(name));
    for (std::string row; std::getline(rows, row);)
        if (!has(row, "\"start\"") && !has(row, "\"resume\"") && !has(row, "\"done\"") &&
            !has(row, "\"lost\"") && !has(row, "\"regroup\"")) text += row + "\n";
    text += json::parse(text_of(folder(name) + "/step_100/manifest.json"))["state"].dump() + "\n";
    std::set<std::string> files;
    for (const auto& e : std::filesystem::directory_iterator(folder(name) + "/step_100"))
        if (e.path().extension() == ".safetensors") files.insert(e.path());
    for (const std::string& file : files) text += read_file(file);
    return text;
}

inline void expect_each_step_once(const std::string& name) {
    const std::vector<int> steps = steps_of(name, "train");
    for (size_t i = 0; i < 100; i++) EXPECT(i < steps.size() && steps[i] == int(i) + 1, "step %zu", i + 1);
    EXPECT(steps.size() == 100, "%zu steps", steps.size());
}

}  // namespace test

// Runs ./train_gpt as a user does, in folders of the test's own.
#pragma once
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "test/shards.h"

namespace test {

using nlohmann::json;

inline std::string folder(const std::string& name) { return temporary_directory() + "/" + name; }

inline std::string text_of(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

inline bool there(const std::string& path) { return std::ifstream(path).good(); }

// A model that trains in a second; `changes` are merged into its config, and the file's path is returned.
inline std::string tiny_program_config(const std::string& run, const json& changes = json::object()) {
    const std::string train = folder("t_train.bin"), val = folder("t_val.bin");
    if (!there(train))
        write_shard(train, learnable_ids(21000, 500)), write_shard(val, learnable_ids(4000, 500, 2));
    json cfg = {{"run", {{"dir", folder(run)}, {"seed", 7}, {"precision", "fp32"}, {"threads", 1}}},
                {"model", {{"layers", 2}, {"heads", 2}, {"channels", 64}, {"context", 32}, {"vocab", 512}}},
                {"data", {{"train", train}, {"val", val}}},
                {"train", {{"steps", 10}, {"batch_tokens", 256}, {"micro_batch", 4}}},
                {"optimizer", {{"lr", 1e-3}, {"warmup", 2}}},
                {"eval", {{"every", 5}, {"batches", 2}}},
                {"sample", {{"every", 0}}},
                {"checkpoint", {{"every", 0}}}};
    cfg.merge_patch(changes);
    const std::string path = folder(run + ".json");
    std::ofstream(path) << cfg.dump(1);
    return path;
}

inline Ran train_gpt(const std::string& config, const std::string& args = "") {
    return run("./train_gpt " + config + " " + args);
}

// Rows of metrics.jsonl, all or those of one event.
inline std::vector<json> rows_of(const std::string& run, const std::string& event = "") {
    std::vector<json> rows;
    std::ifstream in(folder(run) + "/metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
        const json row = json::parse(line, nullptr, false);
        CHECK(row.is_object(), "metrics.jsonl has the line '%s'", line.c_str());
        if (event.empty() || row["event"] == event) rows.push_back(row);
    }
    return rows;
}

inline std::vector<int> steps_of(const std::string& run, const std::string& event) {
    std::vector<int> steps;
    for (const json& row : rows_of(run, event)) steps.push_back(row["step"]);
    return steps;
}

// Rows without times, rates and measured memory: what two runs have to have in common.
inline std::string timeless(const std::string& run) {
    std::string text;
    for (json row : rows_of(run)) {
        for (const char* key : {"ms", "tokens_per_s", "mfu", "seconds", "peak_bytes", "peak_tflops"})
            row.erase(key);
        text += row.dump() + "\n";
    }
    return text;
}

}  // namespace test

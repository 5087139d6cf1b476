// Runs ./train_gpt as a user does, in folders of the test's own.
#pragma once
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "test/shards.h"

namespace test {

using nlohmann::json;

inline std::string text_of(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

inline int count_of(const std::string& text, const std::string& words) {
    int count = 0;
    for (size_t at = 0; (at = text.find(words, at)) != text.npos; at += words.size()) count++;
    return count;
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

// Words in a random order: enough to train a vocabulary of 400 on.
inline std::string some_text() {
    const char* words[] = {"the", "small",  "model",   "reads", "a",  "page",
                           "and", "writes", "another", "line",  "of", "text"};
    std::string text;
    for (uint64_t i = 0; i < 12000; i++) {
        text += words[philox(1, 2, i).x[0] % 12];
        text += i % 9 == 8 ? ".\n" : " ";
    }
    return text;
}

// Changes a tiny config to train on text: tokenizer and shards, made once.
inline json text_config() {
    static const bool made = [] {
        std::ofstream(folder("text.txt")) << some_text();
        const std::string tokenizer = folder("tokenizer.json"), input = folder("text.txt");
        const Ran a = run("./tokenize train --vocab=300 --out=" + tokenizer + " " + input);
        const Ran b = run("./tokenize encode --tokenizer=" + tokenizer + " --out=" + folder("text") +
                          " --val=0.1 " + input);
        EXPECT(a.code == 0 && b.code == 0, "'%s' '%s'", a.err.c_str(), b.err.c_str());
        return true;
    }();
    (void)made;
    return {{"data",
             {{"train", folder("text_train_*.bin")},
              {"val", folder("text_val_*.bin")},
              {"tokenizer", folder("tokenizer.json")}}},
            {"model", {{"vocab", 0}}},
            {"train", {{"steps", 20}}},
            {"optimizer", {{"lr", 5e-3}}},
            {"eval", {{"every", 10}, {"batches", 0}}},
            {"sample", {{"every", 10}, {"tokens", 40}, {"prompt", "the small"}}},
            {"checkpoint", {{"every", 20}}}};
}

inline Ran train_gpt(const std::string& config, const std::string& args = "") {
    return run("./train_gpt " + config + " " + args);
}

// The config of a run that has ended.
inline std::string trained_config(const std::string& name, const json& changes) {
    const std::string config = tiny_program_config(name, changes);
    const Ran ran = train_gpt(config);
    EXPECT(ran.code == 0, "%s: code %d, '%s'", name.c_str(), ran.code, ran.err.c_str());
    return config;
}

inline bool no_mpi() {
    static const bool missing = run("command -v mpirun").code != 0 ||
                                !has(run("./train_gpt --version").out, "MPI");
    return missing;
}

// Rows of metrics.jsonl, of an event or every row. A row without its end of line is still being written.
inline std::vector<json> rows_of(const std::string& run, const std::string& event = "") {
    std::vector<json> rows;
    std::ifstream in(folder(run) + "/metrics.jsonl");
    for (std::string line; std::getline(in, line) && !in.eof();) {
        const json row = json::parse(line, nullptr, false);
        CHECK(row.is_object(), "metrics.jsonl has the line '{}'", line);
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
        for (const char* key : {"ms", "tokens_per_s", "mfu", "seconds", "peak_bytes", "peak_tflops", "joules",
                                "joules_per_token"})
            row.erase(key);
        text += row.dump() + "\n";
    }
    return text;
}

}  // namespace test

// Runs to watch, written row by row, and a page's knowledge of the runs, by the page's events.
#pragma once
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "llmc/train/watch/watcher.h"
#include "test/program.h"

namespace test {

inline std::string start_row() {
    return "{\"event\":\"start\",\"params\":1000,\"world\":2,\"device\":\"cpu\",\"plan_bytes\":4096}\n";
}
inline std::string train_row(int step, const std::string& more = "") {
    const double noise = double(philox(3, 1, uint64_t(step)).x[0] % 1000) / 1e4;
    return fmt::format("{{\"event\":\"train\",\"step\":{0},\"loss\":{1},\"norm\":{2},\"lr\":0.001,"
                       "\"tokens\":{3},\"ms\":{4},\"tokens_per_s\":51200,\"mfu\":0.25{5}}}\n",
                       step, 3 + 7. / step + noise, 1 + noise, 512 * step, 10 + step % 3, more);
}
inline std::string train_rows(int from, int to) {
    std::string rows;
    for (int step = from; step <= to; step++) rows += train_row(step);
    return rows;
}
inline std::string val_row(int step) {
    return fmt::format("{{\"event\":\"val\",\"step\":{},\"loss\":{}}}\n", step, 4 + 1. / step);
}

inline void write_text(const std::string& path, const std::string& text, bool append = false) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary | (append ? std::ios::app : std::ios::trunc)) << text;
}
inline void append_text(const std::string& path, const std::string& text) { write_text(path, text, true); }

// A page's knowledge of runs: applies events by the contract between server and page.
struct KnownRuns {
    std::map<std::string, json> runs;
    json folder;
    int resets = 0, appends = 0;

    static void append_columns(json& to, const json& from) {
        size_t had = 0, come = 0;
        for (const auto& [key, column] : to.items()) had = std::max(had, column.size());
        for (const auto& [key, column] : from.items()) {
            EXPECT(!come || come == column.size(), "columns of %zu and %zu rows", come, column.size());
            come = column.size();
            json& mine = to[key];
            if (mine.is_null()) mine = json::array();
            while (mine.size() < had) mine.push_back(nullptr);          // a new column
            mine.insert(mine.end(), column.begin(), column.end());
        }
    }
    void apply_run(const json& run) {
        json& mine = runs[run["run"]];
        if (run["reset"] == true) {
            resets++;
            mine = run;
            return;
        }
        appends++;
        EXPECT(mine.is_object(), "the first event of a run is no reset");
        for (const char* key : {"train", "val", "comm", "memory"}) append_columns(mine[key], run[key]);
        for (const auto& [task, columns] : run["tasks"].items())
            append_columns(mine["tasks"][task], columns);
        for (const char* key : {"samples", "marks", "health"})
            mine[key].insert(mine[key].end(), run[key].begin(), run[key].end());
        for (const char* key : {"state", "start", "sampled", "ranks"}) mine[key] = run[key];
    }
    // Events as text; returns how many bytes were whole events.
    size_t apply(const std::string& text) {
        size_t begin = 0;
        for (size_t end; (end = text.find("\n\n", begin)) != text.npos; begin = end + 2) {
            const std::string event = text.substr(begin, end - begin);
            if (event.starts_with(":")) continue;
            const size_t data = event.find("\ndata: ");
            EXPECT(event.starts_with("event: ") && data != event.npos, "%s", event.substr(0, 80).c_str());
            const std::string name = event.substr(7, data - 7);
            const json value = json::parse(event.substr(data + 7));
            if (name == "run") apply_run(value);
            else if (name == "gone") runs.erase(value["run"].get<std::string>());
            else folder = value;
        }
        return begin;
    }
    std::vector<int> steps(const std::string& run, const char* kind = "train") const {
        const auto at = runs.find(run);
        if (at == runs.end() || !at->second[kind].contains("step")) return {};
        return at->second[kind]["step"].get<std::vector<int>>();
    }
};

// A watcher, called by hand, and a page.
struct WatchedFolder {
    std::string path;
    Watcher watcher{path};
    PageFeed feed{watcher};
    KnownRuns page;

    explicit WatchedFolder(std::string folder) : path(std::move(folder)) {}

    // Reads every file, and brings the page up to date. walk: also finds new and deleted runs.
    void update(bool walk = true) {
        while (!watcher.look(walk)) {}
        take();
    }
    void take() {
        std::string events;
        for (size_t before = SIZE_MAX; events.size() != before;) {
            before = events.size();
            feed.append(events);
        }
        EXPECT(page.apply(events) == events.size(), "half an event");
    }
};

}  // namespace test

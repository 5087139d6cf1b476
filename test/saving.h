// A run that saves small checkpoints by the real protocol, with every rank on one thread, and a judge of the
// files.
#pragma once
#include <algorithm>
#include <span>

#include "llmc/base/disk/files.h"
#include "llmc/train/save/recover.h"
#include "llmc/train/save/run_state.h"
#include "llmc/train/save/save.h"
#include "test/test.h"

namespace test {

inline constexpr int kTall = 7, kWide = 5;

// The value of each element depends on the step: a checkpoint made of two steps would show.
inline float value_of(int64_t step, int row, int col) { return float(step * 1000 + row * kWide + col); }

// Tensors cut by rows over the ranks, two arrays of each.
struct Share { std::vector<SavedPiece> pieces; std::vector<float> data; };
inline Share share_of(int rank, int ranks, int64_t step) {
    Share s;
    const int begin = kTall * rank / ranks, end = kTall * (rank + 1) / ranks;
    for (const char* array : {"master", "m"}) {
        s.pieces.push_back({.tensor = "w", .array = array, .dtype = "F32", .shape = {kTall, kWide},
                            .start = {begin, 0}, .extent = {end - begin, kWide}, .file = "", .at = 0});
        for (int r = begin; r < end; r++)
            for (int c = 0; c < kWide; c++) s.data.push_back(value_of(step, r, c));
    }
    return s;
}

inline Manifest head_of(int64_t step) {
    Manifest m;
    m.run = "test", m.step = step, m.config = "{}", m.mesh = "{}";
    RunState state;
    state.step = step;
    m.state = to_json(state);
    return m;
}

// Protocols that leave something out: tests must notice the gap.
struct Mutant {
    bool acknowledge_first = false;      // a line in checkpoints.jsonl before the rename
    bool unsynced_shares = false;        // the manifest is on the medium before the data
    bool unsynced_rows = false;          // metrics.jsonl is left to the system
    bool unsynced_prune = false;         // an old checkpoint's files go before its new name is synced
    Check check = Check::Hashes;         // Sizes: a recovery without hashes
    // a whole save, in the place of the protocol's
    std::string (*save)(const Disk&, const std::string& dir, int64_t step, int ranks) = nullptr;
};

inline void move_to_front(DiskQueue& q, const std::string& from) {
    const auto is_first = [&](const auto& o) { return o.what.starts_with(from); };
    const auto first = std::find_if(q.operations.begin(), q.operations.end(), is_first);
    std::rotate(q.operations.begin(), first, q.operations.end());
}
inline void drop(DiskQueue& q, const std::string& what) {
    std::erase_if(q.operations, [&](const auto& o) { return o.what.starts_with(what); });
}

// A save by every rank on one thread, alternating by operation. Returns the error; empty: success.
inline std::string save(const Disk& disk, const std::string& dir, int64_t step, int ranks, int attempt,
                        const Mutant& mutant = {}) {
    if (mutant.save) return mutant.save(disk, dir, step, ranks);
    const SavePlace place{.run_dir = dir, .step = step, .attempt = attempt};
    std::vector<Share> shares;
    std::vector<DiskQueue> queues;
    std::vector<int> writers;
    for (int r = 0; r < ranks; r++) shares.push_back(share_of(r, ranks, step));
    for (int r = 0; r < ranks; r++) {
        writers.push_back(r);
        const auto data = std::as_bytes(std::span(shares[size_t(r)].data));
        queues.push_back(save_share(disk, place, r, shares[size_t(r)].pieces,
                                   {data.first(data.size() / 2), data.last(data.size() / 2)}, 100));
        if (mutant.unsynced_shares) drop(queues.back(), "cannot sync");
    }
    for (bool more = true; more;) {
        more = false;
        for (DiskQueue& q : queues) more |= q.advance();
    }
    std::string error;
    for (const DiskQueue& q : queues) if (error.empty()) error = q.error;
    if (error.empty()) {
        DiskQueue publish = save_publish(disk, place, head_of(step), writers,
                                         {{"config.json", shared_text("{}\n")}});
        if (mutant.unsynced_rows) drop(publish, "cannot sync " + dir + "/metrics");
        if (mutant.acknowledge_first) move_to_front(publish, "cannot open " + dir + "/checkpoints");
        publish.run();
        error = publish.error;
    }
    if (!error.empty()) (void)remove_tree(disk, place.temporary());
    return error;
}

// The third save removes the first.
inline CheckpointConfig two_are_kept() {
    CheckpointConfig keep;
    keep.keep_last = 2;
    return keep;
}

inline std::string row_of(int64_t step) {
    return "{\"event\":\"train\",\"step\":" + std::to_string(step) + "}\n";
}
inline void log_row(const Disk& disk, const std::string& dir, int64_t step) {
    int file;
    if (disk.append(dir + "/metrics.jsonl", &file)) return;
    (void)write_whole(disk, file, row_of(step).data(), row_of(step).size());
    (void)disk.close(file);
}

// A run: makes its folder, recovers and prunes, then logs and saves the next steps, up to `last`.
// acknowledged is written as soon as a save is on the medium.
inline void run_to(const Disk& disk, const std::string& dir, int ranks, int64_t last,
                   volatile int64_t* acknowledged, const Mutant& mutant = {}) {
    (void)make_folders(dir, disk.make_folder, disk.sync_folder);
    const Recovery r = recover(disk, dir);
    const int64_t from = r.manifest ? r.manifest->step : 0;
    cut_metrics(disk, dir + "/metrics.jsonl", from);
    const auto prune = [&] {
        DiskQueue q = prune_checkpoints(disk, two_are_kept(), dir);
        if (mutant.unsynced_prune) drop(q, "cannot sync");
        q.run();
    };
    if (r.manifest) prune();
    for (int64_t step = from + 1; step <= last; step++) {
        log_row(disk, dir, step);
        if (!save(disk, dir, step, ranks, 1, mutant).empty()) return;
        *acknowledged = step;
        prune();
    }
}

// The last step in checkpoints.jsonl.
inline int64_t acknowledged_in(const Disk& disk, const std::string& dir) {
    std::string lines;
    (void)read_whole(disk, dir + "/checkpoints.jsonl", &lines);
    const size_t end = lines.rfind('\n'), begin = end == lines.npos ? end : lines.rfind("{\"step\":", end);
    return begin == lines.npos ? 0 : atol(lines.c_str() + begin + 8);
}

// The first wrong value of a checkpoint, or a missing row of metrics.jsonl before; empty: no fault.
inline std::string wrong_with(const Disk& disk, const std::string& dir, const std::string& folder,
                              const Manifest& m) {
    for (const SavedPiece& p : m.pieces) {
        std::vector<float> values(size_t(p.elements()), -1.0f);
        disk.read(folder + "/" + p.file, values.data(), size_t(p.bytes()), p.at);
        for (size_t i = 0; i < values.size(); i++) {
            const float expected = value_of(m.step, int(p.start[0]) + int(i) / kWide, int(i) % kWide);
            if (values[i] != expected)
                return fmt::format("corrupt: {:g} where {:g} was saved", double(values[i]), double(expected));
        }
    }
    std::string rows, expected;
    (void)read_whole(disk, dir + "/metrics.jsonl", &rows);
    for (int64_t step = 1; step <= m.step; step++) expected += row_of(step);
    return rows.starts_with(expected) ? "" : fmt::format("lost: rows before step {}", m.step);
}

// A recovery without hashes.
inline Recovery trusting_recovery(const Disk& disk, const std::string& dir) {
    Recovery r;
    std::vector<int64_t> steps = saved_steps(disk, dir);
    for (; !steps.empty() && !r.manifest; steps.pop_back()) {
        r.folder = dir + "/step_" + std::to_string(steps.back());
        r.manifest = verify_checkpoint(disk, r.folder, Check::Sizes).manifest;
    }
    return r;
}

// Recovers as a run would, and checks the files. Returns the first fault (lost, corrupt, left over); empty:
// no fault. damage: the test has damaged files, and only `acknowledged` must survive.
inline std::string first_fault(const Disk& disk, const std::string& dir, int64_t acknowledged,
                               bool damage = false, Check check = Check::Hashes) {
    Recovery r;
    if (!damage) acknowledged = std::max(acknowledged, acknowledged_in(disk, dir));
    try {
        r = check == Check::Hashes ? recover(disk, dir) : trusting_recovery(disk, dir);
    } catch (const Fatal& e) {
        return fmt::format("recovery fails: {}", e.what());
    }
    if (!r.damaged.empty() && !damage) return "corrupt: " + r.damaged[0];
    const int64_t step = r.manifest ? r.manifest->step : 0;
    if (step < acknowledged) return fmt::format("lost: step {} of the acknowledged {}", step, acknowledged);
    std::vector<std::string> names;
    disk.list(dir, &names);
    for (const std::string& name : names) {
        if (name.find("tmp") != name.npos && check == Check::Hashes) return "left over: " + name;
        const bool older = name.starts_with("step_") && dir + "/" + name != r.folder && !damage;
        const Verified v = older ? verify_checkpoint(disk, dir + "/" + name) : Verified();
        if (!v.problem.empty()) return "corrupt: " + name + "/" + v.problem;
    }
    return r.manifest ? wrong_with(disk, dir, r.folder, *r.manifest) : "";
}

}  // namespace test

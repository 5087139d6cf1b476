// Writes a checkpoint, as a queue of single operations on a disk: a thread runs the queue beside training,
// and a test can stop between any two operations.
//
//     every writing rank    step_N.tmp-A/rank_R.safetensors, its note rank_R.json; all synced
//     rank 0, after all     config.json, tokenizer.json; manifest.json last; sync of the folder, and of the
//                           rows of metrics.jsonl up to here; rename to step_N; sync of run.dir; a line in
//                           checkpoints.jsonl; old ones removed
//
// A folder named step_N is therefore complete, and a line in checkpoints.jsonl means that it is on the
// medium. A is the attempt: no attempt writes into the folder of an earlier attempt. After an error between
// the rename and the line, a later attempt finds step_N and adds the line.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/base/disk/files.h"
#include "llmc/io/files/disk.h"
#include "llmc/io/files/manifest.h"

inline namespace saves {

struct DiskQueue {
    struct Operation { std::string what; std::function<int()> run; };     // 0 or errno
    std::deque<Operation> operations;
    std::string error;                 // the first failure and its reason; then no operation runs

    bool advance();                    // runs an operation; false: the queue is empty
    void run() { while (advance()) {} }
    void add(std::string what, std::function<int()> run) { operations.push_back({what, std::move(run)}); }
};

struct SavePlace {
    std::string run_dir;
    int64_t step;
    int attempt;
    std::string folder() const { return run_dir + "/step_" + std::to_string(step); }
    std::string temporary() const { return folder() + ".tmp-" + std::to_string(attempt); }
};

// Writes a rank's share. data: the bytes of each piece, unchanged until the queue is empty. The call fills in
// `file` and `at` of the pieces. write_bytes: of one write, at most.
DiskQueue save_share(const Disk& disk, const SavePlace& place, int rank, std::vector<SavedPiece> pieces,
                    const std::vector<std::span<const std::byte>>& data, size_t write_bytes = 1 << 20);

// A file that save_publish() adds to the checkpoint folder: name and content.
struct ExtraFile {
    std::string name;
    SharedText content;
};
// Publishes the folder: on rank 0, once the shares of all `writers`, which are ranks, are on the medium.
// manifest: without files and pieces.
DiskQueue save_publish(const Disk& disk, const SavePlace& place, Manifest manifest, std::vector<int> writers,
                       std::vector<ExtraFile> extras);

// A line in checkpoints.jsonl; the last operation of save_publish.
void add_acknowledgement(DiskQueue& q, const Disk& disk, const SavePlace& place);

// Removes checkpoints beyond checkpoint.keep_last and keep_every: after each acknowledgement, and when a run
// resumes.
DiskQueue prune_checkpoints(const Disk& disk, const CheckpointConfig& keep, const std::string& run_dir);

// A name in the form of SavePlace: "step_12" has no rest, "step_12.damaged" the rest ".damaged". step_012 and
// step_12x have another form.
struct StepName { int64_t step; std::string_view rest; };
std::optional<StepName> step_name(std::string_view name);

// Steps of the folders step_N, ascending; empty if run_dir cannot be listed.
std::vector<int64_t> steps_among(const Disk& disk, const std::string& run_dir,
                                 const std::vector<std::string>& names);
std::vector<int64_t> saved_steps(const Disk& disk, const std::string& run_dir);

}  // namespace saves

// Writing a checkpoint, as a queue of single operations on a disk, so that a thread can work it off beside
// training, and a test can stop it between any two.
//
//     every writing rank    step_N.tmp-A/rank_R.safetensors, its note rank_R.json; all synced
//     rank 0, after all     config.json, tokenizer.json; manifest.json last; sync of the folder, and of the
//                           rows of metrics.jsonl up to here; rename to step_N; sync of run.dir; a line in
//                           checkpoints.jsonl; old ones removed
//
// A folder named step_N is therefore complete, and a line in checkpoints.jsonl means that it is on the
// medium. A is the attempt: nothing is ever written into what an earlier one has left. Where an error comes
// between the rename and the line, a later attempt finds step_N and adds the line.
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
#include "llmc/base/files.h"
#include "llmc/io/files/disk.h"
#include "llmc/io/files/manifest.h"

struct DiskQueue {
    struct Operation { std::string what; std::function<int()> run; };     // 0 or errno
    std::deque<Operation> operations;
    std::string error;                 // what failed first, and why; nothing more is done then

    bool advance();                    // does one operation; false: nothing is left to do
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

// One rank's share. data: of each piece; it stays as it is until the queue is empty. The file of the pieces
// and their place in it are filled in here. write_bytes: of one write, at most.
DiskQueue save_part(const Disk& disk, const SavePlace& place, int rank, std::vector<SavedPiece> pieces,
                    const std::vector<std::span<const std::byte>>& data, size_t write_bytes = 1 << 20);

// What rank 0 does when the parts of all `writers` are on the medium. manifest: all but files and pieces.
struct ExtraFile {
    std::string name;
    SharedText content;
};
DiskQueue save_publish(const Disk& disk, const SavePlace& place, Manifest manifest, std::vector<int> writers,
                       std::vector<ExtraFile> extras);

// A line in checkpoints.jsonl; the last thing that save_publish does.
void add_acknowledgement(DiskQueue& q, const Disk& disk, const SavePlace& place);

// Removes what checkpoint.keep_last and keep_every do not keep. After the new one is acknowledged, and when a
// run goes on.
DiskQueue prune_checkpoints(const Disk& disk, const CheckpointConfig& keep, const std::string& run_dir);

// A name as SavePlace writes it: "step_12" has no rest, "step_12.damaged" the rest ".damaged". step_012 and
// step_12x are other names.
struct StepName { int64_t step; std::string_view rest; };
std::optional<StepName> step_name(std::string_view name);

// Steps of the folders step_N, ascending; none where run_dir cannot be listed.
std::vector<int64_t> steps_among(const Disk& disk, const std::string& run_dir,
                                 const std::vector<std::string>& names);
std::vector<int64_t> saved_steps(const Disk& disk, const std::string& run_dir);

// What each rank of this process does now, in run.dir/ranks/RANK.json, for --watch. Programs that read a run
// may run beside it: their ranks write to run.dir/ranks_that_read, for each other alone.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "llmc/base/config/config.h"
#include "llmc/comm/mesh.h"

inline namespace logs {

// A thread of the process's first rank reads the progress page four times a second. The thread replaces the
// file every two seconds, or four times in run.hang_timeout: from the first loading on, or after ten seconds.
// Large jobs write less often: a job writes 16 files a second at most.
// While all ranks of the process wait, the thread reads the files of other processes (other_ranks.h): a rank
// that waits for a slow rank is no hang. The process of rank 0 always reads. The supervisor uses no file,
// because a disk may stall. A failed write is skipped. The end of the run removes the file.
struct RankFile {
    // Later ranks of a process, ranks without a supervisor, and a single rank that only reads, write nothing.
    RankFile(const Config& cfg, const Mesh& mesh, bool trains);
    ~RankFile();
    RankFile(const RankFile&) = delete;

private:
    std::string folder_, path_;             // empty: no file
    double period_ = 0;                     // seconds
    std::thread thread_;
    std::mutex mutex_;
    std::condition_variable ended_;
    bool end_ = false;

    void write_until_the_end(const MeshShape& shape);
};

}  // namespace logs

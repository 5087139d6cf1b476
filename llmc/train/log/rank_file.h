// What each rank of this process does now, in run.dir/ranks/RANK.json, for --watch. Programs that read a run
// may run beside it: their ranks write to run.dir/ranks_that_read, for each other alone.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "llmc/base/config/config.h"
#include "llmc/comm/mesh.h"

// A thread of the process's first rank reads the progress page four times a second. From the first loading
// on, or after ten seconds, the thread replaces the file every two seconds, or four times in
// run.hang_timeout, and less often in large jobs: the job writes 16 files a second at most. While all ranks
// of the process wait, the thread reads what other processes do (other_ranks.h), so that nobody who waits
// for a slow rank is taken for the hang; the process of rank 0 always reads, for all. The supervisor reads
// and writes no file: whoever ends hangs must never wait for a disk. A file that cannot be written is left
// out. The end of the run removes the file.
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

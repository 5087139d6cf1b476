// What the ranks of other processes do, by their files in run.dir/ranks (rank_file.h).
#pragma once
#include <map>
#include <string>

#include "llmc/base/guard/progress_page.h"

struct OtherRanks {
    // folder: run.dir/ranks. own: the name of this process's file, "0.json". period: seconds between two
    // writes of a file.
    OtherRanks(const std::string& folder, const std::string& own, double period)
        : folder(folder), own(own), period(period) {}

    // Reads the files and tells the supervisor: counts ProgressPage::others up if a rank has sent a heartbeat
    // since the last call. Else silent_other is a rank whose file was written after this process's first, but
    // not in the last three periods before this process's newest; the oldest, or empty.
    void look(ProgressPage& page);

private:
    const std::string folder, own;
    const double period;
    std::map<std::string, double> beats_;       // of the ranks of a file, as last read
    int64_t first_ = 0;                         // nanoseconds; this process's file, at the first look
    std::string busy_;                          // the file that had progress last: read first

    bool progressed(const std::string& name);
};

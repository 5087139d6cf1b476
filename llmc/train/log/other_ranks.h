// What the ranks of other processes do, by their files in run.dir/ranks (rank_file.h).
//
// The process of rank 0 looks at all files, and tells in its own file what it saw. The others read that file:
// N processes that wait read N + N files in a period. Without a current file of rank 0, they look at all.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/guard/progress_page.h"
#include "llmc/train/watch/metrics_row.h"

inline namespace logs {

struct OtherRanks {
    // folder: run.dir/ranks. own: the name of this process's file, "0.json". period: seconds between two
    // writes of a file.
    OtherRanks(const std::string& folder, const std::string& own, double period)
        : folder(folder), own(own), period(period) {}

    // Reads the files and tells the supervisor: counts ProgressPage::others up if a rank has sent a heartbeat
    // since the last call. Else silent_other is a rank whose file was written after this process's first, but
    // not in the last three periods before this process's newest; the oldest, or empty.
    void look(ProgressPage& page);
    bool tells() const { return own == kTeller; }
    std::string told(const ProgressPage& page) const;       // row of the file of rank 0: what look() found

private:
    static constexpr std::string_view kTeller = "0.json";
    const std::string folder, own;
    const double period;
    std::map<std::string, double> beats_;       // of the ranks of a file, as last read
    int64_t first_ = 0;                         // nanoseconds; this process's file, at the first look
    std::string busy_;                          // a file that had progress last: read first
    std::string silent_;                        // ProgressPage::silent_other

    bool find_progress();
    bool progressed(const std::string& name, const std::vector<MetricsRow>& rows);
    bool progressed(const std::vector<std::string>& names);
};

}  // namespace logs

// What the ranks of a run do now: the files of train/log/rank_file.h.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "llmc/train/watch/metrics_row.h"

inline namespace watch {

std::vector<std::string> files_of_ranks(const std::string& folder);    // "0.json", ..., in any order
// Calls take(row) for each row of such a file. Not every row is of a rank: see `event`. path: below the
// folder.
void each_rank(const std::string& folder, const std::string& path,
               const std::function<void(const MetricsRow&)>& take);

// A JSON list of the ranks by number, from RUN/ranks/*.json; "null" without a current file. path: of the run
// below the folder, with a slash at its end. A current file is younger than `current` seconds; the limit is
// larger for large jobs, which write less often. "age": seconds since the write of the file. "seconds": time
// that the rank has spent in its present work.
std::string read_ranks(const std::string& folder, const std::string& path, double current);

}  // namespace watch

// What the ranks of a run do now: the files of train/log/rank_file.h.
#pragma once
#include <string>

// A JSON list of the ranks by number, from RUN/ranks/*.json; "null" without a current file. path: of the run
// below the folder, with a slash at its end. A current file is younger than `current` seconds; the limit is
// larger for large jobs, which write less often. "age": seconds since the write of the file. "seconds": time
// that the rank has spent in its present work.
std::string read_ranks(const std::string& folder, const std::string& path, double current);

// What the ranks of a run do now: the files of train/log/rank_file.h.
#pragma once
#include <string>

// A JSON list of the ranks by number, from RUN/ranks/*.json; "null" without a current file. path: of the run
// below the folder, with a slash at its end. A file counts as current if it was written in the last `current`
// seconds; for large jobs, which write less often, this limit is larger. "age": seconds since the file was
// written. "seconds": how long the rank has done the same, if nothing changed since.
std::string read_ranks(const std::string& folder, const std::string& path, double current);

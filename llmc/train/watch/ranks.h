// What the ranks of a run do now: the files of train/log/rank_file.h.
#pragma once
#include <string>

// A JSON list of the ranks by number, from RUN/ranks/*.json; "null" where there is no current file. path: of
// the run below the folder, with a slash at its end. current: seconds since a file was written, at most; of
// large jobs, which write less often, more.
std::string read_ranks(const std::string& folder, const std::string& path, double current);

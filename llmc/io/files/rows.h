// Files of rows, a JSON object a line, that only grow: metrics.jsonl, checkpoints.jsonl, evals.jsonl.
//
// A kill or a power cut may leave a part of the last row. Nothing is added behind a part: the part is removed
// first, and a whole row without its newline is completed.
#pragma once
#include <string>
#include <string_view>

#include "llmc/io/files/disk.h"

inline namespace files {

// Makes the file end with a whole row. 0, also without the file, or errno.
int end_last_row(const Disk& disk, const std::string& path);

// Adds a row whole, or leaves the file as it was and returns the reason.
std::string try_append_row(const std::string& path, std::string_view row);

}  // namespace files

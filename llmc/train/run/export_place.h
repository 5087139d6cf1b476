// Refuses an --export onto files of a run, or onto files that the export or the run reads.
#pragma once
#include "llmc/base/config/config.h"

inline namespace runs {

// to: "FORMAT:PATH", links and ".." followed. New subfolders of run.dir are allowed.
void check_export_place(const std::string& to, const Config& cfg, const std::string& config_path);

}  // namespace runs

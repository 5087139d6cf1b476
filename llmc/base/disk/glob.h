// Names of files by patterns: glob_files() (files.h), where ** stands for any number of folders.
#pragma once
#include <string>
#include <vector>

inline namespace disk {

// The name as a pattern that matches this name alone.
std::string glob_escaped(const std::string& name);

// Every file in the folder and in folders below it, sorted. Hidden files and folders are left out, links to
// folders are not followed.
std::vector<std::string> files_below(const std::string& folder);

}  // namespace disk

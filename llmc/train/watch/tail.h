// Follows files that another process appends to, cuts or replaces. Files are read, never locked.
#pragma once
#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>

#include "llmc/base/disk/files.h"

inline namespace watch {

// Identity, size and time of a file; equal for a file that has not changed.
struct FileState {
    uint64_t device = 0, inode = 0, size = 0;
    int64_t changed = 0;                        // nanoseconds since 1970
    bool there = false;                         // a regular file

    bool operator==(const FileState&) const = default;
};
FileState file_state(const std::string& path);     // a link counts as not there

// Opens a regular file below a folder for reading. No symbolic link on the way from the folder to the file is
// followed. Empty: there is no such file.
Fd open_below(const std::string& folder, const std::string& path);
// A file below a folder as text. Empty: no such file, or larger than `most` bytes.
std::string text_below(const std::string& folder, const std::string& path, size_t most);

// Lines of a growing file, each once.
struct Tail {
    static constexpr size_t kMostLine = 1 << 20;        // bytes; longer lines are skipped

    uint64_t position = 0;                      // of the first byte that is not yet read as a line
    FileState file;                             // at the latest look

    // Calls take(lines) with whole lines up to an offset, in spans of about a megabyte. Returns false,
    // without a call, if the file was cut or replaced: the caller starts again with a new Tail.
    bool read(int fd, const std::function<void(std::string_view)>& take, uint64_t until = UINT64_MAX);

private:
    std::string before_;                        // the last bytes before `position`
    bool skipping_ = false;                     // inside a line that is too long

    bool same_file(int fd);
};

}  // namespace watch

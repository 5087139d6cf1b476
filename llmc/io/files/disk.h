// The file system of checkpoints, as a table of functions. Tests replace the table: by a disk that fails at a
// given operation, or by a disk in memory that knows the losses of a power cut.
//
// Functions return 0 or an errno value. Nothing here retries: after a failed sync the pages may be gone, so
// the file is written anew (https://wiki.postgresql.org/wiki/Fsync_Errors).
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/disk/files.h"

inline namespace files {

struct Disk {
    using Path = const std::string&;

    std::function<int(Path)> make_folder;                              // EEXIST: the path exists
    std::function<int(Path, int* file)> create;                        // a new file; EEXIST: the path exists
    std::function<int(Path, int* file)> append;                        // at the end; creates a missing file
    std::function<ssize_t(int file, const void*, size_t)> write;       // bytes taken, perhaps fewer; -errno
    std::function<int(int file)> start_sync;                           // without waiting; promises nothing
    std::function<int(int file)> sync;                                 // to the medium
    std::function<int(int file)> close;
    std::function<int(Path)> sync_folder;                              // its entries, to the medium
    std::function<int(Path, Path)> rename;
    std::function<int(Path)> remove;                                   // a file, a link, or an empty folder
    std::function<int(Path, uint64_t)> truncate;

    std::function<int(Path, std::vector<std::string>*)> list;          // names in a folder, sorted
    std::function<int(Path, uint64_t*)> size;           // of a file; EISDIR: a folder; ESPIPE: another thing
    std::function<ssize_t(Path, void*, size_t, uint64_t offset)> read; // up to `bytes`; -errno
    std::function<int(Path, uint64_t*)> free_bytes;
    // Whether a program holds the file (flock). If not, `claim` keeps programs from it until closed. May be
    // empty: nothing is held.
    std::function<bool(Path, Fd* claim)> is_read = {};
};

Disk posix_disk();
Disk noticed(const Disk& disk, const std::function<void()>& done);      // done() after each operation
// Changes no name and no file of others: ECANCELED unless owns().
Disk fenced(const Disk& disk, const std::function<bool()>& owns);

// Over any disk. Write or read a whole file, in as many calls as needed; 0 or errno. EFBIG: more than `most`
// bytes, unread.
int write_whole(const Disk& disk, int file, const void* data, size_t bytes);
int read_whole(const Disk& disk, const std::string& path, std::string* content, uint64_t most = kMostRead);
const char* reason_of(int error);      // strerror, but of ESPIPE: "it is a pipe or a device"
// Removes a file, or a folder and its content; 0 also where the path names nothing. Removes a link, and
// leaves the link's target.
int remove_tree(const Disk& disk, const std::string& path);

}  // namespace files

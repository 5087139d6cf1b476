// The rule for files that our programs write:
//
//   - A file appears under its name when it is whole. Until then it has no name, or a name of its own.
//   - A link, symbolic or hard, is replaced; the file behind the link stays as it was.
//   - A pipe, a device or a folder in the place is an error, at once.
//   - A name that the user chooses is no place of a run's or a checkpoint's file; what is replaced there is a
//     file of the same kind.
//   - A file that grows gets whole rows or records; one without room is removed again.
//
// try_*: the reason of a failure, empty on success; after a failure the old file is as before. The others
// end in CHECK_INPUT with the path and the reason.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "llmc/base/disk/files.h"

inline namespace disk {

// Any end of the process removes a file without a name. File systems that have none get a temporary name in
// the same directory, removed unless commit() is called.
struct NewFile {
    std::string path, temporary;
    Fd fd;
    bool named = false;             // temporary is its name

    explicit NewFile(const std::string& path, bool may_be_nameless = true);
    NewFile(const std::string& path, std::string& reason, bool may_be_nameless = true);  // failed: closed
    NewFile(NewFile&&) = default;
    ~NewFile();
    void write(const void* data, size_t bytes) { write_all(fd.fd, data, bytes, path); }
    void commit(bool sync = true);  // sync, close, rename; unsynced: a machine's crash may lose the file
    std::string try_commit(bool sync);

private:
    std::string try_open(bool may_be_nameless);
};
bool is_temporary(std::string_view name);       // of a NewFile
void write_file(const std::string& path, std::string_view content);     // by NewFile
std::string try_replace_file(const std::string& path, std::string_view content);    // unsynced

// Refuses the path of an output that is a file of a run or a checkpoint, a pipe, a device or a folder. An
// existing file has to begin with `begin`, white space aside; an empty `begin` allows any file. key: the
// option that messages name, as "log.prometheus".
void check_output(const std::string& key, const std::string& path, std::string_view begin);

// Makes a folder for files of a run. Refuses a link in its place.
std::string try_own_folder(const std::string& path);
// Replaces a link by a copy of its file: later writes to the path change no other file.
std::string try_own_file(const std::string& path);

// Opens a file that grows, for reads, and writes at its end. Closed on failure.
Fd open_to_append(const std::string& path, std::string& reason);
std::string try_append(int fd, std::string_view row);
std::string try_append(const std::string& path, std::string_view row);

}  // namespace disk

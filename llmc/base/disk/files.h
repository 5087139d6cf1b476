// Room base/disk: files: reads, patterns of names, and the rule by which new files survive a crash.
// Every later room calls it. The room knows no format.
//
// files.h: an owning descriptor, whole reads and writes. output_file.h has the rule for new files.
// A failure ends in CHECK_INPUT with the path and the system's reason; but try_* return false, and
// make_folders returns an errno value.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

inline namespace disk {

struct Fd {
    int fd = -1;

    Fd() = default;
    explicit Fd(int fd) : fd(fd) {}
    Fd(Fd&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
    Fd& operator=(Fd&& other) noexcept { std::swap(fd, other.fd); return *this; }
    ~Fd();
    explicit operator bool() const { return fd >= 0; }
};

Fd open_read(const std::string& path);      // a regular file; a pipe or a device is an error
// Opens a file, a pipe or a device for a single pass from front to end. Returns at the first input or at the
// end.
Fd open_stream(const std::string& path);
// Returns when a read does not have to wait. After 3 seconds of waiting, a line on stderr names the path.
void await_input(int fd, const std::string& path);
uint64_t size_of_file(int fd, const std::string& path);
bool is_regular_file(int fd);
bool is_regular_file(const std::string& path);      // stat only: opening a pipe would consume the pipe
bool is_directory(const std::string& path);
bool file_exists(const std::string& path);
// Returns PROGRAM_FOLDER/path if that file exists, else path unchanged.
std::string beside_program(const std::string& path);
inline constexpr uint64_t kMostRead = 1 << 28;  // largest text read whole, in bytes

// Equal for two paths to the same file or folder; 0, 0 for a path to nothing.
using FileId = std::pair<uint64_t, uint64_t>;
FileId file_id(const std::string& path);

std::string read_file(const std::string& path, uint64_t most = kMostRead);

// Up to `bytes`, fewer only at the end of the file.
size_t read_up_to(int fd, void* out, size_t bytes, const std::string& path);
// Exactly `bytes` from `offset`, without moving the descriptor's position: safe from several threads.
void pread_all(int fd, void* out, size_t bytes, uint64_t offset, const std::string& path);
bool try_write_all(int fd, const void* data, size_t bytes);      // false: errno has the reason
void write_all(int fd, const void* data, size_t bytes, const std::string& path);
void pwrite_all(int fd, const void* data, size_t bytes, uint64_t offset, const std::string& path);

std::string system_reason();        // of errno, with the limit to raise where there is one

// Opens /dev/null for each closed descriptor among stdin, stdout and stderr: otherwise a file opened later
// gets the descriptor, and screen text with it. First in main().
void open_standard_streams();

// Flushes stdout. Incomplete output (a full disk) is an error: exit code 78.
void finish_stdout();

// Text shared by many files, in memory once.
using SharedText = std::shared_ptr<const std::string>;
inline SharedText shared_text(std::string text) {
    return std::make_shared<const std::string>(std::move(text));
}

// An unlinked file in the directory, for data larger than memory.
Fd temporary_file(const std::string& directory);

// Files that match the pattern, sorted by name; empty: no match. A pattern without wildcards is a name.
std::vector<std::string> glob_files(const std::string& pattern);

std::string parent_directory(const std::string& path);     // "." where the path has none
void make_directories(const std::string& path);            // and its parents, synced

// The same over any file system; make and sync return 0 or an errno value, and so does make_folders. sync:
// writes the entries of a folder to the medium.
using FolderCall = std::function<int(const std::string&)>;
int make_folders(const std::string& path, const FolderCall& make, const FolderCall& sync);

}  // namespace disk

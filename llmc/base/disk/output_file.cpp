#include "llmc/base/disk/output_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "llmc/base/check.h"

inline namespace disk {

namespace fs = std::filesystem;

static constexpr const char* kNoFile = "is a device, a pipe or a folder; expected the name of a file, new or "
                                       "to be replaced";

static std::string link_of(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

static constexpr std::string_view kEnding = ".tmp";
static constexpr size_t kDigits = 16;

// No other file has the name, and nobody knows it beforehand.
static std::string temporary_name(const std::string& path) {
    uint64_t number = uint64_t(getpid());
    (void)getrandom(&number, sizeof number, GRND_NONBLOCK);
    return fmt::format("{}.{:0{}x}{}", path, number, kDigits, kEnding);
}

bool is_temporary(std::string_view name) {
    if (!name.ends_with(kEnding)) return false;
    name.remove_suffix(kEnding.size());
    const size_t dot = name.rfind('.');
    return dot != name.npos && name.size() - dot - 1 == kDigits &&
           name.find_first_not_of("0123456789abcdef", dot + 1) == name.npos;
}

std::string NewFile::try_open(bool may_be_nameless) {
    const std::string folder = parent_directory(path);
    if (file_exists(path) && !is_regular_file(path)) return kNoFile;
    if (may_be_nameless) fd = Fd(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
    if (fd && file_exists(link_of(fd.fd))) return "";
    fd = Fd(open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    named = bool(fd);
    if (fd) return "";
    return fmt::format("no file can be created in the folder {}: {}", folder, system_reason());
}

NewFile::NewFile(const std::string& path, std::string& reason, bool may_be_nameless)
    : path(path), temporary(temporary_name(path)) {
    reason = try_open(may_be_nameless);
}

NewFile::NewFile(const std::string& path, bool may_be_nameless)
    : path(path), temporary(temporary_name(path)) {
    const std::string reason = try_open(may_be_nameless);
    CHECK_INPUT(reason.empty(), "{}: {}", path, reason);
}

NewFile::~NewFile() { if (fd && named) unlink(temporary.c_str()); }

std::string NewFile::try_commit(bool sync) {
    if (sync && fsync(fd.fd) != 0 && errno != EINVAL) return "cannot be synced: " + system_reason();
    if (!named) {           // open(2), O_TMPFILE; linkat replaces no file, rename does
        const std::string from = link_of(fd.fd);
        named = linkat(AT_FDCWD, from.c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) == 0;
        if (!named) return fmt::format("cannot be created as {}: {}", temporary, system_reason());
    }
    if (rename(temporary.c_str(), path.c_str()) != 0) return "cannot be replaced: " + system_reason();
    fd = Fd();
    return "";
}

void NewFile::commit(bool sync) {
    const std::string reason = try_commit(sync);
    CHECK_INPUT(reason.empty(), "{}: {}", path, reason);
}

void write_file(const std::string& path, std::string_view content) {
    NewFile f(path);
    f.write(content.data(), content.size());
    f.commit();
}

std::string try_replace_file(const std::string& path, std::string_view content) {
    std::string reason;
    NewFile f(path, reason);
    if (!f.fd) return reason;
    if (!try_write_all(f.fd.fd, content.data(), content.size())) return system_reason();
    return f.try_commit(false);
}

// ---------------------------------------------------------------------------------------------------------
// places that the user names

// By name, whether or not the file exists: a run would find the output as its own.
static bool is_file_of_run(const std::string& path) {
    static constexpr std::string_view kNames[] = {"metrics.jsonl", "checkpoints.jsonl", "evals.jsonl",
                                                  "config.json", "kernels.txt", "train_gpt.lock"};
    static constexpr std::string_view kStep = "step_";
    std::error_code error;
    const fs::path folder = fs::weakly_canonical(parent_directory(path), error);
    const std::string name = fs::path(path).filename().string(), below = folder.filename().string();
    if (std::ranges::find(kNames, name) != std::end(kNames)) return true;
    if (name.starts_with("events.out.tfevents") || name.starts_with("trace_step_")) return true;
    const size_t digits = name.find_first_not_of("0123456789", kStep.size());
    const bool numbered = name.starts_with(kStep) && digits > kStep.size();     // step_5, step_5.damaged
    if (numbered && (digits == name.npos || name[digits] == '.')) return true;
    if (file_exists(folder.string() + "/manifest.json")) return true;           // a checkpoint
    const auto is_folder_of = [](const std::string& name, const fs::path& run) {
        return (name == "ranks" || name == "ranks_that_read" || name == "answers") &&
               (file_exists(run / "metrics.jsonl") || file_exists(run / "train_gpt.lock"));
    };
    return is_folder_of(name, folder) || is_folder_of(below, folder.parent_path());
}

static std::string without_space(std::string text) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
    return text;
}

void check_output(const std::string& key, const std::string& path, std::string_view begin) {
    CHECK_INPUT(!is_file_of_run(path), "{}: {} is the place of a file of a run or of a checkpoint: name "
                "another file", key, path);
    if (!file_exists(path)) return;
    CHECK_INPUT(is_regular_file(path), "{}: {} {}", key, path, kNoFile);
    const std::string kind = without_space(std::string(begin));
    const Fd file = open_read(path);
    std::string found(2 * begin.size() + 64, '\0');
    found.resize(read_up_to(file.fd, found.data(), found.size(), path));
    found = without_space(std::move(found));
    CHECK_INPUT(found.empty() || found.starts_with(kind), "{}: {} is a file of another kind, which would be "
                "replaced: name another file", key, path);
}

// ---------------------------------------------------------------------------------------------------------
// links

std::string try_own_folder(const std::string& path) {
    struct stat s;
    if (mkdir(path.c_str(), 0777) == 0) return "";
    const int error = errno;
    if (lstat(path.c_str(), &s) == 0)
        return S_ISDIR(s.st_mode) ? "" : path + " is a link or a file, expected a folder of the run";
    errno = error;
    return system_reason();
}

// Of a link to nothing, or to no file: an empty file.
static std::string try_copy(const std::string& path) {
    std::string reason;
    NewFile copy(path, reason);
    if (!copy.fd) return reason;
    const Fd from(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    std::vector<char> block(1 << 20);
    for (ssize_t n; from && (n = read(from.fd, block.data(), block.size())) != 0;)
        if (n < 0 || !try_write_all(copy.fd.fd, block.data(), size_t(n))) return system_reason();
    if (!from && errno != ENOENT && errno != ELOOP) return system_reason();
    return copy.try_commit(true);
}

std::string try_own_file(const std::string& path) {
    struct stat s;
    if (lstat(path.c_str(), &s) != 0) return "";
    if (S_ISLNK(s.st_mode) || (S_ISREG(s.st_mode) && s.st_nlink > 1)) return try_copy(path);
    return S_ISREG(s.st_mode) ? "" : kNoFile;
}

// ---------------------------------------------------------------------------------------------------------
// files that grow

Fd open_to_append(const std::string& path, std::string& reason) {
    reason = try_own_file(path);
    if (!reason.empty()) return {};
    constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    Fd file(open(path.c_str(), kFlags, 0666));
    if (!file) reason = system_reason();
    return file;
}

std::string try_append(int fd, std::string_view row) {
    const off_t end = lseek(fd, 0, SEEK_END);
    if (try_write_all(fd, row.data(), row.size())) return "";
    const std::string reason = system_reason();
    [[maybe_unused]] const int cut = ftruncate(fd, end);
    lseek(fd, 0, SEEK_END);
    return reason;
}

std::string try_append(const std::string& path, std::string_view row) {
    std::string reason;
    const Fd file = open_to_append(path, reason);
    return file ? try_append(file.fd, row) : reason;
}

}  // namespace disk

#include "llmc/train/watch/tail.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

inline namespace watch {

static constexpr size_t kReadBytes = 1 << 20, kRemembered = 64;

static FileState state_of(const struct stat& s) {
    return {.device = s.st_dev, .inode = s.st_ino, .size = uint64_t(s.st_size),
            .changed = int64_t(s.st_mtim.tv_sec) * 1'000'000'000 + s.st_mtim.tv_nsec,
            .there = S_ISREG(s.st_mode)};
}

FileState file_state(const std::string& path) {
    struct stat s;
    return lstat(path.c_str(), &s) == 0 ? state_of(s) : FileState{};
}

// Kernels before 5.6 have no openat2: there, only the last part of the path is held to be no link.
static int open_beneath(int folder, const char* path) {
    constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;      // a pipe does not block
    open_how how = {};
    how.flags = kFlags;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    const long fd = syscall(SYS_openat2, folder, path, &how, sizeof how);
    const bool absent = fd < 0 && (errno == ENOSYS || errno == EPERM);
    return absent ? openat(folder, path, kFlags) : int(fd);
}

Fd open_below(const std::string& folder, const std::string& path) {
    const Fd root(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root) return {};
    Fd file(open_beneath(root.fd, path.c_str()));
    struct stat s;
    if (!file || fstat(file.fd, &s) != 0 || !S_ISREG(s.st_mode)) return {};
    return file;
}

std::string text_below(const std::string& folder, const std::string& path, size_t most) {
    const Fd file = open_below(folder, path);
    std::string text;
    for (ssize_t n = 1; file && n > 0 && text.size() <= most;) {
        const size_t had = text.size();
        text.resize(had + std::min(most + 1, size_t(1) << 16));
        n = ::read(file.fd, text.data() + had, text.size() - had);
        text.resize(had + size_t(std::max<ssize_t>(n, 0)));
    }
    return text.size() > most ? std::string() : text;
}

// A file that was cut and has grown again between two looks has other bytes before the position.
bool Tail::same_file(int fd) {
    struct stat s;
    if (fstat(fd, &s) != 0) return false;
    const FileState now = state_of(s), was = file;
    file = now;
    if (was.there && (was.device != now.device || was.inode != now.inode)) return false;
    if (now.size < position) return false;
    char bytes[kRemembered];
    const size_t n = before_.size();
    return pread(fd, bytes, n, off_t(position - n)) == ssize_t(n) && before_ == std::string_view(bytes, n);
}

bool Tail::read(int fd, const std::function<void(std::string_view)>& take, uint64_t until) {
    if (!same_file(fd)) return false;
    std::string bytes;
    for (const uint64_t end = std::min(file.size, until); position < end;) {
        const size_t size = size_t(std::min<uint64_t>(kReadBytes, end - position));
        bytes.resize(size);
        const ssize_t n = pread(fd, bytes.data(), size, off_t(position));
        if (n <= 0) break;
        const std::string_view got(bytes.data(), size_t(n));
        const size_t newline = got.rfind('\n');
        const bool too_long = newline == got.npos && got.size() >= kMostLine;
        if (newline == got.npos && !too_long) break;        // half a line: its rest comes later
        const size_t whole = too_long ? got.size() : newline + 1;
        const size_t begin = skipping_ && !too_long ? got.find('\n') + 1 : 0;
        if (!too_long && begin < whole) take(got.substr(begin, whole - begin));
        skipping_ = too_long;
        position += whole;
        before_ = got.substr(whole - std::min(whole, kRemembered), std::min(whole, kRemembered));
    }
    return true;
}

}  // namespace watch

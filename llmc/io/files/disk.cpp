#include "llmc/io/files/disk.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

inline namespace files {

namespace fs = std::filesystem;

static int result(int code) { return code == 0 ? 0 : errno; }

// A link is an error, ELOOP: the link's target belongs to others.
static int open_to(const std::string& path, int flags, int* file) {
    constexpr int kAlways = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    *file = open(path.c_str(), flags | kAlways, 0644);
    return *file < 0 ? errno : 0;
}

// Does not wait, and so takes no error away from the sync that follows. A file system without this call
// leaves the writing to sync.
static int start_writeback(int file) {
    const int error = result(sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE));
    return error == ENOSYS || error == EINVAL || error == ESPIPE ? 0 : error;
}

static int sync_path(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    const int error = result(fsync(fd));
    close(fd);
    return error;
}

static int list_folder(const std::string& path, std::vector<std::string>* names) {
    std::error_code error;
    names->clear();
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
        names->push_back(it->path().filename());
    std::sort(names->begin(), names->end());
    return error.value();
}

static int size_of(const std::string& path, uint64_t* bytes) {
    struct stat s;
    if (stat(path.c_str(), &s) != 0) return errno;
    *bytes = uint64_t(s.st_size);
    if (S_ISDIR(s.st_mode)) return EISDIR;
    return S_ISREG(s.st_mode) ? 0 : ESPIPE;
}

static ssize_t read_at(const std::string& path, void* out, size_t bytes, uint64_t offset) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -errno;
    ssize_t got;
    do got = pread(fd, out, bytes, off_t(offset));
    while (got < 0 && errno == EINTR);
    const ssize_t answer = got < 0 ? -errno : got;
    close(fd);
    return answer;
}

Disk posix_disk() {
    return {.make_folder = [](auto& path) { return result(mkdir(path.c_str(), 0755)); },
            .create = [](auto& path, int* file) { return open_to(path, O_EXCL, file); },
            .append = [](auto& path, int* file) { return open_to(path, O_APPEND, file); },
            .write = [](int file, const void* data, size_t bytes) -> ssize_t {
                const ssize_t n = ::write(file, data, bytes);
                return n < 0 ? -errno : n;
            },
            .start_sync = start_writeback,
            .sync = [](int file) { return result(fsync(file)); },
            .close = [](int file) { return result(::close(file)); },
            .sync_folder = sync_path,
            .rename = [](auto& from, auto& to) { return result(::rename(from.c_str(), to.c_str())); },
            .remove = [](auto& path) { return result(::remove(path.c_str())); },
            .truncate = [](auto& path, uint64_t n) { return result(::truncate(path.c_str(), off_t(n))); },
            .list = list_folder,
            .size = size_of,
            .read = read_at,
            .free_bytes = [](auto& path, uint64_t* bytes) {
                std::error_code error;
                *bytes = uint64_t(fs::space(path, error).available);
                return error.value();
            },
            // NFS asks for a file opened to write
            .is_read = [](auto& path, Fd* claim) {
                Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
                if (!file) return false;
                if (flock(file.fd, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK;
                *claim = std::move(file);
                return false;
            }};
}

Disk noticed(const Disk& disk, const std::function<void()>& done) {
    const auto then_done = [&done](auto operation) {
        return [operation, done](auto&&... args) {
            const auto result = operation(args...);
            done();
            return result;
        };
    };
    return {.make_folder = then_done(disk.make_folder), .create = then_done(disk.create),
            .append = then_done(disk.append), .write = then_done(disk.write),
            .start_sync = then_done(disk.start_sync), .sync = then_done(disk.sync),
            .close = then_done(disk.close), .sync_folder = then_done(disk.sync_folder),
            .rename = then_done(disk.rename), .remove = then_done(disk.remove),
            .truncate = then_done(disk.truncate), .list = then_done(disk.list),
            .size = then_done(disk.size), .read = then_done(disk.read),
            .free_bytes = then_done(disk.free_bytes), .is_read = disk.is_read};
}

Disk fenced(const Disk& disk, const std::function<bool()>& owns) {
    const auto if_owned = [&owns](auto operation) {
        return [operation, owns](auto&&... args) { return owns() ? operation(args...) : ECANCELED; };
    };
    Disk own = disk;
    own.make_folder = if_owned(disk.make_folder);
    own.create = if_owned(disk.create);
    own.append = if_owned(disk.append);
    own.rename = if_owned(disk.rename);
    own.remove = if_owned(disk.remove);
    return own;
}

int write_whole(const Disk& disk, int file, const void* data, size_t bytes) {
    for (const char* at = static_cast<const char*>(data); bytes > 0;) {
        const ssize_t n = disk.write(file, at, bytes);
        if (n < 0 && n != -EINTR) return int(-n);
        if (n == 0) return EIO;
        at += std::max<ssize_t>(n, 0);
        bytes -= size_t(std::max<ssize_t>(n, 0));
    }
    return 0;
}

const char* reason_of(int error) {
    return error == ESPIPE ? "it is a pipe or a device, expected a file" : strerror(error);
}

int read_whole(const Disk& disk, const std::string& path, std::string* content, uint64_t most) {
    uint64_t bytes = 0;
    if (const int error = disk.size(path, &bytes)) return error;
    if (bytes > most) return EFBIG;
    content->resize(size_t(bytes));
    for (uint64_t at = 0; at < bytes;) {
        const ssize_t n = disk.read(path, content->data() + at, size_t(bytes - at), at);
        if (n < 0) return int(-n);
        if (n == 0) { content->resize(size_t(at)); break; }
        at += uint64_t(n);
    }
    return 0;
}

static bool is_full(int error) { return error == ENOTEMPTY || error == EEXIST; }

// Removes a name in the folder. Full folders two levels down move up a level, under a number.
static int remove_level(const Disk& disk, const std::string& folder, const std::string& name, int* moved) {
    const std::string path = folder + "/" + name;
    int error = disk.remove(path);
    if (!is_full(error)) return error == ENOENT ? 0 : error;
    std::vector<std::string> below;
    error = disk.list(path, &below);
    for (const std::string& inner : below) {
        if (error) return error;
        error = disk.remove(path + "/" + inner);
        while (is_full(error))
            error = disk.rename(path + "/" + inner, folder + "/moved_" + std::to_string(++*moved));
        if (error == ENOENT) error = 0;
    }
    return error ? error : disk.remove(path);
}

// Opens a path as a folder only after `remove` reports a full folder, so links are never followed. Folders
// move up before they are emptied: no depth makes a path too long.
int remove_tree(const Disk& disk, const std::string& path) {
    int error = disk.remove(path), moved = 0;
    while (is_full(error)) {
        std::vector<std::string> names;
        error = disk.list(path, &names);
        for (const std::string& name : names)
            if (!error) error = remove_level(disk, path, name, &moved);
        if (!error) error = disk.remove(path);
    }
    return error == ENOENT ? 0 : error;
}

}  // namespace files

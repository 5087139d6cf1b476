#include "llmc/base/disk/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/console.h"

inline namespace disk {

std::string system_reason() {
    const int error = errno;
    const std::string reason = strerror(error);
    if (error == EMFILE) return reason + "; `ulimit -Hn` is how many files a process may have: raise it";
    return error == EFBIG ? reason + "; `ulimit -f` is how large one may be: raise it" : reason;
}

Fd::~Fd() { if (fd >= 0) close(fd); }

// Does not wait for a pipe's writer; later reads do.
static Fd open_at_once(const std::string& path) {
    Fd f(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    CHECK_INPUT(f, "{}: cannot be opened: {}", path, system_reason());
    CHECK_INPUT(!is_directory(path), "{}: is a directory, expected a file", path);
    const int flags = fcntl(f.fd, F_GETFL);
    CHECK_INPUT(flags >= 0 && fcntl(f.fd, F_SETFL, flags & ~O_NONBLOCK) == 0, "{}: cannot be opened: {}",
                path, system_reason());
    return f;
}

Fd open_read(const std::string& path) {
    Fd f = open_at_once(path);
    CHECK_INPUT(is_regular_file(f.fd), "{}: is a pipe or a device, expected a file", path);
    return f;
}

Fd open_stream(const std::string& path) {
    Fd f = open_at_once(path);
    await_input(f.fd, path);
    return f;
}

void await_input(int fd, const std::string& path) {
    static constexpr int kSilent = 3000;        // milliseconds
    if (is_regular_file(fd)) return;
    pollfd input{.fd = fd, .events = POLLIN, .revents = 0};
    for (int limit = kSilent;;) {
        const int ready = poll(&input, 1, limit);
        if (ready > 0 || (ready < 0 && errno != EINTR)) return;     // read() reports the error
        if (ready < 0) continue;
        print(stderr, "note: waiting for input from {}, a pipe or a device\n", path);
        limit = -1;
    }
}

uint64_t size_of_file(int fd, const std::string& path) {
    struct stat s;
    CHECK_INPUT(fstat(fd, &s) == 0, "{}: {}", path, system_reason());
    return uint64_t(s.st_size);
}

bool is_regular_file(int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
}

bool is_regular_file(const std::string& path) {
    struct stat s;
    return stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode);
}

bool is_directory(const std::string& path) {
    struct stat s;
    return stat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode);
}

FileId file_id(const std::string& path) {
    struct stat s;
    return stat(path.c_str(), &s) == 0 ? FileId(s.st_dev, s.st_ino) : FileId();
}

bool file_exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string beside_program(const std::string& path) {
    std::string program(4096, '\0');
    const ssize_t n = readlink("/proc/self/exe", program.data(), program.size());
    program.resize(n > 0 ? size_t(n) : 0);
    const size_t slash = program.rfind('/');
    const std::string beside = program.substr(0, slash == program.npos ? 0 : slash) + "/" + path;
    return file_exists(beside) ? beside : path;
}

size_t read_up_to(int fd, void* out, size_t bytes, const std::string& path) {
    size_t done = 0;
    while (done < bytes) {
        const ssize_t n = read(fd, static_cast<char*>(out) + done, std::min<size_t>(bytes - done, 1 << 30));
        if (n < 0 && errno == EINTR) continue;
        CHECK_INPUT(n >= 0, "{}: cannot be read: {}", path, system_reason());
        if (n == 0) break;
        done += size_t(n);
    }
    return done;
}

std::string read_file(const std::string& path, uint64_t most) {
    const Fd f = open_read(path);
    const uint64_t size = size_of_file(f.fd, path);
    CHECK_INPUT(size <= most, "{}: {} bytes, expected at most {}: is it another file?", path,
                size, most);
    std::string text(size, '\0');
    text.resize(read_up_to(f.fd, text.data(), text.size(), path));
    return text;
}

void pread_all(int fd, void* out, size_t bytes, uint64_t offset, const std::string& path) {
    for (size_t done = 0; done < bytes;) {
        const size_t size = std::min<size_t>(bytes - done, 1 << 30);
        const ssize_t n = pread(fd, static_cast<char*>(out) + done, size, off_t(offset + done));
        if (n < 0 && errno == EINTR) continue;
        CHECK_INPUT(n >= 0, "{}: cannot be read: {}", path, system_reason());
        CHECK_INPUT(n > 0, "{}: ends at byte {}, expected {} bytes more; was it cut while in use?",
                    path, offset + done, bytes - done);
        done += size_t(n);
    }
}

bool try_write_all(int fd, const void* data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n =
            write(fd, static_cast<const char*>(data) + done, std::min<size_t>(bytes - done, 1 << 30));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        done += size_t(n);
    }
    return true;
}

void write_all(int fd, const void* data, size_t bytes, const std::string& path) {
    CHECK_INPUT(try_write_all(fd, data, bytes), "{}: cannot be written: {}", path, system_reason());
}

void pwrite_all(int fd, const void* data, size_t bytes, uint64_t offset, const std::string& path) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n =
            pwrite(fd, static_cast<const char*>(data) + done, bytes - done, off_t(offset + done));
        if (n < 0 && errno == EINTR) continue;
        CHECK_INPUT(n >= 0, "{}: cannot be written: {}", path, system_reason());
        done += size_t(n);
    }
}

void open_standard_streams() {
    for (int fd : {0, 1, 2}) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        const int opened = open("/dev/null", O_RDWR);       // the lowest free number
        CHECK_INPUT(opened == fd, "/dev/null: cannot be opened: {}", system_reason());
    }
}

void finish_stdout() {
    errno = 0;
    const bool whole = fflush(stdout) == 0 && !ferror(stdout);
    CHECK_INPUT(whole, "stdout: cannot be written{}", errno ? ": " + system_reason() : "; is its disk full?");
}

Fd temporary_file(const std::string& directory) {
    std::string name = directory + "/.spool_XXXXXX";
    Fd f(mkostemp(name.data(), O_CLOEXEC));
    CHECK_INPUT(f, "{}: no temporary file can be created there: {}", directory, system_reason());
    unlink(name.c_str());
    return f;
}

std::string parent_directory(const std::string& path) {
    const size_t slash = path.find_last_of('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

int make_folders(const std::string& path, const FolderCall& make, const FolderCall& sync) {
    const std::string parent = parent_directory(path);
    int error = make(path);
    if (error == ENOENT && parent != path) {
        error = make_folders(parent, make, sync);
        if (error == 0 || error == EEXIST) error = make(path);
    }
    return error ? error : sync(parent);
}

// Returns 0 if permissions or the file system do not allow a sync of folders.
static int sync_directory(const std::string& path) {
    const Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd && fsync(fd.fd) != 0 && errno != EINVAL && errno != EROFS) return errno;
    return 0;
}

void make_directories(const std::string& path) {
    if (path.empty() || is_directory(path)) return;
    const auto make = [](const std::string& p) { return mkdir(p.c_str(), 0777) == 0 ? 0 : errno; };
    const int error = make_folders(path, make, sync_directory);
    CHECK_INPUT(error == 0 || (error == EEXIST && is_directory(path)), "{}: cannot be created: {}",
                path, strerror(error));
}

}  // namespace disk

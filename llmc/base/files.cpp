#include "llmc/base/files.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "llmc/base/check.h"

static std::string why() { return strerror(errno); }

Fd::~Fd() { if (fd >= 0) close(fd); }

Fd open_read(const std::string& path) {
    Fd f(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    CHECK_INPUT(f, "%s: cannot be opened: %s%s", path.c_str(), why().c_str(),
                errno == EMFILE ? "; `ulimit -Hn` is how many a process may have: raise it" : "");
    CHECK_INPUT(!is_directory(path), "%s: is a directory, expected a file", path.c_str());
    return f;
}

uint64_t size_of_file(int fd, const std::string& path) {
    struct stat s;
    CHECK_INPUT(fstat(fd, &s) == 0, "%s: %s", path.c_str(), why().c_str());
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

bool file_exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

size_t read_up_to(int fd, void* out, size_t bytes, const std::string& path) {
    size_t done = 0;
    while (done < bytes) {
        const ssize_t n = read(fd, static_cast<char*>(out) + done, std::min<size_t>(bytes - done, 1 << 30));
        if (n < 0 && errno == EINTR) continue;
        CHECK_INPUT(n >= 0, "%s: cannot be read: %s", path.c_str(), why().c_str());
        if (n == 0) break;
        done += size_t(n);
    }
    return done;
}

std::string read_file(const std::string& path) {
    const Fd f = open_read(path);
    std::string text(is_regular_file(f.fd) ? size_of_file(f.fd, path) : 0, '\0');
    text.resize(read_up_to(f.fd, text.data(), text.size(), path));
    for (char more[65536];;) {      // a pipe, or a file that grows
        const size_t n = read_up_to(f.fd, more, sizeof more, path);
        if (n == 0) return text;
        text.append(more, n);
    }
}

void pread_all(int fd, void* out, size_t bytes, uint64_t offset, const std::string& path) {
    for (size_t done = 0; done < bytes;) {
        const size_t part = std::min<size_t>(bytes - done, 1 << 30);
        const ssize_t n = pread(fd, static_cast<char*>(out) + done, part, off_t(offset + done));
        if (n < 0 && errno == EINTR) continue;
        CHECK_INPUT(n >= 0, "%s: cannot be read: %s", path.c_str(), why().c_str());
        CHECK_INPUT(n > 0, "%s: ends at byte %llu, expected %llu bytes more; was it cut while in use?",
                    path.c_str(), (unsigned long long)(offset + done), (unsigned long long)(bytes - done));
        done += size_t(n);
    }
}

void write_all(int fd, const void* data, size_t bytes, const std::string& path) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n =
            write(fd, static_cast<const char*>(data) + done, std::min<size_t>(bytes - done, 1 << 30));
        if (n < 0 && errno == EINTR) continue;
        CHECK_INPUT(n >= 0, "%s: cannot be written: %s", path.c_str(), why().c_str());
        done += size_t(n);
    }
}

void pwrite_all(int fd, const void* data, size_t bytes, uint64_t offset, const std::string& path) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n =
            pwrite(fd, static_cast<const char*>(data) + done, bytes - done, off_t(offset + done));
        if (n < 0 && errno == EINTR) continue;
        CHECK_INPUT(n >= 0, "%s: cannot be written: %s", path.c_str(), why().c_str());
        done += size_t(n);
    }
}

void finish_stdout() {
    errno = 0;
    const bool whole = fflush(stdout) == 0 && !ferror(stdout);
    CHECK_INPUT(whole, "stdout: cannot be written%s", errno ? (": " + why()).c_str() : "; is its disk full?");
}

static std::string link_of(int fd) { return strf("/proc/self/fd/%d", fd); }

NewFile::NewFile(const std::string& path, bool may_be_nameless)
    : path(path), temporary(strf("%s.%d.tmp", path.c_str(), getpid())) {
    const std::string folder = parent_directory(path);
    CHECK_INPUT(is_regular_file(path) || !file_exists(path),
                "%s: is a device, a pipe or a folder; expected the name of a file, new or to be replaced",
                path.c_str());
    if (may_be_nameless) fd = Fd(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
    if (fd && file_exists(link_of(fd.fd))) return;
    fd = Fd(open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    CHECK_INPUT(fd, "%s: no file can be created in the folder %s: %s", path.c_str(), folder.c_str(),
                why().c_str());
    named = true;
}

NewFile::~NewFile() { if (fd && named) unlink(temporary.c_str()); }

void NewFile::commit(bool sync) {
    CHECK_INPUT(!sync || fsync(fd.fd) == 0 || errno == EINVAL, "%s: cannot be synced: %s", path.c_str(),
                why().c_str());
    if (!named) {       // open(2), O_TMPFILE; linkat replaces no file, rename does
        unlink(temporary.c_str());
        named = linkat(AT_FDCWD, link_of(fd.fd).c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) == 0;
        CHECK_INPUT(named, "%s: cannot be created: %s", temporary.c_str(), why().c_str());
    }
    const bool renamed = rename(temporary.c_str(), path.c_str()) == 0;
    CHECK_INPUT(renamed, "%s: cannot be renamed to %s: %s", temporary.c_str(), path.c_str(), why().c_str());
    fd = Fd();
}

void write_file(const std::string& path, std::string_view content) {
    NewFile f(path);
    f.write(content.data(), content.size());
    f.commit();
}

Fd temporary_file(const std::string& directory) {
    std::string name = directory + "/.spool_XXXXXX";
    Fd f(mkostemp(name.data(), O_CLOEXEC));
    CHECK_INPUT(f, "%s: no temporary file can be created there: %s", directory.c_str(), why().c_str());
    unlink(name.c_str());
    return f;
}

std::vector<std::string> glob_files(const std::string& pattern) {
    if (file_exists(pattern)) return {pattern};
    glob_t g;
    std::vector<std::string> names;
    if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &g) == 0)
        names.assign(g.gl_pathv, g.gl_pathv + g.gl_pathc);
    globfree(&g);
    std::sort(names.begin(), names.end());      // by bytes: the same order under any locale
    return names;
}

std::string parent_directory(const std::string& path) {
    const size_t slash = path.find_last_of('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
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

// Where a file system or its permissions do not allow it, there is nothing to be done.
static int sync_directory(const std::string& path) {
    const Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd && fsync(fd.fd) != 0 && errno != EINVAL && errno != EROFS) return errno;
    return 0;
}

void make_directories(const std::string& path) {
    if (path.empty() || is_directory(path)) return;
    const auto make = [](const std::string& p) { return mkdir(p.c_str(), 0777) == 0 ? 0 : errno; };
    const int error = make_folders(path, make, sync_directory);
    CHECK_INPUT(error == 0 || (error == EEXIST && is_directory(path)), "%s: cannot be created: %s",
                path.c_str(), strerror(error));
}

#include "llmc/io/files/rows.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "llmc/base/disk/output_file.h"
#include "llmc/base/json/json_value.h"

inline namespace files {

// Bytes up to the end of the last newline; -errno.
static int64_t bytes_of_lines(const Disk& disk, const std::string& path, uint64_t size) {
    std::vector<char> block(size_t(std::min<uint64_t>(size, 1 << 16)));
    for (uint64_t end = size; end > 0;) {
        const size_t bytes = size_t(std::min<uint64_t>(block.size(), end));
        const ssize_t n = disk.read(path, block.data(), bytes, end - bytes);
        if (n != ssize_t(bytes)) return n < 0 ? n : -EIO;
        const size_t newline = std::string_view(block.data(), bytes).rfind('\n');
        if (newline != std::string_view::npos) return int64_t(end - bytes + newline + 1);
        end -= bytes;
    }
    return 0;
}

// Whether the bytes behind `begin` are a JSON object. The last character cannot tell: a part may end in the
// brace of an inner object.
static bool is_row(const Disk& disk, const std::string& path, uint64_t begin, uint64_t end) {
    std::string text(size_t(end - begin), '\0');
    if (disk.read(path, text.data(), text.size(), begin) != ssize_t(text.size())) return false;
    try {
        return parse_json(text).is_object();
    } catch (const JsonError&) {
        return false;
    }
}

int end_last_row(const Disk& disk, const std::string& path) {
    uint64_t size = 0;
    char last = '\n';
    if (const int error = disk.size(path, &size)) return error == ENOENT ? 0 : error;
    const ssize_t n = size ? disk.read(path, &last, 1, size - 1) : 1;
    if (n != 1) return n < 0 ? int(-n) : EIO;
    if (last == '\n') return 0;
    int file;
    if (const int error = disk.append(path, &file)) return error;       // of a link, too
    const int64_t whole = bytes_of_lines(disk, path, size);
    int error = whole < 0 ? int(-whole) : 0;
    const bool is_whole = !error && last == '}' && is_row(disk, path, uint64_t(whole), size);
    if (is_whole) error = write_whole(disk, file, "\n", 1);
    else if (!error) error = disk.truncate(path, uint64_t(whole));
    const int closed = disk.close(file);
    return error ? error : closed;
}

std::string try_append_row(const std::string& path, std::string_view row) {
    std::string reason = try_own_file(path);
    if (!reason.empty()) return reason;
    if (const int error = end_last_row(posix_disk(), path)) return reason_of(error);
    return try_append(path, row);
}

}  // namespace files

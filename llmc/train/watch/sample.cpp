#include "llmc/train/watch/sample.h"

#include <unistd.h>

#include <algorithm>
#include <string>

static constexpr uint64_t kLook = 2048;         // bytes: several train rows
static constexpr uint64_t kFar = 1 << 20;       // where no train row is nearer, there is none
static constexpr uint64_t kWhole = 1 << 18;     // fewer bytes are read whole

static std::string bytes_at(int fd, uint64_t offset, uint64_t count) {
    std::string bytes(count, '\0');
    const ssize_t n = pread(fd, bytes.data(), count, off_t(offset));
    bytes.resize(size_t(std::max<ssize_t>(n, 0)));
    return bytes;
}

// A train row and where it begins.
struct FoundRow {
    uint64_t offset;
    MetricsRow row;
};

// The first whole train row that begins in [offset, end). found.offset = end: none.
static FoundRow row_after(int fd, uint64_t offset, uint64_t end) {
    FoundRow found{end, {}};
    uint64_t at = offset > 0 ? offset - 1 : 0;      // a line begins at `offset` if a newline stands before
    bool inside = offset > 0;
    for (uint64_t look = kLook; at < end && at < offset + kFar;) {
        const std::string bytes = bytes_at(fd, at, look);
        size_t line = 0;
        for (size_t next; (next = bytes.find('\n', line)) != bytes.npos; line = next + 1, inside = false) {
            if (at + line >= end) return found;
            if (inside || next == line) continue;
            const std::string_view text(bytes.data() + line, next - line);
            if (text.find("\"train\"") == text.npos || !read_metrics_row(text, found.row)) continue;
            if (found.row.event != "train") continue;
            found.offset = at + line;
            return found;
        }
        if (bytes.size() < look) return found;      // the end of the file
        if (line == 0) look *= 2;                   // a long line
        if (line == 0 && look > kFar) return found;
        at += line;
    }
    return found;
}

std::vector<MetricsRow> sampled_rows(int fd, uint64_t begin, uint64_t end, size_t points) {
    std::vector<MetricsRow> rows;
    if (end <= begin || points == 0) return rows;
    if (end - begin <= kWhole) {
        for (uint64_t at = begin; at < end;) {
            FoundRow found = row_after(fd, at, end);
            if (found.offset >= end) break;
            rows.push_back(std::move(found.row));
            at = found.offset + 1;
        }
        if (rows.size() <= points) return rows;
        std::vector<MetricsRow> fewer;
        for (size_t i = 0; i < points; i++)
            fewer.push_back(rows[points == 1 ? 0 : i * (rows.size() - 1) / (points - 1)]);
        return fewer;
    }
    uint64_t last = UINT64_MAX;
    for (size_t i = 0; i < points; i++) {
        const uint64_t offset = begin + uint64_t(double(end - begin) * double(i) / double(points));
        FoundRow found = row_after(fd, offset, end);
        if (found.offset >= end || found.offset == last) continue;
        last = found.offset;
        rows.push_back(std::move(found.row));
    }
    return rows;
}

uint64_t offset_of_step(int fd, uint64_t size, double step) {
    uint64_t low = 0, high = size;              // rows before `low` are earlier, the row at `high` is not
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        const FoundRow found = row_after(fd, middle, size);
        if (found.offset < size && found.row.number("step") < step) low = found.offset + 1;
        else high = middle;
    }
    return row_after(fd, low, size).offset;
}

History first_view(int fd, uint64_t size, size_t points) {
    History history;
    const std::string head = bytes_at(fd, 0, kLook);
    history.feed(head.substr(0, head.find('\n') + 1));          // the start row
    history.train = Columns();
    history.seconds = 0;
    const std::string tail = bytes_at(fd, size - std::min(size, 4 * kLook), 4 * kLook);
    const std::vector<MetricsRow> rows = sampled_rows(fd, 0, size, points);
    for (size_t i = 0; i < rows.size(); i++) history.add_sampled(rows[i], 2 * i);
    // the last lines: the last train row, and whether the run has ended
    const size_t begin = tail.find('\n') + 1, end = tail.rfind('\n') + 1;
    for (size_t at = begin; at < end;) {
        const size_t next = tail.find('\n', at);
        MetricsRow row;
        const bool read = read_metrics_row(std::string_view(tail).substr(at, next - at), row);
        const bool last = tail.find("{\"event\":\"train\"", next) == tail.npos;
        if (read && row.event == "train" && last) history.add_sampled(row, 2 * rows.size());
        if (read && row.event == "done") history.feed(std::string_view(tail).substr(at, next + 1 - at));
        at = next + 1;
    }
    return history;
}

#include "llmc/train/save/recover.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/io/files/rows.h"
#include "llmc/train/save/run_state.h"
#include "llmc/train/save/save.h"

inline namespace saves {

static void require(int error, const std::string& what) {
    CHECK_INPUT(error == 0, "{}: {}", what, reason_of(error));
}

// Names in run.dir; empty without the folder.
static std::vector<std::string> names_in(const Disk& disk, const std::string& run_dir) {
    std::vector<std::string> names;
    const int error = disk.list(run_dir, &names);
    if (error == ENOENT) return {};
    require(error, "cannot list " + run_dir);
    return names;
}

// step_N.tmp-A, step_N.tmp-old
static bool is_leftover(const std::string& name) {
    constexpr std::string_view kMark = ".tmp-";
    const auto n = step_name(name);
    if (!n || !n->rest.starts_with(kMark)) return false;
    const std::string_view of = n->rest.substr(kMark.size());
    return of == "old" || (!of.empty() && of.find_first_not_of("0123456789") == of.npos);
}

void remove_leftovers(const Disk& disk, const std::string& run_dir) {
    for (const std::string& name : names_in(disk, run_dir))
        if (is_leftover(name) || name.starts_with(kSharedProbe) || is_temporary(name))
            require(remove_tree(disk, run_dir + "/" + name), "cannot remove " + run_dir + "/" + name);
}

static bool acknowledged(const std::string& text, int64_t step) {
    const std::string line = "{\"step\":" + std::to_string(step) + ",";
    return text.starts_with(line) || text.find("\n" + line) != text.npos;
}

// Returns the lines, after the last one is whole.
static std::string acknowledgements(const Disk& disk, const std::string& run_dir) {
    const std::string path = run_dir + "/checkpoints.jsonl";
    std::string text;
    require(end_last_row(disk, path), "cannot mend " + path);
    const int error = read_whole(disk, path, &text);
    if (error == ENOENT) return "";
    require(error, "cannot read " + path);
    return text;
}

Recovery recover(const Disk& disk, const std::string& run_dir) {
    Recovery r;
    remove_leftovers(disk, run_dir);
    const std::vector<std::string> names = names_in(disk, run_dir);
    const std::string lines = acknowledgements(disk, run_dir);
    std::vector<int64_t> steps = steps_among(disk, run_dir, names);
    for (; !steps.empty(); steps.pop_back()) {
        const SavePlace place{.run_dir = run_dir, .step = steps.back(), .attempt = 0};
        Verified v = verify_step(disk, run_dir, place.step);
        CHECK_INPUT(v.error == 0, "cannot read {}/{}. Whether it is damaged cannot be told, so nothing was "
                    "changed.\n       Start again when the disk is well, or move that folder away to go on "
                    "from the checkpoint before", place.folder(), v.problem);
        if (!v.manifest) {
            std::string to;
            require(set_aside(disk, place.folder(), &to), "cannot rename " + place.folder() + " to " + to);
            r.damaged.push_back(place.folder() + "/" + v.problem + "; set aside as " + to);
            continue;
        }
        if (!acknowledged(lines, place.step)) {
            DiskQueue q;
            q.add("cannot sync " + run_dir, [&] { return disk.sync_folder(run_dir); });
            add_acknowledgement(q, disk, place);
            q.run();
            CHECK_INPUT(q.error.empty(), "{}", q.error);
        }
        r.manifest = std::move(v.manifest);
        r.folder = place.folder();
        return r;
    }
    const auto was_set_aside = [](const std::string& name) {
        const auto n = step_name(name);
        return n && n->rest.starts_with(kDamaged);
    };
    r.all_damaged = !r.damaged.empty() || !lines.empty() ||
                 std::any_of(names.begin(), names.end(), was_set_aside);
    return r;
}

// Calls row(head, end) for each whole line: the first bytes, and the offset behind the line. 0 or errno.
template <class F> static int each_row(const Disk& disk, const std::string& path, F&& row) {
    static constexpr size_t kHead = 256;        // holds event and step
    uint64_t size = 0;
    if (const int error = disk.size(path, &size)) return error;
    std::vector<char> block(static_cast<size_t>(std::min<uint64_t>(size, 1 << 20)));
    std::string head;
    for (uint64_t at = 0; at < size;) {
        const size_t want = size_t(std::min<uint64_t>(block.size(), size - at));
        const ssize_t n = disk.read(path, block.data(), want, at);
        if (n < 0) return int(-n);
        if (n == 0) break;
        std::string_view rest(block.data(), size_t(n));
        for (size_t end; !rest.empty(); rest.remove_prefix(std::min(end + 1, rest.size()))) {
            end = std::min(rest.find('\n'), rest.size());
            head += rest.substr(0, std::min(end, kHead - head.size()));
            if (end == rest.size()) break;
            row(std::as_const(head), at + uint64_t(rest.data() - block.data()) + end + 1);
            head.clear();
        }
        at += uint64_t(n);
    }
    return 0;
}

static bool is_done(const std::string& head) { return head.starts_with("{\"event\":\"done\""); }

bool has_done_row(const Disk& disk, const std::string& path) {
    bool done = false;
    const int error = each_row(disk, path, [&](const std::string& head, uint64_t) { done |= is_done(head); });
    if (error != ENOENT) require(error, "cannot read " + path);
    return done;
}

// Rows of a start have no step and belong to the next rows. A row up to `step` counts 1, a row beyond -1, and
// the file is cut where the sum so far is largest: a single wrong step moves nothing. A row with a smaller
// step than an earlier row counts 0.
void cut_metrics(const Disk& disk, const std::string& path, int64_t step, int64_t rollbacks) {
    uint64_t keep = 0, size = 0;
    int64_t sum = 0, largest = 0, before = 0, back = 0;
    bool over = step < 0;
    const int error = each_row(disk, path, [&](const std::string& head, uint64_t end) {
        const bool is_rollback = head.starts_with("{\"event\":\"rollback\"");
        back += is_rollback;
        if ((over = over || is_done(head) || back > rollbacks)) return;
        const std::string key = is_rollback ? "\"to\":" : "\"step\":";
        const size_t at = head.find(key);
        const int64_t of = at == head.npos ? -1 : strtoll(head.c_str() + at + key.size(), nullptr, 10);
        if (of > step) sum--;
        else if (of >= before) {
            sum++;
            before = of;
        }
        if (of <= step && (of < 0 || of >= before) && sum >= largest) {
            largest = sum;
            keep = end;
        }
    });
    if (error == ENOENT) return;
    require(error, "cannot read " + path);
    require(disk.size(path, &size), "cannot read " + path);
    if (keep != size) require(disk.truncate(path, keep), "cannot cut " + path);
}

}  // namespace saves

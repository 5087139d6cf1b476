#include "llmc/train/save/recover.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/train/save/run_state.h"
#include "llmc/train/save/save.h"

// ---------------------------------------------------------------------------------------------------------
// one checkpoint

// The tensors that a chunk of a file holds parts of, for a message.
static std::string tensors_in(const Manifest& m, const std::string& file, uint64_t begin, uint64_t end) {
    std::string names;
    int count = 0;
    for (const SavedPiece& p : m.pieces) {
        if (p.file != file || p.at >= end || p.at + p.bytes() <= begin) continue;
        if (count++ < 3) names += (names.empty() ? "" : ", ") + p.part + " of " + p.tensor;
    }
    if (count == 0) return "its header";
    return names + (count > 3 ? " and " + std::to_string(count - 3) + " more" : "");
}

// A file that is not there is damage; one that cannot be read now may be whole.
static std::string why_not(int code, int* error) {
    if (code == ENOENT) return "it is missing";
    if (code != ENOTDIR && code != EISDIR && code != ESPIPE && code != EFBIG) *error = code;
    return reason_of(code);
}

static std::string check_hashes(const Disk& disk, const std::string& folder, const Manifest& m,
                                const SavedFile& f, int* error) {
    std::vector<char> buffer(static_cast<size_t>(std::min(f.bytes, kHashChunk)));
    for (uint64_t at = 0; at < f.bytes; at += kHashChunk) {
        const size_t bytes = size_t(std::min(kHashChunk, f.bytes - at));
        for (size_t got = 0; got < bytes;) {
            const ssize_t n = disk.read(folder + "/" + f.name, buffer.data() + got, bytes - got, at + got);
            if (n <= 0) return f.name + ": " + (n < 0 ? why_not(int(-n), error) : "it ends early");
            got += size_t(n);
        }
        ChunkHasher hasher;
        hasher.add(buffer.data(), bytes);
        if (hasher.finish()[0] != f.hashes[size_t(at / kHashChunk)])
            return strf("%s: bytes %" PRIu64 " to %" PRIu64 " are not those that were saved (%s)",
                        f.name.c_str(), at, at + bytes, tensors_in(m, f.name, at, at + bytes).c_str());
    }
    return "";
}

static std::string check_file(const Disk& disk, const std::string& folder, const Manifest& m,
                              const SavedFile& f, Check check, int* error) {
    uint64_t bytes = 0;
    const int code = disk.size(folder + "/" + f.name, &bytes);
    if (code) return f.name + ": " + why_not(code, error);
    if (bytes != f.bytes)
        return strf("%s: %" PRIu64 " bytes, expected %" PRIu64 " (%s)", f.name.c_str(), bytes, f.bytes,
                    tensors_in(m, f.name, std::min(bytes, f.bytes), UINT64_MAX).c_str());
    return check == Check::Hashes ? check_hashes(disk, folder, m, f, error) : "";
}

// A state with which no run can go on; empty: all is well.
static std::string wrong_state(const Manifest& m) {
    try {
        const RunState state = run_state_of(m.state);
        if (state.step == m.step) return "";
        return strf("it is of step %" PRId64 ", its state of step %" PRId64, m.step, state.step);
    } catch (const std::runtime_error& e) {
        return std::string("the state of the run: ") + e.what();
    }
}

Verified verify_checkpoint(const Disk& disk, const std::string& folder, Check check) {
    std::string text, problem;
    int error = 0;
    if (const int code = read_whole(disk, folder + "/" + kManifest, &text)) {
        problem = why_not(code, &error);
        return {{}, std::string(kManifest) + ": " + problem, error};
    }
    std::optional<Manifest> m = parse_manifest(text, &problem);
    if (m) problem = wrong_state(*m);
    if (!problem.empty()) return {{}, std::string(kManifest) + ": " + problem, 0};
    for (const SavedFile& f : m->files) {
        problem = check_file(disk, folder, *m, f, check, &error);
        if (!problem.empty()) return {{}, problem, error};
    }
    return {std::move(m), "", 0};
}

Verified verify_step(const Disk& disk, const std::string& run_dir, int64_t step, Check check) {
    const SavePlace place{.run_dir = run_dir, .step = step, .attempt = 0};
    Verified v = verify_checkpoint(disk, place.folder(), check);
    if (v.manifest && v.manifest->step != step)
        return {{}, strf("%s: it is of step %" PRId64, kManifest, v.manifest->step), 0};
    return v;
}

// ---------------------------------------------------------------------------------------------------------
// a run

static const std::string kDamaged = ".damaged";

static void require(int error, const std::string& what) {
    CHECK_INPUT(error == 0, "%s: %s", what.c_str(), reason_of(error));
}

// Names in run.dir; none where it is not there.
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
        if (is_leftover(name) || name.starts_with(kSharedProbe))
            require(remove_tree(disk, run_dir + "/" + name), "cannot remove " + run_dir + "/" + name);
}

int set_aside(const Disk& disk, const std::string& path, std::string* to) {
    for (int i = 1;; i++) {
        *to = path + kDamaged + (i == 1 ? "" : "-" + std::to_string(i));
        uint64_t bytes;
        const int there = disk.size(*to, &bytes);
        if (there == 0 || there == EISDIR || there == ELOOP || there == ESPIPE) continue;
        if (there != ENOENT) return there;
        const int error = disk.rename(path, *to);
        if (error != ENOTDIR) return error;         // ENOTDIR: a link that leads nowhere has the name
    }
}

static bool acknowledged(const std::string& text, int64_t step) {
    const std::string line = "{\"step\":" + std::to_string(step) + ",";
    return text.starts_with(line) || text.find("\n" + line) != text.npos;
}

// A line that was cut off goes, since the next would be appended to it.
static std::string acknowledgements(const Disk& disk, const std::string& run_dir) {
    const std::string path = run_dir + "/checkpoints.jsonl";
    std::string text;
    const int error = read_whole(disk, path, &text);
    if (error == ENOENT) return "";
    require(error, "cannot read " + path);
    const size_t whole = text.rfind('\n') == text.npos ? 0 : text.rfind('\n') + 1;
    if (whole != text.size()) require(disk.truncate(path, whole), "cannot cut " + path);
    return text.substr(0, whole);
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
        CHECK_INPUT(v.error == 0, "cannot read %s/%s. Whether it is damaged cannot be told, so nothing was "
                    "changed.\n       Start again when the disk is well, or move that folder away to go on "
                    "from the checkpoint before", place.folder().c_str(), v.problem.c_str());
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
            CHECK_INPUT(q.error.empty(), "%s", q.error.c_str());
        }
        r.manifest = std::move(v.manifest);
        r.folder = place.folder();
        return r;
    }
    const auto was_set_aside = [](const std::string& name) {
        const auto n = step_name(name);
        return n && n->rest.starts_with(kDamaged);
    };
    r.hopeless = !r.damaged.empty() || !lines.empty() ||
                 std::any_of(names.begin(), names.end(), was_set_aside);
    return r;
}

// Calls row(head, end) for each whole line: its first bytes, and the offset behind it. 0 or errno.
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

// Rows of a start have no step and belong to the rows that follow. A row up to `step` counts one for keeping
// all before, a row beyond counts one against: the file is cut where the sum is largest, so that a single
// wrong step moves nothing. A row below an earlier one counts nothing.
void cut_metrics(const Disk& disk, const std::string& path, int64_t step) {
    uint64_t keep = 0, size = 0;
    int64_t sum = 0, largest = 0, before = 0;
    bool over = step < 0;
    const int error = each_row(disk, path, [&](const std::string& head, uint64_t end) {
        if ((over = over || is_done(head))) return;
        const size_t key = head.find("\"step\":");
        const int64_t of = key == head.npos ? -1 : strtoll(head.c_str() + key + 7, nullptr, 10);
        if (of > step) sum--;
        else if (of >= before) sum++, before = of;
        if (of <= step && (of < 0 || of >= before) && sum >= largest) largest = sum, keep = end;
    });
    if (error == ENOENT) return;
    require(error, "cannot read " + path);
    require(disk.size(path, &size), "cannot read " + path);
    if (keep != size) require(disk.truncate(path, keep), "cannot cut " + path);
}

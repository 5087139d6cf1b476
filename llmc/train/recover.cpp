#include "llmc/train/recover.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/train/save.h"

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
    if (code != ENOTDIR && code != EISDIR) *error = code;
    return strerror(code);
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

Verified verify_checkpoint(const Disk& disk, const std::string& folder, Check check) {
    std::string text, problem;
    int error = 0;
    if (const int code = read_whole(disk, folder + "/" + kManifest, &text)) {
        problem = why_not(code, &error);
        return {{}, std::string(kManifest) + ": " + problem, error};
    }
    std::optional<Manifest> m = parse_manifest(text, &problem);
    if (!m) return {{}, std::string(kManifest) + ": " + problem, 0};
    for (const SavedFile& f : m->files) {
        problem = check_file(disk, folder, *m, f, check, &error);
        if (!problem.empty()) return {{}, problem, error};
    }
    return {std::move(m), "", 0};
}

// ---------------------------------------------------------------------------------------------------------
// a run

static void require(int error, const std::string& what) {
    CHECK_INPUT(error == 0, "%s: %s", what.c_str(), strerror(error));
}

// Names in run.dir; none where it is not there.
static std::vector<std::string> names_in(const Disk& disk, const std::string& run_dir) {
    std::vector<std::string> names;
    const int error = disk.list(run_dir, &names);
    if (error == ENOENT) return {};
    require(error, "cannot list " + run_dir);
    return names;
}

void remove_leftovers(const Disk& disk, const std::string& run_dir) {
    for (const std::string& name : names_in(disk, run_dir))
        if ((name.starts_with("step_") && name.find(".tmp-") != name.npos) ||
            name.starts_with(kSharedProbe))
            require(remove_tree(disk, run_dir + "/" + name), "cannot remove " + run_dir + "/" + name);
}

static std::string set_aside(const Disk& disk, const std::string& folder) {
    for (int i = 1;; i++) {
        const std::string to = folder + ".damaged" + (i == 1 ? "" : "-" + std::to_string(i));
        uint64_t bytes;
        const int there = disk.size(to, &bytes);
        if (there == 0 || there == EISDIR) continue;
        require(there == ENOENT ? 0 : there, "cannot look for " + to);
        require(disk.rename(folder, to), "cannot rename " + folder + " to " + to);
        return to;
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
    std::vector<int64_t> steps = steps_among(names);
    for (; !steps.empty(); steps.pop_back()) {
        const SavePlace place{.run_dir = run_dir, .step = steps.back(), .attempt = 0};
        Verified v = verify_checkpoint(disk, place.folder());
        CHECK_INPUT(v.error == 0, "cannot read %s/%s. Whether it is damaged cannot be told, so nothing was "
                    "changed.\n       Start again when the disk is well, or move that folder away to go on "
                    "from the checkpoint before", place.folder().c_str(), v.problem.c_str());
        if (v.manifest && v.manifest->step != place.step)
            v = {{}, "manifest.json: it is of another step", 0};
        if (!v.manifest) {
            const std::string to = set_aside(disk, place.folder());
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
        return name.starts_with("step_") && name.find(".damaged") != name.npos;
    };
    r.hopeless = !r.damaged.empty() || !lines.empty() ||
                 std::any_of(names.begin(), names.end(), was_set_aside);
    return r;
}

// Every row has "step" but those of a start, which belong to what follows them.
void cut_metrics(const Disk& disk, const std::string& path, int64_t step) {
    std::string text;
    const int error = read_whole(disk, path, &text);
    if (error == ENOENT) return;
    require(error, "cannot read " + path);
    size_t keep = 0;
    for (size_t begin = 0, end; step >= 0 && (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
        const std::string_view line(text.data() + begin, end - begin);
        const size_t key = line.find("\"step\":");
        const int64_t of = key == line.npos ? -1 : strtoll(line.data() + key + 7, nullptr, 10);
        if (of > step || line.starts_with("{\"event\":\"done\"")) break;
        keep = end + 1;
    }
    if (keep != text.size()) require(disk.truncate(path, keep), "cannot cut " + path);
}

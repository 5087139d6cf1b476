#include "llmc/train/save/verify.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/guard/wait.h"
#include "llmc/train/save/run_state.h"

inline namespace saves {

// The tensors with pieces in a chunk of a file, for a message.
static std::string tensors_in(const Manifest& m, const std::string& file, uint64_t begin, uint64_t end) {
    std::string names;
    int count = 0;
    for (const SavedPiece& p : m.pieces) {
        if (p.file != file || p.at >= end || p.at + p.bytes() <= begin) continue;
        if (count++ < 3) names += (names.empty() ? "" : ", ") + p.array + " of " + p.tensor;
    }
    if (count == 0) return "its header";
    return names + (count > 3 ? " and " + std::to_string(count - 3) + " more" : "");
}

// A missing file is damage; a file that cannot be read now may be whole.
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
            return fmt::format("{}: bytes {} to {} are not those that were saved ({})",
                               f.name, at, at + bytes, tensors_in(m, f.name, at, at + bytes));
    }
    return "";
}

static std::string check_file(const Disk& disk, const std::string& folder, const Manifest& m,
                              const SavedFile& f, Check check, int* error) {
    uint64_t bytes = 0;
    const int code = disk.size(folder + "/" + f.name, &bytes);
    if (code) return f.name + ": " + why_not(code, error);
    if (bytes != f.bytes)
        return fmt::format("{}: {} bytes, expected {} ({})", f.name, bytes, f.bytes,
                           tensors_in(m, f.name, std::min(bytes, f.bytes), UINT64_MAX));
    return check == Check::Hashes ? check_hashes(disk, folder, m, f, error) : "";
}

// The fault of a state that no run can resume from; empty: no fault.
static std::string wrong_state(const Manifest& m) {
    try {
        const RunState state = run_state_of(m.state);
        if (state.step == m.step) return "";
        return fmt::format("it is of step {}, its state of step {}", m.step, state.step);
    } catch (const std::runtime_error& e) {
        return std::string("the state of the run: ") + e.what();
    }
}

// Reads a manifest; 0 or errno. EFBIG, unread: gigabytes that begin and end as no JSON object does.
static int read_manifest(const Disk& disk, const std::string& path, std::string* text) {
    const int code = read_whole(disk, path, text);
    uint64_t bytes = 0;
    char first = 0, last = 0;
    if (code != EFBIG || disk.size(path, &bytes) != 0) return code;
    if (disk.read(path, &first, 1, 0) != 1 || disk.read(path, &last, 1, bytes - 1) != 1) return EIO;
    const bool is_object = first == '{' && (last == '}' || last == '\n');
    return is_object ? read_whole(disk, path, text, kMostManifest) : EFBIG;
}

Verified verify_checkpoint(const Disk& disk, const std::string& folder, Check check) {
    std::string text, problem;
    int error = 0;
    if (const int code = read_manifest(disk, folder + "/" + kManifest, &text)) {
        problem = why_not(code, &error);
        return {{}, std::string(kManifest) + ": " + problem, error};
    }
    const auto parse = check == Check::Head ? parse_manifest_head : parse_manifest;
    std::optional<Manifest> m = parse(text, &problem);
    if (m) problem = wrong_state(*m);
    if (!problem.empty()) return {{}, std::string(kManifest) + ": " + problem, 0};
    for (const SavedFile& f : m->files) {
        problem = check_file(disk, folder, *m, f, check, &error);
        if (!problem.empty()) return {{}, problem, error};
    }
    return {std::move(m), "", 0};
}

Verified verify_step(const Disk& disk, const std::string& run_dir, int64_t step, Check check) {
    Verified v = verify_checkpoint(disk, run_dir + "/step_" + std::to_string(step), check);
    if (v.manifest && v.manifest->step != step)
        return {{}, fmt::format("{}: it is of step {}", kManifest, v.manifest->step), 0};
    return v;
}

HeldCheckpoint hold_checkpoint(const std::string& folder) {
    const std::string path = folder + "/" + kManifest;
    Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    int error = 0;
    const auto held = [&] {
        error = flock(file.fd, LOCK_SH | LOCK_NB) == 0 ? 0 : errno;
        return error != EWOULDBLOCK;
    };
    // while a run renames the folder
    if (file) wait_until({.what = "a wait for a checkpoint", .on = Awaits::Own, .nap = 0.01}, held);
    if (error) file = Fd();
    return {folder, std::move(file)};
}

int set_aside(const Disk& disk, const std::string& path, std::string* to) {
    for (int i = 1;; i++) {
        *to = path + std::string(kDamaged) + (i == 1 ? "" : "-" + std::to_string(i));
        uint64_t bytes;
        const int there = disk.size(*to, &bytes);
        if (there == 0 || there == EISDIR || there == ELOOP || there == ESPIPE) continue;
        if (there != ENOENT) return there;
        const int error = disk.rename(path, *to);
        if (error != ENOTDIR) return error;         // ENOTDIR: the name is a dangling link
    }
}

}  // namespace saves

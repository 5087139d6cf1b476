#include "llmc/train/save/save.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/json/json.h"
#include "llmc/io/files/rows.h"
#include "llmc/io/files/safetensors.h"
#include "llmc/train/save/verify.h"

inline namespace saves {

bool DiskQueue::advance() {
    if (operations.empty() || !error.empty()) return false;
    const Operation next = std::move(operations.front());
    operations.pop_front();
    if (const int code = next.run()) error = next.what + ": " + strerror(code);
    return error.empty() && !operations.empty();
}

// Bytes between two syncs of a file: no single sync takes minutes (base/guard/hangs.h).
static constexpr size_t kSyncBytes = 256 << 20;

static std::string rank_name(int rank) { return fmt::format("rank_{:05}", rank); }

static int make_folder(const Disk& disk, const std::string& path) {
    const int error = disk.make_folder(path);
    return error == EEXIST ? 0 : error;       // another rank was first
}

namespace {

// A file that is closed even when the queue breaks off.
struct OpenFile {
    const Disk& disk;
    int file = -1;
    explicit OpenFile(const Disk& disk) : disk(disk) {}
    OpenFile(const OpenFile&) = delete;
    ~OpenFile() { if (file >= 0) disk.close(file); }
    int close() { return disk.close(std::exchange(file, -1)); }
};

}  // namespace

static void add_sync_and_close(DiskQueue& q, const std::string& path, std::shared_ptr<OpenFile> f) {
    q.add("cannot sync " + path, [f] { return f->disk.sync(f->file); });
    q.add("cannot close " + path, [f] { return f->close(); });
}

// Writes and syncs a new file. content() is called just before the write.
static void add_file(DiskQueue& q, const Disk& disk, const std::string& path,
                     std::function<SharedText()> content) {
    auto f = std::make_shared<OpenFile>(disk);
    q.add("cannot make " + path, [path, f] { return f->disk.create(path, &f->file); });
    q.add("cannot write " + path, [f, content] {
        const SharedText text = content();
        return write_whole(f->disk, f->file, text->data(), text->size());
    });
    add_sync_and_close(q, path, f);
}

// ---------------------------------------------------------------------------------------------------------
// a rank's share

// Returns the head of the safetensors file; sets file and offset of each piece.
static std::string lay_out(std::vector<SavedPiece>& pieces, const std::string& file) {
    std::vector<TensorInfo> infos;
    for (SavedPiece& p : pieces) {
        std::string name = p.array + "." + p.tensor;
        for (size_t i = 0; i < p.start.size() && p.extent != p.shape; i++)
            name += (i ? "," : "@") + std::to_string(p.start[i]);
        infos.push_back({.name = name, .dtype = p.dtype, .shape = p.extent});
    }
    const std::string head = safetensors_head(infos, {{"format", "train_gpt 2"}});
    for (size_t i = 0; i < pieces.size(); i++) {
        pieces[i].file = file;
        pieces[i].at = head.size() + infos[i].begin;
    }
    return head;
}

DiskQueue save_share(const Disk& disk, const SavePlace& place, int rank, std::vector<SavedPiece> pieces,
                    const std::vector<std::span<const std::byte>>& data, size_t write_bytes) {
    struct State {
        std::string head;
        ChunkHasher hasher;
        ShareNote note;
    };
    auto s = std::make_shared<State>();
    auto f = std::make_shared<OpenFile>(disk);
    const std::string name = rank_name(rank) + ".safetensors", path = place.temporary() + "/" + name;
    s->head = lay_out(pieces, name);
    s->note.pieces = std::move(pieces);
    s->note.file.name = name;
    s->note.file.bytes = s->head.size();
    for (const auto& piece : data) s->note.file.bytes += piece.size();

    DiskQueue q;
    q.add("cannot make " + place.temporary(),
          [&disk, place] { return make_folder(disk, place.temporary()); });
    q.add("cannot make " + path, [&disk, path, f] { return disk.create(path, &f->file); });
    const auto write = [&q, &disk, path, s, f](const void* from, size_t bytes) {
        q.add("cannot write " + path, [&disk, s, f, from, bytes] {
            s->hasher.add(from, bytes);
            if (const int error = write_whole(disk, f->file, from, bytes)) return error;
            return disk.start_sync(f->file);        // the disk works while the next bytes are hashed
        });
    };
    write(s->head.data(), s->head.size());
    size_t unsynced = 0;
    for (const auto& piece : data)
        for (size_t at = 0; at < piece.size(); at += write_bytes) {
            const size_t bytes = std::min(write_bytes, piece.size() - at);
            write(piece.data() + at, bytes);
            if ((unsynced += bytes) < kSyncBytes) continue;
            q.add("cannot sync " + path, [f] { return f->disk.sync(f->file); });
            unsynced = 0;
        }
    add_sync_and_close(q, path, f);
    add_file(q, disk, place.temporary() + "/" + rank_name(rank) + ".json", [s] {
        s->note.file.hashes = s->hasher.finish();
        return shared_text(to_json(s->note));
    });
    return q;
}

// ---------------------------------------------------------------------------------------------------------
// rank 0

static int read_note(const Disk& disk, const std::string& path, Manifest& m) {
    std::string text;
    if (const int error = read_whole(disk, path, &text)) return error;
    std::optional<ShareNote> note = parse_note(text);
    if (!note) return EIO;
    m.files.push_back(std::move(note->file));
    m.pieces.insert(m.pieces.end(), note->pieces.begin(), note->pieces.end());
    return 0;
}

void add_acknowledgement(DiskQueue& q, const Disk& disk, const SavePlace& place) {
    const std::string path = place.run_dir + "/checkpoints.jsonl";
    auto f = std::make_shared<OpenFile>(disk);
    q.add("cannot mend " + path, [&disk, path] { return end_last_row(disk, path); });
    q.add("cannot open " + path, [path, f] { return f->disk.append(path, &f->file); });
    q.add("cannot write " + path, [place, f] {
        const std::string line =
            JsonObject().add("step", place.step).add("dir", place.folder()).str() + "\n";
        return write_whole(f->disk, f->file, line.data(), line.size());
    });
    add_sync_and_close(q, path, f);
    q.add("cannot sync " + place.run_dir, [&disk, place] { return disk.sync_folder(place.run_dir); });
}

// Syncs a file and its name in the folder. 0 if the file is missing.
static int sync_file(const Disk& disk, const std::string& folder, const std::string& name) {
    const std::string path = folder + "/" + name;
    uint64_t bytes;
    if (disk.size(path, &bytes) == ENOENT) return 0;
    OpenFile f(disk);
    if (const int error = disk.append(path, &f.file)) return error;
    if (const int error = disk.sync(f.file)) return error;
    if (const int error = f.close()) return error;
    return disk.sync_folder(folder);
}

// An existing step_N is complete: its save failed after the rename. The step_N of this run stays, and the
// queue goes on to its acknowledgement, perhaps for the second time.
static int rename_or_accept(const Disk& disk, const SavePlace& place, const std::string& run) {
    int error = disk.rename(place.temporary(), place.folder());
    if (error == ENOTDIR) {         // a file, or a link: no checkpoint
        std::string to;
        if (const int code = set_aside(disk, place.folder(), &to)) return code;
        error = disk.rename(place.temporary(), place.folder());
    }
    if (error != ENOTEMPTY && error != EEXIST) return error;
    const Verified v = verify_checkpoint(disk, place.folder());
    if (v.error) return v.error;
    if (!v.manifest || v.manifest->step != place.step || v.manifest->run != run) return error;
    return remove_tree(disk, place.temporary());
}

DiskQueue save_publish(const Disk& disk, const SavePlace& place, Manifest manifest, std::vector<int> writers,
                       std::vector<ExtraFile> extras) {
    DiskQueue q;
    const std::string dir = place.temporary();
    auto m = std::make_shared<Manifest>(std::move(manifest));
    for (const int rank : writers) {
        const std::string note = dir + "/" + rank_name(rank) + ".json";
        q.add("cannot read " + note, [&disk, note, m] { return read_note(disk, note, *m); });
        q.add("cannot remove " + note, [&disk, note] { return disk.remove(note); });
    }
    for (const ExtraFile& extra : extras) {
        ChunkHasher hasher;
        hasher.add(extra.content->data(), extra.content->size());
        m->files.push_back({extra.name, extra.content->size(), hasher.finish()});
        add_file(q, disk, dir + "/" + extra.name, [content = extra.content] { return content; });
    }
    add_file(q, disk, dir + "/" + kManifest, [m] { return shared_text(to_json(*m)); });
    q.add("cannot sync " + dir, [&disk, dir] { return disk.sync_folder(dir); });
    // the rows up to a checkpoint are on the medium before the checkpoint
    q.add("cannot sync " + place.run_dir + "/metrics.jsonl",
          [&disk, place] { return sync_file(disk, place.run_dir, "metrics.jsonl"); });
    q.add("cannot rename " + dir + " to " + place.folder(),
          [&disk, place, m] { return rename_or_accept(disk, place, m->run); });
    q.add("cannot sync " + place.run_dir, [&disk, place] { return disk.sync_folder(place.run_dir); });
    add_acknowledgement(q, disk, place);
    return q;
}

// Renames the folder and syncs the rename before files go: a folder named step_N is always complete.
static void add_removal(DiskQueue& q, const Disk& disk, const std::string& run_dir,
                        const std::string& folder) {
    const std::string old = folder + ".tmp-old";
    q.add("cannot remove " + old, [&disk, old] { return remove_tree(disk, old); });
    q.add("cannot rename " + folder, [&disk, folder, old] {
        Fd claim;
        if (disk.is_read && disk.is_read(folder + "/" + kManifest, &claim)) return 0;       // next time
        return disk.rename(folder, old);
    });
    q.add("cannot sync " + run_dir, [&disk, run_dir] { return disk.sync_folder(run_dir); });
    q.add("cannot remove " + old, [&disk, old] { return remove_tree(disk, old); });
}

DiskQueue prune_checkpoints(const Disk& disk, const CheckpointConfig& keep, const std::string& run_dir) {
    DiskQueue q;
    const std::vector<int64_t> steps = saved_steps(disk, run_dir);
    for (size_t i = 0; keep.keep_last && i + size_t(keep.keep_last) < steps.size(); i++)
        if (!keep.keep_every || steps[i] % keep.keep_every)
            add_removal(q, disk, run_dir, run_dir + "/step_" + std::to_string(steps[i]));
    return q;
}

std::optional<StepName> step_name(std::string_view name) {
    constexpr std::string_view kPrefix = "step_";
    if (!name.starts_with(kPrefix)) return std::nullopt;
    const std::string_view text = name.substr(kPrefix.size());
    int64_t step = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
    const std::string_view digits(text.data(), size_t(end - text.data())), rest = text.substr(digits.size());
    const bool canonical = error == std::errc() && step >= 0 && digits == std::to_string(step);
    if (!canonical || (!rest.empty() && rest[0] != '.')) return std::nullopt;
    return StepName{step, rest};
}

std::vector<int64_t> saved_steps(const Disk& disk, const std::string& run_dir) {
    std::vector<std::string> names;
    return disk.list(run_dir, &names) ? std::vector<int64_t>() : steps_among(disk, run_dir, names);
}

// False for a file, a pipe and a link to itself; true where the disk cannot tell.
static bool may_be_folder(const Disk& disk, const std::string& path) {
    uint64_t bytes;
    const int kind = disk.size(path, &bytes);
    return kind != 0 && kind != ELOOP && kind != ESPIPE;
}

std::vector<int64_t> steps_among(const Disk& disk, const std::string& run_dir,
                                 const std::vector<std::string>& names) {
    std::vector<int64_t> steps;
    for (const std::string& name : names) {
        const auto n = step_name(name);
        if (n && n->rest.empty() && may_be_folder(disk, run_dir + "/" + name)) steps.push_back(n->step);
    }
    std::sort(steps.begin(), steps.end());
    return steps;
}

}  // namespace saves

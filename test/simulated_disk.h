// A disk in memory with the states after a power cut.
//
// Certainly on the medium: the content of a file up to its last sync; the entries of a folder up to its last
// sync, of which a rename of the folder is none. Later writes and entries may be there or not, each by itself
// and in any order; a write may also be torn, and a lost write reads as zeros. Files removed from a renamed
// folder are gone under the old name, too.
#pragma once
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "llmc/io/files/disk.h"

namespace test {

struct SimulatedDisk {
    struct Write { uint64_t at; std::string data; };
    struct File { std::string content, durable; std::vector<Write> pending; };
    // Neither file nor folder: gone. from: what is there is renamed.
    struct Entry {
        std::string path;
        std::shared_ptr<File> file;
        bool folder = false;
        std::string from = {};
    };
    using Tree = std::map<std::string, Entry>;

    Tree tree, durable;
    std::map<std::string, std::string> former;       // names of folders before a rename
    std::vector<std::vector<Entry>> pending;         // changes that no sync has covered; each is atomic
    std::map<int, std::shared_ptr<File>> open;
    int next = 3;
    int64_t operations = 0, stop_at = -1;            // power fails before operation stop_at
    struct PowerCut {};

    static std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }
    void tick() { if (operations++ == stop_at) throw PowerCut(); }

    void change(std::vector<Entry> entries) {
        for (const Entry& e : entries) apply(tree, e);
        pending.push_back(std::move(entries));
    }
    static bool is_in(const std::string& path, const std::string& folder) {
        return path == folder || path.starts_with(folder + "/");
    }
    static void apply(Tree& t, const Entry& e) {
        if (!e.from.empty()) move(t, e.from, e.path);
        else if (e.file || e.folder) t[e.path] = e;
        else t.erase(e.path);
    }
    static void move(Tree& t, const std::string& from, const std::string& to) {
        std::vector<Entry> moved;
        for (const auto& [path, e] : t) if (is_in(path, from)) moved.push_back(e);
        for (Entry& e : moved) {
            t.erase(e.path);
            e.path = to + e.path.substr(from.size());
            t[e.path] = e;
        }
    }
    int make(const std::string& path, int* file) {
        if (tree.count(path)) return EEXIST;
        if (!tree.count(parent(path))) return ENOENT;
        change({{path, std::make_shared<File>(), false}});
        open[*file = next++] = tree[path].file;
        return 0;
    }
    int rename(const std::string& from, const std::string& to) {
        if (!tree.count(from)) return ENOENT;
        const auto inside = tree.lower_bound(to + "/");
        if (inside != tree.end() && inside->first.starts_with(to + "/")) return ENOTEMPTY;
        change({{to, nullptr, false, from}});
        former[to] = from;
        return 0;
    }
    int remove(const std::string& path) {
        if (!tree.count(path)) return ENOENT;
        const auto below = tree.lower_bound(path + "/");
        if (below != tree.end() && below->first.starts_with(path + "/")) return ENOTEMPTY;
        std::vector<Entry> gone = {{path, nullptr, false}};
        if (const auto name = former.find(parent(path)); name != former.end())
            gone.push_back({name->second + path.substr(name->first.size()), nullptr, false});
        change(gone);
        return 0;
    }
    // Entries directly in the folder, and nothing else, are on the medium now.
    int sync_folder(const std::string& path) {
        const auto name = former.find(path);
        std::vector<std::vector<Entry>> left;
        for (const auto& entries : pending) {
            const std::string folder = parent(entries[0].path);
            const bool covered = folder == path || (name != former.end() && folder == name->second);
            if (!covered) { left.push_back(entries); continue; }
            for (const Entry& e : entries) {
                apply(durable, e);
                if (!e.from.empty()) rename_all(left, e.from, e.path);
            }
        }
        pending = left;
        return 0;
    }
    // Changes before a rename that is on the medium: theirs is the new name.
    static void rename_all(std::vector<std::vector<Entry>>& changes, const std::string& from,
                           const std::string& to) {
        for (auto& entries : changes)
            for (Entry& e : entries) if (is_in(e.path, from)) e.path = to + e.path.substr(from.size());
    }
    void sync(File& f) { f.durable = f.content, f.pending.clear(); }

    Disk disk();

    // Decisions of a power cut, in this order: for each change of entries, lost or kept (0, 1); for each
    // write since the file's last sync, the number of kept bytes.
    using Choice = std::vector<uint64_t>;
    Choice undecided() const {
        Choice most(pending.size(), 1);
        for (const auto& f : unsynced()) for (const Write& w : f->pending) most.push_back(w.data.size());
        return most;
    }
    SimulatedDisk after_power_cut(const Choice& choice) const {
        SimulatedDisk d;
        Tree t = durable;
        auto next = choice.begin();
        for (const auto& entries : pending)
            if (*next++) for (const Entry& e : entries) apply(t, e);
        std::map<const File*, std::shared_ptr<File>> copies;
        for (const auto& f : unsynced()) {
            auto copy = copies[f.get()] = std::make_shared<File>();
            copy->content = f->durable;
            for (const Write& w : f->pending) put(copy->content, w, size_t(*next++));
            copy->durable = copy->content;
        }
        for (const auto& [path, e] : t) {
            bool reachable = true;                   // an entry needs its folder
            for (std::string up = parent(path); up.size() > 1; up = parent(up)) reachable &= t.count(up) > 0;
            if (!reachable) continue;
            Entry copy = e;
            if (e.file) {
                auto& file = copies[e.file.get()];
                if (!file) file = std::make_shared<File>(*e.file), file->content = file->durable;
                copy.file = file;
            }
            d.tree[path] = copy;
        }
        d.durable = d.tree;
        return d;
    }
    std::vector<std::shared_ptr<File>> unsynced() const {
        std::vector<std::shared_ptr<File>> files;
        const auto look = [&](const Entry& e) {
            if (e.file && !e.file->pending.empty() && !std::count(files.begin(), files.end(), e.file))
                files.push_back(e.file);
        };
        for (const auto& [path, e] : tree) look(e);
        for (const auto& [path, e] : durable) look(e);
        for (const auto& entries : pending) for (const Entry& e : entries) look(e);
        return files;
    }
    static void put(std::string& content, const Write& w, size_t bytes) {
        if (bytes == 0) return;
        if (content.size() < w.at + bytes) content.resize(size_t(w.at) + bytes);
        content.replace(size_t(w.at), bytes, w.data.substr(0, bytes));
    }
    // Of all that can be read.
    size_t fingerprint() const {
        std::string all;
        for (const auto& [path, e] : tree) all += path + '\n' + (e.file ? e.file->content : "/") + '\n';
        return std::hash<std::string>()(all);
    }
};

inline Disk SimulatedDisk::disk() {
    const auto found = [this](const std::string& path) { return tree.count(path) ? &tree[path] : nullptr; };
    Disk d;
    d.make_folder = [this](auto& path) {
        tick();
        if (tree.count(path)) return EEXIST;
        if (!tree.count(parent(path))) return ENOENT;
        change({{path, nullptr, true}});
        return 0;
    };
    d.create = [this](auto& path, int* file) { tick(); return make(path, file); };
    d.append = [this](auto& path, int* file) {
        tick();
        if (!tree.count(path)) return make(path, file);
        open[*file = next++] = tree[path].file;
        return 0;
    };
    d.write = [this](int file, const void* data, size_t bytes) -> ssize_t {
        tick();
        File& f = *open.at(file);
        f.pending.push_back({f.content.size(), {static_cast<const char*>(data), bytes}});
        f.content.append(static_cast<const char*>(data), bytes);
        return ssize_t(bytes);
    };
    d.start_sync = [this](int) { tick(); return 0; };     // any of it may be lost as before
    d.sync = [this](int file) { tick(); sync(*open.at(file)); return 0; };
    d.close = [this](int file) { open.erase(file); return 0; };
    d.sync_folder = [this](auto& path) { tick(); return sync_folder(path); };
    d.rename = [this](auto& from, auto& to) { tick(); return rename(from, to); };
    d.remove = [this](auto& path) { tick(); return remove(path); };
    d.truncate = [this](auto& path, uint64_t bytes) {
        tick();
        File& f = *tree.at(path).file;
        f.content.resize(size_t(bytes));
        sync(f);                                     // rare, and no promise rests on its loss
        return 0;
    };
    d.list = [this](auto& path, auto* names) {
        names->clear();
        for (const auto& [p, e] : tree) if (parent(p) == path) names->push_back(p.substr(path.size() + 1));
        return tree.count(path) ? 0 : ENOENT;
    };
    d.size = [found](auto& path, uint64_t* bytes) {
        const Entry* e = found(path);
        if (!e) return ENOENT;
        *bytes = e->file ? e->file->content.size() : 0;
        return e->folder ? EISDIR : 0;
    };
    d.read = [found](auto& path, void* out, size_t bytes, uint64_t offset) -> ssize_t {
        const Entry* e = found(path);
        if (!e || !e->file) return -ENOENT;
        const std::string& c = e->file->content;
        const size_t n = offset >= c.size() ? 0 : std::min(bytes, c.size() - size_t(offset));
        memcpy(out, c.data() + offset, n);
        return ssize_t(n);
    };
    d.free_bytes = [](auto&, uint64_t* bytes) { *bytes = UINT64_MAX; return 0; };
    return d;
}

}  // namespace test

#include "llmc/train/save/formats/aside.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"

inline namespace formats {

namespace fs = std::filesystem;

static std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) names.push_back(entry.path().filename());
    return names;
}

// Whether a folder has no other files than those of an export, and their temporary ones.
static bool only_an_export(const Format& format, const std::string& dir) {
    const std::vector<std::string> files = format.files(dir);
    const auto known = [&](const std::string& name) {
        return std::any_of(files.begin(), files.end(), [&](const std::string& file) {
            const std::string plain = file.substr(file.rfind('/') + 1);
            return name == plain || (name.starts_with(plain + ".") && name.ends_with(".tmp"));
        });
    };
    const std::vector<std::string> names = names_in(dir);
    return std::all_of(names.begin(), names.end(), known);
}

// Without slashes at the end; a folder's, without links.
static std::string place_of(std::string path) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    std::error_code error;
    const bool named = fs::path(path).filename() != "." && fs::path(path).filename() != "..";
    if (!is_directory(path) || (named && !fs::is_symlink(path, error))) return path;
    return fs::canonical(path, error);
}

static bool same_disk(const std::string& a, const std::string& b) {
    struct stat x, y;
    return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev;
}

Aside::Aside(const Format& f, const std::string& to) : format(f), path(place_of(to)) {
    const bool there = is_directory(path);
    alone = !there || (only_an_export(format, path) && same_disk(path, parent_directory(path)));
    folder = path + (alone ? ".unfinished" : "/unfinished");
    const std::string name = fs::path(path).filename();
    copy = folder + "/" + name;
    for (const std::string& found : names_in(folder)) {
        const bool left = (found == name && only_an_export(format, copy)) || found.ends_with(".tmp");
        CHECK_INPUT(left, "--export={}:{}: {}/{} is in the way, where exports are first written. "
                    "Move it away", format.prefix, to, folder, found);
    }
    undo = [this] {
        std::error_code error;
        fs::remove_all(folder, error);
    };
    undo();
    make_directories(folder);
    context.undo = &undo;
}

Aside::~Aside() {
    context.undo = nullptr;
    undo();
}

static void move(const std::string& from, const std::string& to) {
    CHECK_INPUT(rename(from.c_str(), to.c_str()) == 0, "{}: cannot be renamed to {}: {}", from, to,
                strerror(errno));
}

void Aside::put_in_place() {
    if (!is_directory(path)) return move(copy, path);
    if (alone && renameat2(AT_FDCWD, copy.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return;
    const std::vector<std::string> before = format.files(path);
    remove_file(before.front());
    std::vector<std::string> names = names_in(copy);
    std::partition(names.begin(), names.end(), [&](const std::string& name) {
        return path + "/" + name != before.front();
    });
    for (const std::string& file : before)
        if (std::find(names.begin(), names.end(), file.substr(file.rfind('/') + 1)) == names.end())
            remove_file(file);
    for (const std::string& name : names) move(copy + "/" + name, path + "/" + name);
}

}  // namespace formats

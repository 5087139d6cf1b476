#include "llmc/base/disk/glob.h"

#include <glob.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "llmc/base/disk/files.h"

inline namespace disk {

static std::vector<std::string> matches_of(const std::string& pattern) {
    glob_t g;
    std::vector<std::string> names;
    if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &g) == 0)
        names.assign(g.gl_pathv, g.gl_pathv + g.gl_pathc);
    globfree(&g);
    return names;
}

// Adds the folder and every folder below it, each as "NAME/"; the working folder as "".
static void add_folders(const std::string& folder, std::vector<std::string>& all) {
    all.push_back(folder);
    std::error_code error;
    std::filesystem::directory_iterator entries(folder.empty() ? "." : folder, error), end;
    for (; !error && entries != end; entries.increment(error)) {
        const std::string name = entries->path().filename().string();
        std::error_code gone;
        if (name.starts_with(".") || entries->is_symlink(gone) || !entries->is_directory(gone)) continue;
        add_folders(folder + name + "/", all);
    }
}

// Where the first ** begins that is a whole part of the path; npos: nowhere.
static size_t place_of_stars(const std::string& pattern) {
    for (size_t at = 0; (at = pattern.find("**", at)) != pattern.npos; at++) {
        const bool begins = at == 0 || pattern[at - 1] == '/';
        if (begins && (at + 2 == pattern.size() || pattern[at + 2] == '/')) return at;
    }
    return pattern.npos;
}

std::vector<std::string> glob_files(const std::string& pattern) {
    if (file_exists(pattern)) return {pattern};
    std::vector<std::string> names;
    const size_t at = place_of_stars(pattern);
    if (at == pattern.npos) names = matches_of(pattern);
    else {
        const std::string before = pattern.substr(0, at);
        const std::string after = at + 3 < pattern.size() ? pattern.substr(at + 3) : "*";
        std::vector<std::string> folders;
        for (const std::string& root : at == 0 ? std::vector<std::string>{""} : matches_of(before))
            add_folders(root, folders);
        for (const std::string& folder : folders)
            for (const std::string& name : glob_files(glob_escaped(folder) + after)) names.push_back(name);
    }
    std::sort(names.begin(), names.end());      // by bytes: the same order under any locale
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::string glob_escaped(const std::string& name) {
    std::string pattern;
    for (const char c : name) {
        if (strchr("*?[]\\", c)) pattern += '\\';
        pattern += c;
    }
    return pattern;
}

std::vector<std::string> files_below(const std::string& folder) {
    std::vector<std::string> files = glob_files(glob_escaped(folder) + "/**/*");
    std::erase_if(files, [](const std::string& path) { return is_directory(path); });
    return files;
}

}  // namespace disk

#include "llmc/base/cache_file.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "llmc/base/files.h"

std::string cache_path(const std::string& name) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache) return std::string(cache) + "/train_gpt/" + name;
    return home && *home ? std::string(home) + "/.cache/train_gpt/" + name : "";
}

bool try_keep(const std::string& path, std::string_view text) {
    std::error_code error;
    std::filesystem::create_directories(parent_directory(path), error);
    if (!error) return try_replace_file(path, text);
    errno = error.value();
    return false;
}

#include "llmc/base/host/cache_file.h"

#include <cstdlib>
#include <filesystem>

#include "llmc/base/disk/output_file.h"

inline namespace host {

std::string cache_path(const std::string& name) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache) return std::string(cache) + "/train_gpt/" + name;
    return home && *home ? std::string(home) + "/.cache/train_gpt/" + name : "";
}

std::string try_keep(const std::string& path, std::string_view text) {
    std::error_code error;
    std::filesystem::create_directories(parent_directory(path), error);
    return error ? error.message() : try_replace_file(path, text);
}

}  // namespace host

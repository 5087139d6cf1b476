// Files that this user's runs keep for each other, in XDG_CACHE_HOME/train_gpt or ~/.cache/train_gpt
// (https://specifications.freedesktop.org/basedir-spec).
#pragma once
#include <string>
#include <string_view>

inline namespace host {

// Empty where this user has no home.
std::string cache_path(const std::string& name);

// Replaces the file whole, and makes its folder. Returns the reason of a failure.
std::string try_keep(const std::string& path, std::string_view text);

}  // namespace host

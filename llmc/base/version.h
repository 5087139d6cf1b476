#pragma once
#include <string>

extern const char* const commit;

// What --version prints. `libraries` is a line per library that the caller knows, such as "oneDNN 2.6.3".
std::string version_text(const std::string& libraries);

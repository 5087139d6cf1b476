// Commit, target and compiler of this build.
#pragma once
#include <string>

inline namespace host {

extern const char* const commit;
// cpu, cuda, or emulated: CUDA's kernels run by the CPU, for tests. run.device has the same value, or auto.
extern const char* const built_device;

// Text of ./tokenize --version: commit, compiler, CPU. rows: further lines behind the commit.
std::string build_text(const char* program, const std::string& rows = "");
// Text of ./train_gpt --version. `libraries`: a line per library known to the caller, such as "oneDNN 2.6.3".
std::string version_text(const std::string& libraries);

}  // namespace host

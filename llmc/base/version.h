#pragma once
#include <string>

extern const char* const commit;
// cpu, cuda, or emulated: CUDA's kernels run by the CPU, for tests. run.device is that or auto.
extern const char* const built_device;

// What ./tokenize --version prints: commit, compiler, CPU.
std::string build_text(const char* program, const std::string& rows = "");
// What ./train_gpt --version prints. `libraries` is a line per library that the caller knows, such as
// "oneDNN 2.6.3".
std::string version_text(const std::string& libraries);

// COMMIT and DEVICE come from the Makefile.
#include "llmc/base/host/version.h"

#include <sstream>

#include "llmc/base/check.h"
#include "llmc/base/host/cpu_guard.h"

#ifndef COMMIT
#define COMMIT "unknown"
#endif
#ifndef DEVICE
#define DEVICE "cpu"
#endif

inline namespace host {

const char* const commit = COMMIT;
const char* const built_device = DEVICE;

std::string build_text(const char* program, const std::string& rows) {
    std::string text = fmt::format("{}, commit {}\n", program, commit) + rows;
    text += fmt::format("compiler    {}\n", "g++ " __VERSION__);
    text += fmt::format("built for   {}:", built_for.arch);
    size_t column = text.size() - text.rfind('\n');
    std::stringstream features(built_for.features);
    for (std::string name; features >> name; column += name.size() + 1) {
        if (column + name.size() > 100) {
            text += "\n           ";
            column = 12;
        }
        text += " " + name;
    }
    return text + "\n";
}

std::string version_text(const std::string& libraries) {
    const char* named = libraries.empty() ? "none for matmul" : libraries.c_str();
    const bool cpu = std::string(built_device) == "cpu";
    return build_text("train_gpt", fmt::format("backends    {}\nprecisions  fp32, bf16{}\nlibraries   {}\n",
                                               built_device, cpu ? ", fp64" : "", named));
}

}  // namespace host

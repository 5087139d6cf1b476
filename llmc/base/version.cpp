// COMMIT comes from the Makefile.
#include "llmc/base/version.h"

#include "llmc/base/check.h"
#include "llmc/base/cpu_guard.h"

#ifndef COMMIT
#define COMMIT "unknown"
#endif

const char* const commit = COMMIT;

std::string version_text(const std::string& libraries) {
    std::string text = strf("train_gpt, commit %s\n", commit);
    text += "backends    cpu\nprecisions  fp32, bf16, fp64\n";
    text += strf("libraries   %s\n", libraries.empty() ? "none for matmul" : libraries.c_str());
    text += strf("compiler    %s\n", "g++ " __VERSION__);
    return text + strf("built for   %s (%s)\n", built_for.arch, built_for.features);
}

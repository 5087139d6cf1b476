#include "llmc/base/check.h"

#include <cstdio>

#include "llmc/base/json.h"

void warning_message(const std::string& message) {
    fprintf(stderr, "warning: %s\n", for_terminal(message).c_str());
}

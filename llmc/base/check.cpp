#include "llmc/base/check.h"

#include <cstdio>

#include "llmc/base/terminal.h"

inline namespace base {

void warning_message(const std::string& message) {
    fprintf(stderr, "%swarning: %s\n", line_start(2), for_terminal(message).c_str());
}

}  // namespace base

#include "llmc/base/check.h"

#include <cstdio>

#include "llmc/base/json.h"

std::string vstrf(const char* fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    std::string text(size_t(vsnprintf(nullptr, 0, fmt, args)), '\0');
    vsnprintf(text.data(), text.size() + 1, fmt, again);
    va_end(again);
    return text;
}

std::string strf(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    std::string text = vstrf(fmt, args);
    va_end(args);
    return text;
}

void warning(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const std::string text = for_terminal(vstrf(fmt, args));
    va_end(args);
    fprintf(stderr, "warning: %s\n", text.c_str());
}

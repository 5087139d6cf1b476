#include "llmc/base/check.h"

#include <unistd.h>

#include <cstdio>

#include "llmc/base/context.h"

static std::string format(const char* fmt, va_list args) {
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
    std::string text = format(fmt, args);
    va_end(args);
    return text;
}

void fatal(int code, const char* file, int line, const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const std::string text = format(fmt, args);
    va_end(args);
    if (context.throw_on_fatal) throw Fatal(code, text);
    fflush(stdout);
    fprintf(stderr, "error: %s\n       (rank %d, %s:%d)\n", text.c_str(), context.rank, file, line);
    fflush(stderr);
    _exit(code);    // no destructors: other threads may be in the middle of anything
}

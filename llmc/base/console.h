// Text on the screen, and numbers as people read them.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "llmc/base/check.h"

inline namespace base {

// Prints to stdout, or to the file. Unlike fmt::print, it does not throw when a write fails: a training run
// goes on without a screen, and other programs end with finish_stdout().
template <class... A> void print(FILE* file, fmt::format_string<A...> format, const A&... args) {
    const std::string text = fmt::vformat(format, fmt::make_format_args(args...));
    fwrite(text.data(), 1, text.size(), file);
}
template <class... A> void print(fmt::format_string<A...> format, const A&... args) {
    ::print(stdout, format, args...);
}

std::string human_bytes(double bytes);          // 1.24 GB, powers of 1000
std::string human_count(double count);          // 124.4M
std::string human_seconds(double seconds);      // 340 ms, 3.4 s, 2 min 05 s, 3 h 20 min, 4 d 03 h
std::string grouped(int64_t n);                 // 124,439,808
std::string counted(int64_t n, const char* one);    // 1 shard, 1,024 shards

// Rows of cells in aligned columns. alignment: a letter per column, 'l' aligns left, else 'r'.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::string& alignment);

// A line of a run's log on stdout, "          saved  runs/a/step_5": the label ends where the column of steps
// ends. Flushed.
void print_event(const char* label, const std::string& text);

}  // namespace base

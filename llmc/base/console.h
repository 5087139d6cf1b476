// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

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

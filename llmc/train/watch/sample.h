// Rows of a long metrics.jsonl without reading the whole file: a few kilobytes at evenly spaced offsets.
#pragma once
#include <cstdint>
#include <vector>

#include "llmc/train/watch/history.h"

// At most `points` train rows between two offsets of a file, in order; every row if few.
std::vector<MetricsRow> sampled_rows(int fd, uint64_t begin, uint64_t end, size_t points);

// Offset of the first train row with this step or a later one, found by bisection; `size`: none.
// REQUIRES: steps grow along the file.
uint64_t offset_of_step(int fd, uint64_t size, double step);

// A first view of a file: its first rows, `points` train rows, its last rows.
History first_view(int fd, uint64_t size, size_t points);

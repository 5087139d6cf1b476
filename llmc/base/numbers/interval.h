// Intervals of elements: of a tensor, of a bucket, of rows.
#pragma once
#include <algorithm>
#include <cstddef>

inline namespace numbers {

struct Interval {
    size_t begin = 0, count = 0;

    size_t end() const { return begin + count; }
    bool empty() const { return count == 0; }
    // Counted from another origin. REQUIRES: origin <= begin.
    Interval from(size_t origin) const { return {begin - origin, count}; }
    // Removes and returns the first elements, at most `most`.
    Interval take(size_t most) {
        const Interval head{begin, std::min(count, most)};
        begin += head.count;
        count -= head.count;
        return head;
    }
};

// The elements in both. An empty result begins where the later one begins.
inline Interval common(Interval a, Interval b) {
    const size_t begin = std::max(a.begin, b.begin), end = std::min(a.end(), b.end());
    return {begin, end - std::min(begin, end)};
}

// Part number i of n parts that follow each other and are equally long, or nearly.
inline Interval part_of(Interval whole, size_t i, size_t n) {
    const size_t begin = whole.count * i / n;
    return {whole.begin + begin, whole.count * (i + 1) / n - begin};
}

}  // namespace numbers

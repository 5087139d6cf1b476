// Reads the numbers of unicode_table.h, which dev/unicode_tables.py writes.
#pragma once
#include <cstdint>

inline namespace unicode {

struct PackedNumbers {
    const char* at;

    // Base 26: digits in upper case, and the last one in lower case.
    uint32_t next() {
        uint32_t n = 0;
        for (; *at < 'a'; at++) n = (n + uint32_t(*at - 'A')) * 26;
        return n + uint32_t(*at++ - 'a');
    }
    uint32_t changed(uint32_t before) {             // 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
        const uint32_t n = next();
        return n % 2 ? before - (n / 2 + 1) : before + n / 2;
    }
};

// f(first, end, value) for each run of code points with one of `values` values. All code points are in a run.
template <class F> void each_run(const char* runs, uint32_t values, F&& f) {
    uint32_t first = 0;
    for (PackedNumbers p{runs}; *p.at;) {
        const uint32_t n = p.next(), end = first + n / values + 1;
        f(first, end, n % values);
        first = end;
    }
}

// f(code, first, second, composes) for each decomposition. Second 0: a single code point; composes: NFC makes
// `code` of the two again.
template <class F> void each_decomposition(const char* decompositions, F&& f) {
    constexpr uint32_t kPair = 0, kSingle = 1;      // 2: a pair that does not compose
    uint32_t code = 0, first = 0, second = 0;
    for (PackedNumbers p{decompositions}; *p.at;) {
        code += p.next();
        const uint32_t run = p.next(), kind = run % 3;
        for (const uint32_t end = code + run / 3 + 1; code < end; code++) {
            first = p.changed(first);
            if (kind != kSingle) second = p.changed(second);
            f(code, first, kind == kSingle ? 0 : second, kind == kPair);
        }
    }
}

}  // namespace unicode

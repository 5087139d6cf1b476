// Intervals against sets of elements.
#include "llmc/base/numbers/interval.h"

#include <set>

#include "test/test.h"

static std::set<size_t> elements(Interval i) {
    std::set<size_t> all;
    for (size_t e = i.begin; e < i.end(); e++) all.insert(e);
    return all;
}

TEST(common_elements_are_those_in_both) {
    constexpr size_t kEnd = 6;
    for (size_t a = 0; a < kEnd * kEnd; a++)
        for (size_t b = 0; b < kEnd * kEnd; b++) {
            const Interval x{a / kEnd, a % kEnd}, y{b / kEnd, b % kEnd}, both = common(x, y);
            std::set<size_t> expected;
            for (const size_t e : elements(x))
                if (elements(y).contains(e)) expected.insert(e);
            EXPECT(elements(both) == expected && both.begin >= std::max(x.begin, y.begin),
                   "%zu + %zu and %zu + %zu have %zu + %zu", x.begin, x.count, y.begin, y.count, both.begin,
                   both.count);
        }
}

TEST(parts_follow_each_other_to_the_end) {
    for (size_t count = 0; count < 20; count++)
        for (size_t n = 1; n < 8; n++) {
            Interval rest{5, count};
            for (size_t i = 0; i < n; i++) {
                const Interval part = part_of({5, count}, i, n), taken = rest.take(part.count);
                EXPECT(part.begin == taken.begin && part.count == taken.count, "part %zu of %zu", i, n);
                EXPECT(part.count >= count / n && part.count <= count / n + 1, "%zu of %zu", part.count,
                       count);
            }
            EXPECT(rest.empty() && rest.begin == 5 + count, "%zu are left", rest.count);
        }
}

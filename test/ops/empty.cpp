// Operations on no rows: none reads, writes or divides by their number.
#include <array>

#include "test/compare.h"

namespace PRECISION {

namespace cpu {
using namespace ::PRECISION::cpu;
#include "test/no_rows.h"
}

TEST(operations_on_no_rows_change_nothing) {
    const auto before = normals<real>(4096, 1);
    const auto weights = normals<floatX>(4096, 2);
    auto sums = before;
    auto w = weights;
    double total = 1;
    const cpu::GradientState finite = {.norm = 1, .scale = 1, .finite = 1};
    for (const int threads : {1, 2}) {
        const Lent lent(threads);
        cpu::everything_on_no_rows(sums.data(), w.data(), &total, &finite);
        EXPECT(same_bits(sums, before) && same_bits(w, weights) && total == 1, "%d threads", threads);
    }
}

}  // namespace PRECISION

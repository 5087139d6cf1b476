// Operations on no rows, as on some ranks of tensor parallelism while generating a token: no op writes, or
// launches an empty grid, which CUDA refuses.
#include <array>

#include "test/cuda.h"

namespace PRECISION {

namespace cuda {
using namespace ::PRECISION::cuda;
#include "test/no_rows.h"
}

TEST(operations_on_no_rows_change_nothing) {
    const CudaScratch lent;
    const auto before = normals<real>(4096, 1);
    const auto weights = normals<floatX>(4096, 2);
    const OnDevice sums(before);
    const OnDevice w(weights);
    const OnDevice total(std::vector<double>{1});
    const OnDevice finite(std::vector<cuda::GradientState>{{.norm = 1, .scale = 1, .finite = 1}});
    cuda::everything_on_no_rows(sums, w, total, finite);
    cuda::synchronize();
    EXPECT(same_bits(sums.host(), before) && same_bits(w.host(), weights) && total.host()[0] == 1);
}

}  // namespace PRECISION

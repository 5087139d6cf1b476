// Marks on the device's clock, and ranges of profilers.
#include "llmc/ops/backend_tuning.h"
#include "test/cuda.h"

namespace PRECISION {

using namespace test;

// Marks before, between and after ops: the device's clock, from mark 0 on. No profiler is attached here.
TEST(marks_have_the_order_of_the_stream) {
    constexpr int kMarks = 4;
    const OnDevice device(normals<real>(4096, 1));
    cuda::make_marks(2);
    for (int mark = 0; mark < kMarks; mark++) {
        cuda::set_mark(mark);
        cuda::accumulate(device, device, 4096);
    }
    const std::vector<double> seconds = cuda::read_marks(kMarks);
    EXPECT(seconds.size() == kMarks && seconds[0] == 0, "%zu marks, the first at %g", seconds.size(),
           seconds[0]);
    for (size_t i = 1; i < seconds.size(); i++)
        EXPECT(seconds[i] >= seconds[i - 1], "mark %zu at %g, after %g", i, seconds[i], seconds[i - 1]);
    EXPECT(cuda::read_marks(0).empty(), "marks of none");
    EXPECT(!cuda::has_profiler(), "a profiler shows ranges");
    cuda::push_range("step");
    cuda::pop_range();
}

}  // namespace PRECISION

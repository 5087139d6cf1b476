// The idle barrier: ranks that are threads with a GPU each wait on the host until every GPU is idle.
#ifdef HAVE_NCCL
#include <atomic>
#include <cstdlib>
#include <exception>

#include "llmc/base/guard/wait.h"
#include "llmc/comm/transport/nccl.h"
#include "llmc/comm/transport/nccl_rank.h"

struct comm::Together {
    const uint64_t ranks;
    std::atomic<uint64_t> calls = 0;        // of all ranks together
};

inline namespace transport {

// Before CUDA begins: by default, kernels and connections load at first use, beside the collectives of other
// threads.
std::shared_ptr<Together> ranks_together(int ranks) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    return std::make_shared<Together>(uint64_t(ranks));
}

}  // namespace transport

bool comm::idle_barrier() {
    Together* const t = nccl_rank.together.get();
    if (!t) return false;
    if (std::uncaught_exceptions() > 0) {       // nobody waits for a rank that fails
        nccl_end(true);
        return true;
    }
    for (const NcclLine& l : nccl_rank.lines) host_waits_for(l.stream);
    for (const cudaStream_t lane : cuda_device().copies) host_waits_for(lane);
    host_waits_for(cuda_device().compute);
    const uint64_t all = (t->calls++ / t->ranks + 1) * t->ranks;
    wait_until({.what = "idle_barrier", .yields = 1000, .nap = 1e-4}, [&] { return t->calls >= all; });
    return true;
}

#endif

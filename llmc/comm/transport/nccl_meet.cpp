// The idle barrier: ranks that are threads with a GPU each wait on the host until every GPU is idle.
#ifdef HAVE_NCCL
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "llmc/base/context.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/transport/nccl.h"
#include "llmc/comm/transport/nccl_rank.h"

struct Together {
    int ranks, here = 0;
    uint64_t round = 0;
    bool broken = false;
    std::mutex guard = {};
    std::condition_variable changed = {};
};

// Before CUDA begins: by default, kernels and connections load at first use, beside the collectives of other
// threads.
std::shared_ptr<Together> ranks_together(int ranks) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    auto together = std::make_shared<Together>();
    together->ranks = ranks;
    return together;
}

void break_apart() {
    if (!nccl_rank.together) return;
    {
        const std::lock_guard lock(nccl_rank.together->guard);
        nccl_rank.together->broken = true;
    }
    nccl_rank.together->changed.notify_all();
}

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
    if (RankProgress* p = context.progress) p->collective = "idle_barrier";
    {
        std::unique_lock lock(t->guard);
        const uint64_t round = t->round;
        if (++t->here == t->ranks) {
            t->here = 0;
            t->round++;
            t->changed.notify_all();
        }
        t->changed.wait(lock, [&] { return t->round != round || t->broken; });
        if (t->round == round) fatal(kExitRestart, __FILE__, __LINE__, "another rank has failed");
    }
    if (RankProgress* p = context.progress) p->collective = "";
    beat();
    return true;
}

#endif

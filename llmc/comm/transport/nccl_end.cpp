// Errors of NCCL, and how a rank's communicators end: destroyed by all ranks together, or aborted where a
// rank is lost. Kernels that wait for a lost rank end by an abort alone.
//
// With run.elastic communicators are nonblocking, so no call of NCCL keeps the host. Every wait of the host
// looks again and again whether the generation is over (base/guard/wait.h): no thread has to watch.
#ifdef HAVE_NCCL
#include <exception>
#include <thread>

#include "llmc/base/guard/generation.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/comm/transport/nccl.h"
#include "llmc/comm/transport/nccl_rank.h"

inline namespace transport {

// ---------------------------------------------------------------------------------------------------------
// errors

static ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(comm, &state);
    return result == ncclSuccess ? state : result;
}

// The first that is no success, of one communicator or of all.
static ncclResult_t state_of_one_or_all(ncclComm_t comm) {
    if (comm) return state_of(comm);
    for (const NcclLine& l : nccl_rank.lines)
        if (const ncclResult_t state = state_of(l.comm); state != ncclSuccess) return state;
    return ncclSuccess;
}

static ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    wait_until({.what = "a call of NCCL", .spins = 100, .yields = 20000, .nap = 1e-4},
               [&] { return (state = state_of_one_or_all(comm)) != ncclInProgress; });
    return state;
}

// A rank may see a peer's end as any of three errors: NCCL names failing sockets and proxies of a lost peer a
// system error or an internal error, too.
void nccl_check(ncclResult_t result, ncclComm_t comm, const char* what, const char* file, int line) {
    if (result == ncclInProgress) result = settled(comm);
    if (result == ncclSuccess) [[likely]] return;
    const bool lost = result == ncclRemoteError || result == ncclSystemError || result == ncclInternalError;
    const char* const last = ncclGetLastError(comm);
    const std::string text = fmt::format("{}: {}{}. {}", what,
                                         lost ? "another rank has failed, or the network: " : "",
                                         ncclGetErrorString(result), last ? last : "");
    if (lost) lose_rank(file, line, text);
    fatal(kExitInternal, file, line, "{}", text);
}

const std::function<void()> nccl_look_for_errors = [] {
    for (const NcclLine& l : nccl_rank.lines)
        if (const ncclResult_t state = state_of(l.comm); state != ncclInProgress)
            nccl_check(state, l.comm, "NCCL", __FILE__, __LINE__);
    if (nccl_rank.outer) (*nccl_rank.outer)();
};

// ---------------------------------------------------------------------------------------------------------
// ends

// All communicators at once: an abort frees memory, for which CUDA waits until no kernel runs, those of the
// other communicators among them (NVIDIA/nccl issues 549 and 564).
static void abort_all() {
    std::vector<std::thread> aborts(nccl_rank.comms.size());
    size_t made = 0;
    for (const ncclComm_t comm : nccl_rank.comms) {
        const auto abort = [comm] { ncclCommAbort(comm); };
        if (comm && !start_thread(aborts[made++], abort).empty()) abort();
    }
    for (std::thread& t : aborts) if (t.joinable()) t.join();
}

void wait_for_idle_device(const std::vector<NcclLine>& lines) {
    for (const NcclLine& l : lines) host_waits_for(l.stream);
    for (const cudaStream_t lane : cuda_device().copies) host_waits_for(lane);
    host_waits_for(cuda_device().compute);
}

// Parts before the whole.
static void destroy_all() {
    for (const NcclLine& l : nccl_rank.lines) host_waits_for(l.stream);
    for (auto comm = nccl_rank.comms.rbegin(); comm != nccl_rank.comms.rend(); comm++)
        if (*comm) NCCL_CHECK(*comm, ncclCommDestroy(*comm));
}

// Destructors may come between this and free_the_rest(): they find no communicator.
static void without_communicators() {
    before_leaving = nullptr;
    in_wait = nullptr;
    nccl_rank.comms.clear();
    if (!nccl_rank.lines.empty()) nccl_rank.ended_lines = std::exchange(nccl_rank.lines, {});
    for (Registered& r : nccl_rank.memory) r.handles.clear();
}

// Before the exception: unwinding frees memory of the host that queued copies read or write, and memory of
// the device, for which CUDA waits until no kernel runs.
void nccl_may_be_lost() {
    before_leaving = [](bool together) {
        together ? destroy_all() : abort_all();
        without_communicators();
        wait_for_idle_device(nccl_rank.ended_lines);
    };
}

static void free_the_rest() {
    for (const auto& m : nccl_rank.members) {
        for (const NcclFlight& f : m->flights) CUDA_CHECK(cudaEventDestroy(f.done));
        for (const NcclRoute& w : m->routes)
            for (cudaEvent_t sent : w.sent) CUDA_CHECK(cudaEventDestroy(sent));
        m->spare.insert(m->spare.end(), m->times.begin(), m->times.end());
        for (const NcclTimes& t : m->spare)
            for (cudaEvent_t e : {t.began, t.ended, t.needed}) CUDA_CHECK(cudaEventDestroy(e));
    }
    for (const NcclLine& l : nccl_rank.ended_lines) {
        CUDA_CHECK(cudaEventDestroy(l.reached));
        CUDA_CHECK(cudaStreamDestroy(l.stream));
    }
    if (nccl_rank.bounce) CUDA_CHECK(cudaFree(nccl_rank.bounce));       // else CUDA has not begun here
    nccl_rank = {};
}

void nccl_end(bool failed) {
    if (!failed && nccl_rank.lines.empty()) return;
    const std::function<void()>* const outer = nccl_rank.outer;
    failed ? abort_all() : destroy_all();
    without_communicators();
    if (std::uncaught_exceptions()) return;
    free_the_rest();
    if (!failed) in_wait = outer;
}

}  // namespace transport

#endif

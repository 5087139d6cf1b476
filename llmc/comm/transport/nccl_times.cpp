// When collectives ran on the device, by events on their stream, and how long ops waited for them.
#ifdef HAVE_NCCL
#include <algorithm>

#include "llmc/comm/transport/nccl_rank.h"

inline namespace transport {

NcclTimes nccl_began(NcclMember& m, uint64_t ticket) {
    NcclTimes t;
    if (m.spare.empty()) {
        for (cudaEvent_t* e : {&t.began, &t.ended, &t.needed}) CUDA_CHECK(cudaEventCreate(e));
    } else {
        t = m.spare.back();
        m.spare.pop_back();
    }
    CUDA_CHECK(cudaEventRecord(t.began, m.stream));
    t.ticket = ticket;
    return t;
}
void nccl_needed(NcclMember& m, const NcclTimes& t) {
    CUDA_CHECK(cudaEventRecord(t.needed, cuda_device().compute));
    m.times.push_back(t);
}

static void add_span(std::vector<DeviceSpan>& spans, const NcclTimes& t) {
    const cudaEvent_t first = cuda_device().timed_marks.at(0);
    float begin = 0, end = 0;               // milliseconds
    CUDA_CHECK(cudaEventElapsedTime(&begin, first, t.began));
    CUDA_CHECK(cudaEventElapsedTime(&end, first, t.ended));
    spans.push_back({t.ticket, 1e-3 * double(begin), 1e-3 * double(end)});
}

void nccl_look_at_times(Group& g) {
    NcclMember& m = nccl_member(g);
    size_t seen = 0;
    for (const NcclTimes& t : m.times) {
        if (cudaEventQuery(t.needed) != cudaSuccess || cudaEventQuery(t.ended) != cudaSuccess) break;
        float busy = 0, waited = 0;         // milliseconds
        CUDA_CHECK(cudaEventElapsedTime(&busy, t.began, t.ended));
        CUDA_CHECK(cudaEventElapsedTime(&waited, t.needed, t.ended));
        g.device.busy += 1e-3 * double(busy);
        g.device.waited += 1e-3 * std::max(0., double(waited));
        if (g.spans) add_span(*g.spans, t);
        m.spare.push_back(t);
        seen++;
    }
    m.times.erase(m.times.begin(), m.times.begin() + ptrdiff_t(seen));
}

}  // namespace transport

#endif

// A collective waits in each rank's stream until every member's stream has arrived; the last to arrive moves
// the data. Mismatching calls end every rank of the communicator.
#include "test/emulator/messages.h"

#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/numbers/dtype.h"
#include "test/emulator/processes.h"
#include "test/emulator/settings.h"
#include "test/emulator/streams.h"

namespace emulator {

std::mutex guard_of_ranks;
static std::vector<std::shared_ptr<Meeting>> incomplete;       // some member has yet to call
std::condition_variable came;
static thread_local std::vector<std::shared_ptr<Group>> pending;       // later in this thread

void no_longer_awaited(Clique& c) {
    for (const auto& [key, meeting] : c.open) std::erase(incomplete, meeting);
}
void break_up(Clique& c, ncclResult_t error, const std::string& why) {
    no_longer_awaited(c);
    if (c.error == ncclSuccess) c.error = error, c.why = why;
}

size_t bytes_of(ncclDataType_t type) {
    switch (type) {
        case ncclInt8: case ncclUint8: return 1;
        case ncclBfloat16: return 2;
        case ncclInt32: case ncclFloat32: return 4;
        case ncclInt64: case ncclFloat64: return 8;
    }
    return 0;
}

// ---------------------------------------------------------------------------------------------------------
// data

template <class T> static void sum_ring(const Meeting& m, size_t slice, const std::vector<std::byte*>& to) {
    const size_t n = m.parts.size(), total = m.call == Call::AllReduce ? m.count : n * m.count;
    std::vector<T> sums(total);
    for (size_t i = 0; i < total; i++) {
        const size_t first = i / slice + 1;            // around a ring, ending at its rank
        for (size_t k = 0; k < n; k++) {
            const T x = reinterpret_cast<const T*>(m.parts[(first + k) % n].from)[i];
            if constexpr (std::is_same_v<T, bfloat16>) sums[i] = k ? T(float(sums[i]) + float(x)) : x;
            else sums[i] = k ? T(sums[i] + x) : x;
        }
    }
    for (size_t r = 0; r < n; r++) {
        const size_t from = m.call == Call::AllReduce ? 0 : r * m.count;
        if (m.count) memcpy(to[r], &sums[from], m.count * sizeof(T));
    }
}

void carry_out(const Meeting& m) {
    const size_t n = m.parts.size(), bytes = m.count * bytes_of(m.type);
    if (bytes == 0) return;
    std::vector<std::byte*> to;
    for (const auto& p : m.parts) to.push_back(p.to);
    const size_t slice = m.call == Call::AllReduce ? (m.count + n - 1) / n : m.count;
    switch (m.call) {
        case Call::Message: memmove(m.parts[1].to, m.parts[0].from, bytes); return;
        case Call::Broadcast:
            for (std::byte* p : to) memmove(p, m.parts[size_t(m.root)].from, bytes);
            return;
        case Call::AllGather:
            for (std::byte* p : to)
                for (size_t r = 0; r < n; r++) memmove(p + r * bytes, m.parts[r].from, bytes);
            return;
        case Call::ReduceScatter: case Call::AllReduce: break;
    }
    switch (m.type) {
        case ncclFloat32: return sum_ring<float>(m, slice, to);
        case ncclFloat64: return sum_ring<double>(m, slice, to);
        case ncclBfloat16: return sum_ring<bfloat16>(m, slice, to);
        case ncclInt32: return sum_ring<uint32_t>(m, slice, to);
        case ncclInt64: return sum_ring<uint64_t>(m, slice, to);
        case ncclInt8: case ncclUint8: return sum_ring<uint8_t>(m, slice, to);
    }
}

// ---------------------------------------------------------------------------------------------------------
// meeting

static Progress visit(Group& g) {
    bool changed = false;
    Progress result = Progress::Done;
    {
        const std::lock_guard lock(guard_of_ranks);
        for (auto& [clique, meeting, kernels] : g.visits) {
            if (kernels->aborted) continue;             // the kernel ends, whatever it waits for
            if (clique->hall) {
                if (!meeting->done && !(meeting->done = meet(*clique, meeting->post)))
                    result = Progress::Blocked;
                continue;
            }
            const bool all = !g.arrived && ++meeting->arrived == meeting->expected && !clique->left;
            if (all && clique->error == ncclSuccess) carry_out(*meeting), meeting->done = true;
            if (!meeting->done && clique->error == ncclSuccess) result = Progress::Blocked;
        }
        changed = !g.arrived;
        g.arrived = true;
        const bool waits = result == Progress::Blocked;
        for (auto& v : g.visits) v.kernels->waiting += int(waits) - int(g.waits);
        g.waits = waits;
    }
    if (changed) tell_of_change();
    return result;
}

// Joins this thread's calls for which other ranks wait already.
static void meet_who_waits() {
    for (size_t i = 0; i < pending.size(); i++) {
        const std::shared_ptr<Group> g = pending[i];
        bool wanted = false;
        {
            const std::lock_guard lock(guard_of_ranks);
            for (const auto& v : g->visits)
                wanted |= !g->arrived && (v.meeting->arrived > 0 || v.clique->hall);
        }
        if (wanted) advance_to(g->stream, g->position);
    }
    std::erase_if(pending, [](const auto& g) {
        const std::lock_guard lock(guard_of_ranks);
        return g->arrived;
    });
}

ncclResult_t enqueue(std::shared_ptr<Group> g) {
    while_blocked = meet_who_waits;
    const cudaError_t error = add_step(g->stream, [g] { return visit(*g); }, settings.early_messages);
    g->position = queued(g->stream);
    std::erase_if(pending, [](const auto& p) { return p->arrived; });
    if (!g->arrived) pending.push_back(std::move(g));
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

static std::string described(const Meeting& m) {
    return fmt::format("{} of {} elements of type {}, root {}", call_names[int(m.call)], m.count, int(m.type),
                       m.root);
}

std::string waits_elsewhere() {
    if (settings.silent_peers) return "";
    const std::lock_guard lock(guard_of_ranks);
    const auto connects = [](const Meeting& m) {
        return m.call == Call::Message && m.count * bytes_of(m.type) == 1;
    };
    for (const auto& m : incomplete)
        for (const std::thread::id thread : m->threads)
            if (thread != std::this_thread::get_id() && !connects(*m))
                return fmt::format("while another thread's {} waits for ranks: CUDA may wait for its "
                                   "kernel, and the ranks for CUDA", described(*m));
    return "";
}

// The same on all ranks, or in place: a slice further on each.
static bool fit(const Meeting& m, ptrdiff_t Meeting::Part::*at) {
    const ptrdiff_t slice = ptrdiff_t(m.count * bytes_of(m.type)), first = m.parts[0].*at;
    bool same = true, in_place = first >= 0;
    for (size_t r = 0; r < m.parts.size(); r++) {
        same &= m.parts[r].*at == first;
        in_place &= m.parts[r].*at == first + ptrdiff_t(r) * slice;
    }
    return same || in_place;
}

// Checks NCCL's rule for registered buffers; results are undefined otherwise.
static std::string misplaced(const Meeting& m) {
    if (m.call == Call::Message || m.count == 0) return "";
    using Part = Meeting::Part;
    for (const auto& [what, at] : {std::pair{"sent", &Part::from_at}, {"received", &Part::to_at}}) {
        if (fit(m, at)) continue;
        std::string where;
        for (const Meeting::Part& p : m.parts) where += (where.empty() ? "" : ", ") + std::to_string(p.*at);
        return fmt::format("{}: what is {} lies at different offsets of the ranks' registered memory: {}",
                           call_names[int(m.call)], what, where);
    }
    return "";
}

std::shared_ptr<Meeting> enter(Communicator& comm, int from, int to, const Meeting& wanted, int place,
                               Meeting::Part part) {
    const std::lock_guard lock(guard_of_ranks);
    Clique& c = *comm.clique;
    const Key key{from, to, comm.calls[{from, to}]++};
    if (c.hall) {
        auto own = std::make_shared<Meeting>(wanted);
        own->post = post(c, key, wanted, place, part);
        return own;
    }
    std::shared_ptr<Meeting>& m = c.open[key];
    if (!m) {
        m = std::make_shared<Meeting>(wanted);
        m->parts.resize(size_t(wanted.expected));
    }
    if (m->call != wanted.call || m->count != wanted.count || m->type != wanted.type ||
        m->root != wanted.root)
        break_up(c, ncclInvalidUsage, fmt::format("rank {} calls {}, another rank {}", comm.rank,
                                                  described(wanted), described(*m)));
    const std::shared_ptr<Meeting> held = m;
    held->parts[size_t(place)] = part;
    held->threads.push_back(std::this_thread::get_id());
    if (held->entered == 0) incomplete.push_back(held);
    if (held->entered + 1 == held->expected) std::erase(incomplete, held);
    if (++held->entered < held->expected) return held;
    c.open.erase(key);
    const std::string why = misplaced(*held);
    if (!why.empty()) break_up(c, ncclInvalidUsage, comm.name + ": " + why);
    return held;
}

}  // namespace emulator

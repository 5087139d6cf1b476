// Common code of transports whose ranks send slices to each other and sum received slices in the order of the
// ranks.
#pragma once
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "llmc/comm/group.h"
#include "llmc/comm/reductions.h"

inline namespace comm {

// Whether the job is a reduction that rounds FP32 to bf16 for the wire.
inline bool rounds(const Group& g, const Job& j) {
    return g.bf16_wire && j.kind == Job::Reduce && j.type == Wire::F32;
}

// First byte of slice k. unit: bytes of an element.
inline std::byte* slice_of(const void* data, const Job& j, int k, size_t unit) {
    return const_cast<std::byte*>(static_cast<const std::byte*>(data)) +
           std::min(j.total, size_t(k) * j.slice) * unit;
}

// First element of rank k's slice in the buffer of an all-to-all, by the counts sent or received.
inline size_t first_of(const size_t* counts, int k) {
    return std::accumulate(counts, counts + k, size_t(0));
}

// Transport::sums_natively of transports without a library that sums.
inline bool sums_in_order(const Group&, Wire) { return false; }

// Type of the job's elements on the wire.
inline Wire wire_type(const Group& g, const Job& j) { return rounds(g, j) ? Wire::BF16 : j.type; }

// Staging: slices for this rank from the other ranks, behind the rounded slices to send, if any.
inline std::byte* received(Group& g, const Job& j) {
    return g.staging + (rounds(g, j) ? size_t(g.size) * j.slice * sizeof(bfloat16) : 0);
}

// Before the parcels of a reduction are sent.
inline void round_slices(Group& g, const Job& j) {
    if (rounds(g, j))
        bf16::round_for_wire(reinterpret_cast<bfloat16*>(g.staging), static_cast<const float*>(j.src),
                             j.total);
}

// What a rank sends to another rank and receives from there: memory, and numbers of elements of wire_type().
struct Parcel {
    const void* out;
    size_t sent;
    void* in;
    size_t received;
};

// The parcel of rank k in a gather, a reduction or an all-to-all
// (of this rank itself: what keep_own() copies).
inline Parcel parcel_of(Group& g, const Job& j, int k) {
    const size_t unit = size_of(wire_type(g, j)), own = comm::elements(j, g.index);
    if (j.kind == Job::Gather) return {j.src, own, slice_of(j.dst, j, k, unit), comm::elements(j, k)};
    if (j.kind == Job::Reduce)
        return {slice_of(rounds(g, j) ? g.staging : j.src, j, k, unit), comm::elements(j, k),
                received(g, j) + size_t(k) * j.slice * unit, own};
    return {static_cast<const std::byte*>(j.src) + first_of(j.sent, k) * unit, j.sent[k],
            static_cast<std::byte*>(j.dst) + first_of(j.received, k) * unit, j.received[k]};
}

// On the host: this rank's slice of a gather or of an all-to-all, to its place in dst.
inline void keep_own(Group& g, const Job& j) {
    if (j.kind == Job::Reduce) return;
    const Parcel own = parcel_of(g, j, g.index);
    if (own.in != own.out && own.sent) memcpy(own.in, own.out, own.sent * size_of(j.type));
}

// *j.dst = the sum of this rank's own slice and the slices in staging. slices: workspace, g.size pointers.
inline void sum_received(Group& g, const Job& j, std::vector<const void*>& slices) {
    const bool rounded = rounds(g, j);
    const size_t unit = rounded ? sizeof(bfloat16) : size_of(j.type), own = comm::elements(j, g.index);
    for (int k = 0; k < g.size; k++) slices[size_t(k)] = received(g, j) + size_t(k) * j.slice * unit;
    slices[size_t(g.index)] = slice_of(rounded ? g.staging : j.src, j, g.index, unit);
    if (rounded)
        bf16::sum_widened_terms(static_cast<float*>(j.dst),
                                 reinterpret_cast<const bfloat16* const*>(slices.data()), g.size, own);
    else comm::sum(j.dst, slices.data(), g.size, own, j.type, false);
}

}  // namespace comm

// A communicator: the ranks of an axis, or all ranks, and their transport.
//
// Every rank has a Group object of its own for each of its axes. The transport (threads of one process, MPI,
// NCCL) is a table of functions. Callers use comm/axis.h.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "llmc/base/numbers/dtype.h"

inline namespace comm {

// Type of the elements of a message.
enum class Wire : uint8_t { Byte, BF16, F32, F64, I32, I64 };

constexpr size_t size_of(Wire t) {
    if (t == Wire::Byte) return 1;
    if (t == Wire::BF16) return 2;
    return t == Wire::F32 || t == Wire::I32 ? 4 : 8;
}

template <class T> constexpr Wire wire_of() {
    if constexpr (std::is_same_v<T, bfloat16>) return Wire::BF16;
    else if constexpr (std::is_same_v<T, float>) return Wire::F32;
    else if constexpr (std::is_same_v<T, double>) return Wire::F64;
    else if constexpr (sizeof(T) == 1) return Wire::Byte;
    else {
        static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                      "no such type on the wire");
        return sizeof(T) == 4 ? Wire::I32 : Wire::I64;
    }
}

enum Verb : uint8_t {
    kAllGather, kReduceScatter, kAllToAll, kAllReduce, kBroadcast, kSend, kRecv, kBarrier, kVerbs
};
inline constexpr const char* verb_names[kVerbs] = {"all_gather", "reduce_scatter", "all_to_all", "all_reduce",
                                                   "broadcast",  "send",           "recv",       "barrier"};

// Traffic of a verb since the start; bytes: sent by this rank.
struct Moved {
    uint64_t calls = 0, bytes = 0;
    double seconds = 0;                 // of waiting, by the caller
};

// Seconds of collectives between memory of devices. busy: on the device. waited: the part in which ops on the
// device waited; during the rest the device computed.
struct DeviceTimes {
    double busy = 0, waited = 0;
};

// A collective on its stream, in seconds from the rank's first mark (ops/decl/timing.h).
struct DeviceSpan {
    uint64_t ticket;
    double begin, end;
};

struct Group;

// A started verb that the caller still has to await. A null group: the verb is complete.
struct Pending {
    Group* group = nullptr;
    uint64_t ticket = 0;
    Verb verb = kVerbs;
};

// Sends in flight from a rank to one peer, at most.
inline constexpr uint64_t kSends = 2;

// A collective over slices, the same for every transport. Slice k of `total` elements is
// [k * slice, (k + 1) * slice), cut at the end of the data. Of AllToAll each slice has a size of its own.
struct Job {
    enum Kind : uint8_t { Gather, Reduce, Broadcast, AllToAll } kind;
    Wire type;
    void* dst;              // Gather: all slices; Reduce: this rank's slice; Broadcast: all
    const void* src;        // Gather: this rank's slice; Reduce: all slices
    size_t slice, total;    // AllToAll: total of both directions
    int root = 0;
    const size_t *sent = nullptr, *received = nullptr;      // AllToAll: elements to and from each rank
};

// All members finish started jobs in the same order; a few jobs may be in flight.
struct Transport {
    const char* name;
    uint64_t (*start)(Group&, const Job&);          // returns a ticket
    void (*finish)(Group&, uint64_t ticket);
    uint64_t (*start_send)(Group&, const void* data, size_t bytes, int peer);       // returns a ticket
    void (*finish_send)(Group&, uint64_t ticket);
    void (*recv)(Group&, void* data, size_t bytes, int peer);
    bool (*sums_natively)(const Group&, Wire);      // whether the library itself can sum the type
    void (*native_all_reduce)(Group&, void* data, size_t count, Wire);      // REQUIRES: sums_natively()
    bool needs_staging;                             // sums in rank order first receive slices into staging
    bool on_device = false;                         // takes memory of the device, in order with the ops
    void (*look_at_times)(Group&) = nullptr;        // adds ended collectives to Group::device; never waits
};

struct Group {
    const char* name = "";              // "tp"
    int index = 0, size = 1;            // this rank's place among the members; number of members
    const Transport* transport = nullptr;
    std::shared_ptr<void> state;        // the transport's

    // Use the library's own reduction (NCCL, MPI) in place of sums in rank order: parallel.reduce = native.
    bool native = false;
    bool bf16_wire = false;             // float is rounded to bf16 before it is sent to be summed
    bool all_to_all = false;            // a step has all-to-alls: the transport connects their messages early
    int most_delay_us = 0;              // tests: each call waits up to this long, at random
    size_t message = size_t(1) << 30;   // bytes of one call of a library whose counts have 31 bits, at most

    std::byte* staging = nullptr;       // by lend_staging()
    size_t staging_bytes = 0;
    std::vector<std::byte> small;       // staging for reductions of a few values
    int reductions_in_flight = 0;
    Moved moved[kVerbs];
    bool timed = false;                 // measure `device`, from the next collective on
    DeviceTimes device;
    std::vector<DeviceSpan>* spans = nullptr;   // of a traced step: look_at_times() appends collectives
};

// The verbs of comm/axis.h without types: count, publish the wait for the supervisor, call the transport.
Pending start_all_gather(Group&, void* dst, const void* src, size_t count, Wire);
Pending start_reduce_scatter(Group&, void* dst, const void* src, size_t count, Wire);
Pending start_all_to_all(Group&, void* dst, const void* src, const size_t* sent, const size_t* received,
                         Wire);
void wait(Pending&);
void all_reduce(Group&, void* data, size_t count, Wire);
void broadcast(Group&, void* data, size_t count, Wire, int root);
Pending start_send(Group&, const void* data, size_t count, Wire, int peer);
void recv(Group&, void* data, size_t count, Wire, int peer);
void barrier(Group&);
void lend_staging(Group&, void* memory, size_t bytes);

// Bytes of staging that a reduction needs. bytes: of all slices together.
inline size_t staging_of(const Group& g, size_t bytes) {
    const bool in_place = g.transport->on_device && g.native && !g.bf16_wire;      // as NCCL does
    return g.transport->needs_staging && !in_place ? bytes : 0;
}

// A barrier of ranks on threads with a GPU each: returns true when every rank of this process has called and
// every GPU is idle. Allocating or freeing device memory may wait for the kernels of every GPU of a process,
// so cudaMalloc and cudaFree belong between two idle barriers. For other ranks returns false at once.
bool idle_barrier();

// Device memory, all zeros, for fast transfers by this rank's transport; null: the transport has none.
void* alloc(size_t bytes);
bool release(void* p);              // false: p is not from alloc()

// For transports. elements(): elements of slice k. sum(): *dst = the sum of `number` slices, added in their
// order; rounded: FP32 terms are rounded to bf16 first.
inline size_t elements(const Job& j, int k) {
    const size_t begin = std::min(j.total, size_t(k) * j.slice);
    return std::min(j.slice, j.total - begin);
}
void sum(void* dst, const void* const* terms, int number, size_t count, Wire, bool rounded);

}  // namespace comm

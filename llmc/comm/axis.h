// Room comm: the mesh of ranks: axes, collectives, and decisions that all ranks take together.
// Called by model (axes tp and cp) and by train/. Transports are below, in comm/transport.
// The room knows pointers and counts. It does not know the meaning of a tensor.
//
// An axis of the mesh of ranks. Collectives have NCCL's names and arguments: pointers, counts of elements.
//
// Collectives on an axis of size 1 return their input without a copy: callers need no case for size 1. send,
// recv and start_send need size > 1. All members of an axis make the same calls in the same order.
#pragma once
#include <cstddef>

#include "llmc/comm/group.h"

inline namespace comm {

struct Axis {
    int index = 0, size = 1;            // index: of this rank; size: number of ranks
    Group* group = nullptr;             // null: one rank

    // dst: `size` slices of `count` elements, in the order of the ranks. In place: src = dst + index * count.
    template <class T> const T* all_gather(T* dst, const T* src, size_t count) const {
        if (size == 1) return src;
        Pending p = start_all_gather(dst, src, count);
        wait(p);
        return dst;
    }
    // dst: this rank's slice of `count` elements of the sum over ranks. In place: dst = src + index * count.
    template <class T> const T* reduce_scatter(T* dst, const T* src, size_t count) const {
        if (size == 1) return src;
        Pending p = start_reduce_scatter(dst, src, count);
        wait(p);
        return dst;
    }
    template <class T> void all_reduce(T* data, size_t count) const {
        if (size > 1) comm::all_reduce(*group, data, count, wire_of<T>());
    }
    template <class T> void broadcast(T* data, size_t count, int root) const {
        if (size > 1) comm::broadcast(*group, data, count, wire_of<T>(), root);
    }
    template <class T> void send(const T* data, size_t count, int peer) const {
        Pending p = start_send(data, count, peer);
        wait(p);
    }
    template <class T> void recv(T* data, size_t count, int peer) const {
        comm::recv(*group, data, count, wire_of<T>(), peer);
    }
    void barrier() const { if (size > 1) comm::barrier(*group); }

    // start_* return at once. Leave all buffers alone until wait(). Limits in flight: one reduction per axis,
    // kSends sends per peer. Wait in the order started, separately for sends and collectives. On an axis of
    // size 1, collectives leave dst unwritten: the result is src.
    template <class T> Pending start_all_gather(T* dst, const T* src, size_t count) const {
        return size == 1 ? Pending() : comm::start_all_gather(*group, dst, src, count, wire_of<T>());
    }
    template <class T> Pending start_reduce_scatter(T* dst, const T* src, size_t count) const {
        return size == 1 ? Pending() : comm::start_reduce_scatter(*group, dst, src, count, wire_of<T>());
    }
    template <class T> Pending start_send(const T* data, size_t count, int peer) const {
        return comm::start_send(*group, data, count, wire_of<T>(), peer);
    }
    // All-to-all with a separate count per rank: src has sent[k] elements for rank k, dst gets received[k]
    // from rank k, both in the order of the ranks. Keep both count arrays valid until wait().
    template <class T>
    Pending start_all_to_all(T* dst, const T* src, const size_t* sent, const size_t* received) const {
        return size == 1 ? Pending() : comm::start_all_to_all(*group, dst, src, sent, received, wire_of<T>());
    }
    void wait(Pending& pending) const { comm::wait(pending); }

    // Place for the input of a scatter into dst: dst itself on one rank, else the buffer.
    template <class T> T* whole(T* dst, T* buffer) const { return size == 1 ? dst : buffer; }
    // Elements of a buffer that collectives fill: none on one rank, which has no collectives.
    size_t staging(size_t count) const { return size == 1 ? 0 : count; }

    // Staging of a reduction of `bytes` over the whole axis, in bytes. The memory plan lends the staging
    // once; axes that never reduce at the same time may share memory.
    size_t reduce_staging(size_t bytes) const {
        return size > 1 ? comm::staging_of(*group, bytes) : 0;
    }
    void lend_staging(void* memory, size_t bytes) const {
        if (size > 1) comm::lend_staging(*group, memory, bytes);
    }
};

// A rank's index on an axis that has no communicator (dp), and the size of the axis.
struct Position { int index = 0, size = 1; };

// A rank's axes and groups: rows of comm/mesh.h. One rank by default.
struct Mesh {
    Position dp;            // which samples; gradients are summed over shard and replica
    Axis pp, cp, tp;
    Axis shard, replica;    // dp x cp = replica x shard; gradients are summed over both. The shards of ZeRO
                            // lie on consecutive ranks of dp x cp
    Axis tied;              // first and last stage of a pipeline: both hold a tied token embedding
    Axis world;             // all ranks
    int rank = 0;
};

}  // namespace comm

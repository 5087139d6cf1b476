// An axis of the mesh of ranks. Collectives have NCCL's names and arguments: pointers, counts of elements.
//
// An axis of size 1 is the identity and returns its input: callers need no case for it, and no copy is made.
#pragma once
#include <cstddef>

struct Axis {
    int index = 0, size = 1;

    // dst: `size` pieces of `count` elements, in the order of the ranks
    template <class T> const T* all_gather(T* /*dst*/, const T* src, size_t /*count*/) const { return src; }
    // dst: this rank's piece of `count` elements of the sum over ranks
    template <class T> const T* reduce_scatter(T* /*dst*/, const T* src, size_t /*count*/) const {
        return src;
    }
    template <class T> void all_reduce(T* /*data*/, size_t /*count*/) const {}

    // Where to put what will be scattered into dst: dst itself on one rank, else the buffer.
    template <class T> T* whole(T* dst, T* buffer) const { return size == 1 ? dst : buffer; }
    // Elements of a buffer that only collectives fill.
    size_t staging(size_t count) const { return size == 1 ? 0 : count; }
};

// Ranks are dp x pp x cp x tp, tp innermost. This version has one rank; collectives are called all the same.
struct Mesh {
    Axis dp, pp, cp, tp;
    int rank = 0, world = 1;
};

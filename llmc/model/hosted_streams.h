// The activations that every recompute level keeps (ActRow::always_own), of blocks in the schedule `layers`.
// With memory.offload = activations they leave to the host's memory after a block's forward, and come back
// for its backward. On the device are those of two blocks, even and odd, for each micro-batch. Those of the
// last two blocks stay there. Copies run on their lanes, while the block computes other micro-batches.
#pragma once
#include <vector>

#include "llmc/model/acts.h"

namespace PRECISION::inline model {

struct HostedStreams {
    // No blocks: all stay on the device.
    HostedStreams(int blocks, int micros) : blocks(blocks), micros(micros), left(places()), came(places()) {}
    HostedStreams(const HostedStreams&) = delete;
    explicit operator bool() const { return blocks > 0; }

    // Entries of `acts` (block l, micro-batch m: l * micros + m) with memory of their own.
    size_t places() const { return 2 * size_t(micros); }
    void add_to(Arena& host, const Dims& d, size_t N, size_t n, Recompute level);

    void before_forward(int l, int m) const;            // where block l and its output go is free
    void after_forward(const BlockActs& a, int l, int m);
    void before_backward(std::vector<BlockActs>& acts, int l, int m);      // those of l are there

private:
    bool leaves(int l) const { return l >= 0 && l + 2 < blocks; }
    size_t place(int l, int m) const { return size_t(l % 2) * size_t(micros) + size_t(m); }
    struct Kept { floatX* BlockActs::* x; size_t count; };

    int blocks, micros;
    std::vector<Kept> kept = {};
    size_t count = 0;                   // elements of an entry
    floatX* memory = nullptr;           // (blocks - 2, micros, count)
    std::vector<ops::CopyTicket> left, came;            // by place
};

}  // namespace PRECISION::model

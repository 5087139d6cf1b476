// The part of a row of T tokens that a rank of context parallelism has. A row is 2 size equal chunks; the
// rank of index i has chunk i and its mirror image, chunk 2 size - 1 - i. So causal attention costs every
// rank the same (Llama Team 2024, arXiv 2407.21783, section 3.3.2). A single rank has whole rows, as a chunk.
#pragma once

inline namespace numbers {

struct RowPart {
    int index = 0, size = 1;        // of the rank, number of ranks

    constexpr int chunks() const { return size == 1 ? 1 : 2; }          // of this rank, in their order
    constexpr int here(int T) const { return T / size; }                // tokens of this rank
    constexpr int length(int T) const { return here(T) / chunks(); }    // tokens of a chunk
    constexpr int chunk(int i) const { return i == 0 ? index : 2 * size - 1 - index; }
    constexpr int begin(int i, int T) const { return chunk(i) * length(T); }    // of chunk i here, in the row
    // REQUIRES for every T above: the tokens of rows divide into chunks.
    static constexpr bool divides(int size, int T) { return T % (size == 1 ? 1 : 2 * size) == 0; }
};

}  // namespace numbers

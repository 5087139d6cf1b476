// spread -- element statistics of a tensor, with a histogram (ops/tensor_spread.h), added to *to:
//
//     count, zeros, non-finite;  sum of x^2, sum of |x|, largest |x|;  a histogram of |x| by powers of two
//
// *to stays on the device. Sums follow the order of the elements.

void spread(Spread* to, const real* values, size_t count);
// Of after[i] - before[i].
void spread_of_change(Spread* to, const real* after, const real* before, size_t count);
void spread_of_stored_change(Spread* to, const floatX* after, const floatX* before, size_t count);
// Of weights or activations.
void spread_of_stored(Spread* to, const floatX* values, size_t count);

// Elements of a block of a GPU's threads, and most blocks.
inline constexpr size_t kSpreadBlock = 16384, kSpreadBlocks = 512;
inline size_t spread_blocks(size_t count) {
    const size_t blocks = (count + kSpreadBlock - 1) / kSpreadBlock;
    return blocks < kSpreadBlocks ? blocks : kSpreadBlocks;
}
inline Cost spread_cost(const Target& on, const char* name, size_t count, size_t bytes) {
    return {.name = name, .read = count * bytes + sizeof(Spread), .written = sizeof(Spread),
            .needs = on.gpu() && count ? gpu_scratch(spread_blocks(count) * sizeof(Spread))
                                       : Needs{}};
}

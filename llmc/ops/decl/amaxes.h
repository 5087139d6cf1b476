// amaxes -- the largest magnitudes of a tensor, for the scale of its FP8 codes (quantized.h).
//
// kFp8Parts numbers, each the largest |x| of some of the elements; together they cover all. The largest of
// them has no order: kernels may take their elements as they like. An op that writes a tensor may leave its
// amaxes: then quantize() needs no pass of largest() over the tensor. A null pointer leaves them out.

inline constexpr int kFp8Parts = 256;

// NaN where a part has NaN.
void largest(float* amaxes,         // (kFp8Parts)
             const floatX* x, size_t count);
inline Cost largest_cost(const Target&, size_t count) {
    return {.name = "largest", .read = count * sizeof(floatX), .written = kFp8Parts * sizeof(float)};
}

// Amaxes of `count` tensors: part k of tensor i at i * step + k * part_step.
struct AmaxSets {
    const float* amaxes;
    int count, parts, step, part_step;
};
// The largest of each tensor; NaN where a part has NaN. inverses, or null: of the tensors' scales in E4M3.
void merge_amaxes(float* to,          // (count)
                  float* inverses,    // (count)
                  const AmaxSets& from);
inline Cost merge_amaxes_cost(const Target&, const AmaxSets& from, bool inverses) {
    const size_t count = size_t(from.count);
    return {.name = "merge_amaxes", .read = count * size_t(from.parts) * sizeof(float),
            .written = count * sizeof(float) * (inverses ? 2 : 1)};
}

// The cost of an op that writes `count` elements and leaves their amaxes: on GPUs no element is read again.
inline Cost with_amaxes(Cost cost, const Target& on, bool amaxes, size_t count) {
    if (!amaxes) return cost;
    if (!on.gpu()) cost.read += count * sizeof(floatX);
    cost.written += kFp8Parts * sizeof(float);
    return cost;
}

// quantized -- matrices as FP8 codes with one scale each, and their products (base/numbers/fp8.h).
//
//     amax = the largest |x|, scale = fp8_scale(format, amax)
//     codes = round(x scale)
//     out = x w^T + bias, where x and w are codes / scale
//
// A scale is a power of two: the only rounding is that of the codes. amax has no order of sums. Where ranks
// hold parts of a matrix, the amaxes of all parts (amaxes.h) lie side by side, so every rank has the same
// scale.
//
// REQUIRES: on GPUs rows, columns, N, C and OC are multiples of kFp8Unit; rows * columns is one, where
// quantize() transposes nothing.

struct Fp8Matrix {
    uint8_t* codes;         // (rows, columns)
    float* inverse;         // 1 / scale, on the device
    Fp8 format;
};

std::string no_fp8();       // why this device has no products of FP8; empty: it has

// x (rows, columns), as floats. transposed (columns, rows): the same codes, or null. Writes *to.inverse too.
void quantize(const Fp8Matrix& to, uint8_t* transposed, const floatX* x,
              const float* amaxes,  // (parts)
              int parts, int rows, int columns);

// to (columns, rows): the codes of from (rows, columns).
void transpose_codes(uint8_t* to, const uint8_t* from, int rows, int columns);

// x in E4M3: a forward product, whose sums on GPUs may be those of FAST_ACCUM. x in E5M2: gradients, with w
// transposed, so that OC is the layer's C. w in E4M3.
void matmul_fp8(floatX* out,                // (N, OC)
                const Fp8Matrix& x,         // (N, C)
                const Fp8Matrix& w,         // (OC, C)
                const floatX* bias,         // (OC), or null
                int N, int C, int OC);

// ---- costs

inline Cost quantize_cost(const Target&, int parts, int rows, int columns, bool both) {
    const size_t count = size_t(rows) * size_t(columns);
    return {.name = both ? "quantize_both" : "quantize",
            .read = count * sizeof(floatX) + size_t(parts) * sizeof(float),
            .written = count * (both ? 2 : 1) + sizeof(float)};
}
inline Cost transpose_codes_cost(const Target&, int rows, int columns) {
    const size_t count = size_t(rows) * size_t(columns);
    return {.name = "transpose_codes", .read = count, .written = count};
}
// On CPUs the values of both matrices, in scratch.
inline size_t decoded_bytes(int N, int C, int OC) {
    return scratch_size((size_t(N) + size_t(OC)) * size_t(C) * sizeof(floatX));
}
inline Cost matmul_fp8_cost(const Target& on, Fp8 x, int N, int C, int OC, bool bias) {
    const size_t n = size_t(N), c = size_t(C), oc = size_t(OC);
    const bool input = x == Fp8::E5M2;
    Cost cost = product_cost(input ? "matmul_fp8_backward_input" : "matmul_fp8_forward",
                             {.op = input ? ProductShape::Input : ProductShape::Forward, .m = N, .n = OC,
                              .k = C, .bias = bias, .fp8 = true});
    cost.read = n * c + oc * c + 2 * sizeof(float) + (bias ? oc * sizeof(floatX) : 0);
    cost.written = n * oc * sizeof(floatX);
    if (on.gpu()) {
        cost.needs = gpu_scratch(kGemmWorkspace);
    } else {
        cost.needs = needs::product_forward(on.threads, N, C, OC, bias);
        cost.needs.scratch += decoded_bytes(N, C, OC);
    }
    return cost;
}

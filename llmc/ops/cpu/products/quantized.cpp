// Products of FP8 codes: their values, which floatX holds exactly, multiplied as matmul_forward() does.
#include <algorithm>

#include "llmc/base/numbers/fp8.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

// ---------------------------------------------------------------------------------------------------------
// codes

// Of magnitudes the order of the bits is the order of the values, with NaN last.
void largest(float* amaxes, const floatX* x, size_t count) {
    if (walked(largest_cost, count)) return;
    const size_t run = (count + kFp8Parts - 1) / kFp8Parts;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int part = 0; part < kFp8Parts; part++) {
        const size_t first = std::min(count, size_t(part) * run), end = std::min(count, first + run);
        uint32_t most = 0;
        #pragma omp simd reduction(max : most)
        for (size_t i = first; i < end; i++)
            most = std::max(most, std::bit_cast<uint32_t>(float(x[i])) & 0x7fffffff);
        amaxes[part] = std::bit_cast<float>(most);
    }
}

static float largest_of(const float* amaxes, int parts, int step = 1) {
    uint32_t most = 0;
    for (int i = 0; i < parts; i++)
        most = std::max(most, std::bit_cast<uint32_t>(amaxes[size_t(i) * size_t(step)]));
    return std::bit_cast<float>(most);
}

void merge_amaxes(float* to, float* inverses, const AmaxSets& from) {
    if (walked(merge_amaxes_cost, from, inverses != nullptr)) return;
    for (int i = 0; i < from.count; i++) {
        to[i] = largest_of(from.amaxes + size_t(i) * size_t(from.step), from.parts, from.part_step);
        if (inverses) inverses[i] = fp8_inverse(fp8_scale(Fp8::E4M3, to[i]));
    }
}

template <Fp8 F>
static void quantize_as(const Fp8Matrix& to, uint8_t* transposed, const floatX* x, float scale, int rows,
                        int columns) {
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int i = 0; i < rows; i++) {
        const size_t at = size_t(i) * size_t(columns);
        #pragma omp simd
        for (int j = 0; j < columns; j++) to.codes[at + j] = fp8_code<F>(float(x[at + j]) * scale);
        for (int j = 0; transposed && j < columns; j++)
            transposed[size_t(j) * size_t(rows) + i] = to.codes[at + j];
    }
}

void quantize(const Fp8Matrix& to, uint8_t* transposed, const floatX* x, const float* amaxes, int parts,
              int rows, int columns) {
    if (walked(quantize_cost, parts, rows, columns, transposed != nullptr)) return;
    const float scale = fp8_scale(to.format, largest_of(amaxes, parts));
    *to.inverse = fp8_inverse(scale);
    if (to.format == Fp8::E4M3) quantize_as<Fp8::E4M3>(to, transposed, x, scale, rows, columns);
    else quantize_as<Fp8::E5M2>(to, transposed, x, scale, rows, columns);
}

void transpose_codes(uint8_t* to, const uint8_t* from, int rows, int columns) {
    if (walked(transpose_codes_cost, rows, columns)) return;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int j = 0; j < columns; j++)
        for (int i = 0; i < rows; i++)
            to[size_t(j) * size_t(rows) + size_t(i)] = from[size_t(i) * size_t(columns) + size_t(j)];
}

// ---------------------------------------------------------------------------------------------------------
// products

static floatX* decode(floatX* values, const Fp8Matrix& m, size_t count) {
    floatX value_of[256];
    for (int code = 0; code < 256; code++) {
        const float value = m.format == Fp8::E4M3 ? fp8_value<Fp8::E4M3>(uint8_t(code))
                                                  : fp8_value<Fp8::E5M2>(uint8_t(code));
        value_of[code] = floatX(value * *m.inverse);
    }
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (size_t i = 0; i < count; i++) values[i] = value_of[m.codes[i]];
    return values + count;
}

std::string no_fp8() { return ""; }

void matmul_fp8(floatX* out, const Fp8Matrix& x, const Fp8Matrix& w, const floatX* bias, int N, int C,
                int OC) {
    if (walked(matmul_fp8_cost, x.format, N, C, OC, bias != nullptr)) return;
    const size_t used = decoded_bytes(N, C, OC);
    use_scratch("matmul_fp8", used);
    floatX* const x_values = reinterpret_cast<floatX*>(context.scratch);
    floatX* const w_values = decode(x_values, x, size_t(N) * size_t(C));
    decode(w_values, w, size_t(OC) * size_t(C));
    const Unrecorded product;
    const Context whole = context;
    context.scratch += used, context.scratch_bytes -= used;
    matmul_forward(out, x_values, w_values, bias, N, C, OC);
    context.scratch = whole.scratch, context.scratch_bytes = whole.scratch_bytes;
}

}  // namespace cpu
}  // namespace PRECISION

// Forward goes row by row. Backward gives every thread a range of columns and all tokens: whatever tokens
// repeat, the work is even, and each row's sum runs in the order of the tokens.
#include <algorithm>

#include "llmc/base/context.h"
#include "llmc/ops/cpu/vectors.h"

namespace PRECISION {
namespace cpu {

static bool here(int32_t token, const Encoder& e) { return token >= e.v0 && token - e.v0 < e.V; }

void encoder_forward(floatX* out, const floatX* wte, const floatX* wpe, const Encoder& e) {
    if (walked(encoder_forward_cost, e, wpe != nullptr)) return;
    const size_t C = size_t(e.C);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < e.N; n++) {
        floatX* row = out + n * C;
        if (!here(e.tokens[n], e)) {
            std::fill(row, row + C, floatX(0));
            continue;
        }
        const floatX* token = wte + size_t(e.tokens[n] - e.v0) * C;
        if (!wpe) {
            std::copy(token, token + C, row);
            continue;
        }
        const floatX* position = wpe + size_t(e.position(n)) * C;
        for (int i = 0; i < e.C; i += W)
            store(row + i, load(token + i, e.C - i) + load(position + i, e.C - i), e.C - i);
    }
}

static void add_columns(real* sum, const floatX* dout, int first, int last) {
    for (int i = first; i < last; i += W)
        store(sum + i, load(sum + i, last - i) + load(dout + i, last - i), last - i);
}

void encoder_backward(real* dwte, real* dwpe, const floatX* dout, const Encoder& e) {
    if (walked(encoder_backward_cost, e, dwpe != nullptr)) return;
    const size_t C = size_t(e.C);
    const int threads = context.threads, columns = ((e.C + threads - 1) / threads + W - 1) / W * W;
    #pragma omp parallel for schedule(static) num_threads(threads)
    for (int first = 0; first < e.C; first += columns) {
        const int last = std::min(first + columns, e.C);
        for (int n = 0; n < e.N; n++) {
            if (!here(e.tokens[n], e)) continue;
            add_columns(dwte + size_t(e.tokens[n] - e.v0) * C, dout + n * C, first, last);
            if (dwpe) add_columns(dwpe + size_t(e.position(n)) * C, dout + n * C, first, last);
        }
    }
}

}  // namespace cpu
}  // namespace PRECISION

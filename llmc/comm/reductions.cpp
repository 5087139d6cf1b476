#include <cstring>

#include "llmc/ops/ops.h"

namespace PRECISION {

// Where all are on the device its ops add them up, else the CPU's: the bits are the same.
void sum_of_pieces(floatX* out, const floatX* const* pieces, int parts, size_t count) {
    if (!ops::on_device(out)) return cpu::sum_pieces(out, pieces, parts, count);
    ops::sum_pieces(out, pieces, parts, count);
}

void sum_rounded_pieces(real* out, const real* const* pieces, int parts, size_t count) {
    if (!ops::on_device(out)) return cpu::sum_rounded(out, pieces, parts, count);
    ops::sum_rounded(out, pieces, parts, count);
}

void sum_widened_pieces(real* out, const floatX* const* pieces, int parts, size_t count) {
    if (!ops::on_device(out)) return cpu::sum_widened(out, pieces, parts, count);
    ops::sum_widened(out, pieces, parts, count);
}

void round_for_wire(floatX* out, const real* in, size_t count) {
    if (!ops::on_device(out)) return cpu::round_to(out, in, count);
    ops::round_to(out, in, count);
}

void copy_between(void* out, const void* in, size_t bytes) {
    if (!ops::on_device(out) && !ops::on_device(in)) {
        if (bytes) memcpy(out, in, bytes);
        return;
    }
    ops::start_copy(out, in, bytes);
    ops::finish_copies();
    ops::synchronize();
}

void settle(const void* memory) {
    if (ops::on_device(memory)) ops::synchronize();
}

bool is_on_device(const void* memory) { return ops::on_device(memory); }

}  // namespace PRECISION

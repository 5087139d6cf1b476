#include "llmc/ops/ops.h"

namespace PRECISION {

void sum_of_pieces(floatX* out, const floatX* const* pieces, int parts, size_t count) {
    ops::sum_pieces(out, pieces, parts, count);
}

void sum_rounded_pieces(real* out, const real* const* pieces, int parts, size_t count) {
    ops::sum_rounded(out, pieces, parts, count);
}

void sum_widened_pieces(real* out, const floatX* const* pieces, int parts, size_t count) {
    ops::sum_widened(out, pieces, parts, count);
}

void round_for_wire(floatX* out, const real* in, size_t count) { ops::round_to(out, in, count); }

}  // namespace PRECISION

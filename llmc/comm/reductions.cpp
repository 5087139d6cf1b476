#include <cstring>

#include "llmc/ops/ops.h"

namespace PRECISION::inline comm {

// Terms on the device are summed by the device's ops, others by the CPU's: the bits are equal.
void sum_of_terms(floatX* out, const floatX* const* terms, int number, size_t count) {
    if (!ops::on_device(out)) return cpu::sum_terms(out, terms, number, count);
    ops::sum_terms(out, terms, number, count);
}

void sum_rounded_terms(real* out, const real* const* terms, int number, size_t count) {
    if (!ops::on_device(out)) return cpu::sum_rounded(out, terms, number, count);
    ops::sum_rounded(out, terms, number, count);
}

void sum_widened_terms(real* out, const floatX* const* terms, int number, size_t count) {
    if (!ops::on_device(out)) return cpu::sum_widened(out, terms, number, count);
    ops::sum_widened(out, terms, number, count);
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
    if (ops::on_device(out)) ops::start_copy_to_device(out, in, bytes);
    else ops::start_copy_to_host(out, in, bytes);
    ops::synchronize();
}

void settle(const void* memory) {
    if (ops::on_device(memory)) ops::synchronize();
}

bool is_on_device(const void* memory) { return ops::on_device(memory); }

}  // namespace PRECISION::comm

#include "llmc/comm/flip_here.h"

#include "llmc/comm/reductions.h"

inline namespace comm {

void flip_here(void* memory, size_t bytes) {
    uint64_t bit = 0;
    if (!is_place_of_flip(&bit)) return;
    bit %= 8 * uint64_t(bytes);
    std::byte* const at = static_cast<std::byte*>(memory) + bit / 8;
    fp32::settle(memory);
    std::byte value;
    fp32::copy_between(&value, at, 1);
    value ^= std::byte(1 << bit % 8);
    fp32::copy_between(at, &value, 1);
}

}  // namespace comm

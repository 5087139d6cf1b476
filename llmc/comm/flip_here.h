// Places where tests may flip a bit (base/guard/flip.h).
#pragma once
#include <cstddef>

#include "llmc/base/guard/flip.h"

inline namespace comm {

void flip_here(void* memory, size_t bytes);         // if this is the place that was asked for

// memory: of the host or of a device, which later ops read.
inline void flip_if_asked(Flip what, const void* memory, size_t bytes) {
    if (flip_asked == what && bytes > 0) [[unlikely]] flip_here(const_cast<void*>(memory), bytes);
}

}  // namespace comm

// Reports of memory accesses to the emulation.
//
// Code compiled with -fsanitize=thread reports every access (hooks in access.cpp), which is checked for
// bounds, alignment, initialisation and races. The load and store helpers of kernels report in any build, for
// counts and alignment. Hooks count accesses outside the helpers.
#pragma once
#include <cstddef>
#include <cstdint>

#include "test/emulator/thread.h"

namespace emulator {

// cached: counted once for a launch
void note_read(const void* p, size_t bytes, bool cached);
void note_write(const void* p, size_t bytes);
void note_copy(const void* from, size_t bytes, Site site);         // by TMA
void note_plain(const void* p, size_t bytes, bool writes, Site site);

// What the wrappers of ptx.h do to memory on behalf of a thread: checked, where the build checks.
enum class Kind : uint8_t { Read, Write, Atomic };
void check_access(const Thread* thread, const void* p, size_t bytes, Kind kind, Site site);
void check_copy_issued(const Thread* thread, const AsyncCopy& copy);
void check_copy_done(const Thread* thread, const AsyncCopy& copy);

}  // namespace emulator

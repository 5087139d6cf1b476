// The L2 cache during a launch: lines of 128 bytes, the least recently used goes first.
//
// settings.l2_blocks blocks are on the device at once, start in launch order and take turns. In a turn a
// block accesses memory up to its next barrier, or up to the next bytes that an mbarrier is to expect. As on
// a GPU, the blocks that run at once share the cache and have the same pace.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

struct Launch;

size_t l2_bytes();                          // settings.l2_bytes, else the architecture's

void note_for_l2(const void* p, size_t bytes, bool writes);    // called for each access by a kernel
void end_turn_on_l2();                      // called where a thread announces the bytes of loads
void replay_block_on_l2();                  // called after a block
void replay_launch_on_l2(const void* kernel);   // called after a launch; adds to KernelCount::memory_bytes

}  // namespace emulator

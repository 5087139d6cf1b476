// Device memory and shared memory, and the state of each granule of two bytes.
//
// Device memory lies in a reserved range of addresses, every allocation between red zones of 0xff, which are
// checked after each launch. In code compiled with checks, a shadow holds state and last accesses of every
// granule.
#pragma once
#include <cstddef>
#include <cstdint>

#include "test/emulator/thread.h"

namespace emulator {

inline constexpr size_t kGranule = 2, kRedZone = 256;

enum class State : uint8_t {
    Outside,       // of any tensor or object
    Unwritten,     // since the block started (shared memory only)
    Written,
    Pending,       // an asynchronous copy to the granule was not awaited
    Barrier,       // of an mbarrier
};

// An access in the shadow. run: the block's number, 0: no block; site: offset in the program. Where a block
// has clocks (clocks.h), thread may be an agent, and the epochs are the halves of its count.
struct Access {
    uint32_t run, site, time;
    uint16_t thread : 11, atomic : 1;
    uint16_t epoch, warp_epoch;
};
struct Cell { Access write, read[2]; };

inline constexpr size_t kHugePage = 2 << 20;

struct Space {
    std::byte* start = nullptr;
    size_t bytes = 0;
    State* states = nullptr;        // null where nothing is checked
    Cell* cells = nullptr;
    bool holds(const void* p) const { return size_t(static_cast<const std::byte*>(p) - start) < bytes; }
    size_t granule(const void* p) const {
        return size_t(static_cast<const std::byte*>(p) - start) / kGranule;
    }
};
Space& device_space();
Space& shared_space_of_machine();
extern bool checks_compiled_in;     // some code of this program tells of its accesses

// While an object lives, the host may touch device memory; otherwise not, with settings.refuse_host.
struct DeviceOpen {
    DeviceOpen();
    ~DeviceOpen();
    DeviceOpen(const DeviceOpen&) = delete;
};

// Null when there is no more.
void* allocate(size_t bytes);
bool release(void* p);
size_t device_bytes_in_use();       // whole pages from the start
size_t bytes_allocated();           // on the device of this thread
bool is_device_memory(const void* p, size_t bytes);
// A red zone inside an allocation: between the tensors of an arena.
void add_red_zone(void* p, size_t bytes);
// Sets the report and fails the launch where a red zone was written.
void check_red_zones(const void* kernel);

// Host memory that the device may use.
void pin(void* p, size_t bytes);
// Of the device: 8 bytes for each 4 KB of pinned memory, in pages of 2 MB.
size_t page_table_bytes();
void unpin(void* p);
bool is_pinned(const void* p);
bool crosses_pinned_pieces(const void* p, size_t bytes);        // CUDA copies none

// Dynamic shared memory over 48 KB; false where the architecture has not that much.
bool opt_in(const void* kernel, size_t bytes);

std::byte* shared_space();                             // of the calling OS thread
void shared_starts(std::byte* p, size_t bytes);        // a block begins: nothing is there
void shared_appears(std::byte* p, size_t bytes);       // an object, not written yet

}  // namespace emulator

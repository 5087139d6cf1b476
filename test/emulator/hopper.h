// What a block that uses Hopper's asynchronous instructions has besides (ptx_hopper.h): barriers in shared
// memory, loads on their way, products of its warp groups, named barriers, registers.
#pragma once
#include <array>
#include <bitset>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "llmc/ops/cuda/ptx_hopper.h"
#include "test/emulator/clocks.h"
#include "test/emulator/thread.h"

namespace emulator {

// A phase ends when none of its arrivals is missing and the bytes that came are those announced.
struct Mbarrier {
    size_t at;                          // byte of shared memory
    unsigned agent;                     // in clocks: the loads that report to this barrier
    int arrivals, missing;              // of each phase; of the current phase
    long bytes = 0;                     // announced and not come
    uint64_t phase = 0;
    const Thread* made_by;
    uint32_t made_at;                   // the thread's count then
    bool fenced = false;                // for TMA, by the thread that made it
    std::vector<Thread*> waiting;
    Clock arrived, complete;            // of who has come until now; until the last phase ended
};

// What cuTensorMapEncodeTiled writes.
struct TensorMap {
    uint64_t magic;
    std::byte* start;
    uint64_t strides[4];                // in bytes, of dimensions 1 to 4
    uint32_t last[5];                   // sizes less 1
    uint16_t box[5];
    uint8_t rank, element_bytes, swizzled;
    uint8_t unused[43];
};
static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));

struct TileLoad {
    TensorMap map;
    std::byte* to;
    Mbarrier* barrier;
    uint64_t phase;                     // of the barrier, which the load belongs to
    std::array<int64_t, 5> at;
    const Thread* thread;
    Site site;
};

// Sums of one thread that a product was issued for. They are held here until a wait names the thread's array.
struct Sums {
    float* d;
    int count;
    uint64_t last;                      // product that writes them
    std::vector<float> values;
    Site site;
};
// A product: issued when each of the 128 threads has come; done when its sums are computed.
struct WgmmaCall {
    float* d;
    const uint32_t* fragment;
    uint64_t a, b;
    WgmmaForm form;
};
struct Product {
    WgmmaCall call;                     // of the first thread to come
    Site site;
    int came = 0;
    std::array<Sums*, 128> sums;
    std::array<std::array<uint32_t, 4>, 128> fragments;
    Clock seen;                         // by every one of the threads
};
struct WarpGroup {
    unsigned agent;                     // in clocks: its products
    uint64_t first = 0;                 // number of products[0], the first that is not done
    std::deque<Product> products;
    std::vector<Thread*> waiting;       // for threads of the group to issue
    int registers;                      // of a thread
    struct Change { int registers, came; bool granted; Site site; };
    std::vector<Change> changes;        // by setmaxnreg
};
// A thread's part in the products of its group.
struct Issued {
    uint64_t products = 0;              // issued so far
    std::vector<uint64_t> groups;       // products issued at each commit that was not awaited
    uint64_t awaited = 0;               // products before this one
    Site last_site = nullptr;           // of the last
    std::vector<std::unique_ptr<Sums>> sums;
    struct Fragment { const uint32_t* a; uint64_t product; Site site; };
    std::vector<Fragment> fragments;    // that products may still read
    bool fenced = false;
    std::vector<bool> touched;          // words of the thread's stack, since its last wgmma_fence
    size_t changes = 0;                 // of registers
    std::function<std::string()> waits_for;
};

struct NamedBarrier {
    int threads = 0, count = 0;
    std::bitset<1024> came;
    Site site = nullptr;
    std::vector<Thread*> waiting;
    Clock arrived;
};

struct Hopper {
    Block& block;
    Clocks clocks;
    std::map<const void*, Mbarrier> mbarriers;
    std::vector<TileLoad> loads;        // on their way
    std::vector<WarpGroup> groups;
    std::vector<Issued> issued;         // by thread
    std::array<NamedBarrier, 16> named;
    long free_registers = 0;
    std::vector<Thread*> waiting_for_registers;
    explicit Hopper(Block& block);
};
// Of the running block; made at the first call.
Hopper& hopper();

// The site's thread waits until others have made it ready; `what` describes it in a report of a deadlock.
void wait_in(const char* name, Site site, std::vector<Thread*>& waiting, std::function<std::string()> what);
size_t shared_offset(const void* p, size_t bytes, const char* what, Site site);
void bytes_come(Mbarrier& b, long bytes);
void fence_mbarriers_by(const Thread* t);
[[noreturn]] void lost(const TileLoad& load);        // nobody waits for it

// registers.cpp: arrays of a thread that wgmma reads and writes. Checked where accesses are.
void touch_registers(const Thread& t, const void* p, size_t bytes, bool writes, Site site);
void check_untouched(const Thread& t, const WgmmaCall& call, bool sums_are_held, Site site);
void hold_fragment(const WgmmaCall& call, uint64_t product, Site site);
void release_fragments(Issued& mine);

// Called by the scheduler.
bool a_load_arrives(Block& block);          // some load on its way; false where there is none
void hopper_thread_ends(const Thread& t);
std::string waits_for(const Thread& t);     // besides waits_in

}  // namespace emulator

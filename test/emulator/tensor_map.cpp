// TMA: maps of tensors as the driver makes them, and loads of boxes. A load takes place at issue, or as late
// as possible: when no thread of the block can go on without it, in any order.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"
#include "test/emulator/access.h"
#include "test/emulator/hopper.h"
#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"
#include "test/emulator/streams.h"

static constexpr uint64_t kMagic = 0x70616d726f736e74;

// What the driver's documentation of cuTensorMapEncodeTiled asks for.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill) {
    const unsigned bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1
                           : type == CU_TENSOR_MAP_DATA_TYPE_UINT32 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                               ? 4 : 2;
    const bool swizzled = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
    if (!map || reinterpret_cast<uintptr_t>(map) % 64) return CUDA_ERROR_INVALID_VALUE;
    if (rank < 1 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
    if (!address || reinterpret_cast<uintptr_t>(address) % 16) return CUDA_ERROR_INVALID_VALUE;
    if (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && !swizzled) return CUDA_ERROR_NOT_SUPPORTED;
    if (promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B) return CUDA_ERROR_INVALID_VALUE;
    if (box[0] * bytes % 16 || (swizzled && box[0] * bytes > 128)) return CUDA_ERROR_INVALID_VALUE;
    emulator::TensorMap made{};
    made.magic = kMagic;
    made.start = static_cast<std::byte*>(address);
    made.rank = uint8_t(rank);
    made.element_bytes = uint8_t(bytes);
    made.swizzled = swizzled;
    for (unsigned i = 0; i < rank; i++) {
        if (sizes[i] < 1 || sizes[i] > uint64_t(1) << 32 || box[i] < 1 || box[i] > 256)
            return CUDA_ERROR_INVALID_VALUE;
        if (element_strides[i] < 1 || element_strides[i] > 8) return CUDA_ERROR_INVALID_VALUE;
        if (i > 0 && element_strides[i] != 1) return CUDA_ERROR_NOT_SUPPORTED;        // here
        made.last[i] = uint32_t(sizes[i] - 1);
        made.box[i] = uint16_t(box[i]);
        if (i == 0) continue;
        const uint64_t stride = strides[i - 1];
        if (stride % 16 || stride >= uint64_t(1) << 40) return CUDA_ERROR_INVALID_VALUE;
        made.strides[i - 1] = stride;
    }
    memcpy(map, &made, sizeof made);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result_of_query) {
    using emulator::settings;
    const bool known = std::string_view(symbol) == "cuTensorMapEncodeTiled";
    const bool there = known && settings.driver >= 12000 && version >= 12000;
    *function = there ? reinterpret_cast<void*>(cuTensorMapEncodeTiled) : nullptr;
    if (result_of_query)
        *result_of_query = there ? cudaDriverEntryPointSuccess
                           : known ? cudaDriverEntryPointVersionNotSufficent
                                   : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

namespace emulator {

static size_t box_bytes(const TensorMap& m) {
    size_t bytes = m.element_bytes;
    for (int i = 0; i < m.rank; i++) bytes *= m.box[i];
    return bytes;
}

// Calls row(from, to, bytes, wanted) for every row of the box: `bytes` of the `wanted` lie within the tensor,
// the first at `from`; the row begins at byte `to` of the box.
template <class F> static void for_rows(const TileLoad& load, F row) {
    const TensorMap& m = load.map;
    const size_t wanted = size_t(m.box[0]) * m.element_bytes, rows = box_bytes(m) / wanted;
    for (size_t r = 0; r < rows; r++) {
        size_t rest = r;
        bool within = true;
        const std::byte* from = m.start + load.at[0] * m.element_bytes;
        for (size_t i = 1; i < m.rank; i++) {
            const int64_t at = load.at[i] + int64_t(rest % m.box[i]);
            rest /= m.box[i];
            within = within && at >= 0 && at <= int64_t(m.last[i]);
            from += at * int64_t(m.strides[i - 1]);
        }
        const int64_t before = std::clamp<int64_t>(-load.at[0], 0, m.box[0]);
        const int64_t after = std::clamp<int64_t>(int64_t(m.last[0]) + 1 - load.at[0], before, m.box[0]);
        row(from + before * m.element_bytes, r * wanted + size_t(before) * m.element_bytes,
            within ? size_t(after - before) * m.element_bytes : 0, r * wanted, wanted);
    }
}

static std::byte* swizzled(std::byte* p, bool really) {
    const auto at = reinterpret_cast<uintptr_t>(p);
    return really ? reinterpret_cast<std::byte*>(at ^ (at >> 3 & 0x70)) : p;
}

// Bytes of a row, 16 at a time or less, to where they lie swizzled.
static void put(const TileLoad& load, size_t at, const std::byte* from, size_t bytes) {
    while (bytes > 0) {
        const size_t piece = std::min(16 - at % 16, bytes);
        std::byte* to = swizzled(load.to + at, load.map.swizzled);
        if (from) memcpy(to, from, piece);
        else memset(to, 0, piece);
        at += piece;
        bytes -= piece;
        if (from) from += piece;
    }
}

static void carry_out(const TileLoad& load) {
    for_rows(load, [&](const std::byte* from, size_t at, size_t bytes, size_t row, size_t wanted) {
        put(load, row, nullptr, wanted);
        put(load, at, from, bytes);
    });
    if (load.barrier->phase != load.phase) lost(load);
    bytes_come(*load.barrier, long(box_bytes(load.map)));
}

void lost(const TileLoad& load) {
    const Mbarrier& b = *load.barrier;
    fail_at(load.thread, load.site,
            b.phase == load.phase
                ? "the block ends without having waited for this load"
                : fmt::format("phase {} of the mbarrier at byte {} is complete without this load's {} bytes, "
                              "which nobody has announced", load.phase, b.at, box_bytes(load.map)));
}

void load_tile(void* to, const CUtensorMap* map, uint64_t* p, int rank, const int* at) {
    const Site site = __builtin_return_address(0);
    Hopper& h = hopper();
    TileLoad load{};
    load.to = static_cast<std::byte*>(to);
    load.thread = current;
    load.site = site;
    memcpy(&load.map, map, sizeof load.map);
    if (load.map.magic != kMagic) fail(site, "TMA by what cuTensorMapEncodeTiled has not made");
    if (load.map.rank != rank) fail(site, "TMA in %d dimensions by a map of %d", rank, load.map.rank);
    const size_t bytes = box_bytes(load.map), offset = shared_offset(to, bytes, "TMA", site);
    if (offset % 128) fail(site, "misaligned: TMA to byte %zu of shared memory, no multiple of 128", offset);
    const auto b = h.mbarriers.find(p);
    if (b == h.mbarriers.end()) fail(site, "TMA reports to %p, where no mbarrier is", static_cast<void*>(p));
    if (!b->second.fenced)
        fail(site, "TMA reports to the mbarrier at byte %zu, which no mbarrier_fence_init has shown it",
             b->second.at);
    load.barrier = &b->second;
    load.phase = b->second.phase;
    std::copy_n(at, rank, load.at.begin());
    const Clock* seen = checks_compiled_in ? &h.clocks.threads[current->number] : nullptr;
    const Agent agent = {b->second.agent, uint32_t(load.phase + 1), current, seen, site};
    for_rows(load, [&](const std::byte* from, size_t, size_t within, size_t, size_t) {
        if (!within) return;
        note_copy(from, within, site);
        check_agent(h.clocks, agent, from, within, false);
    });
    check_agent(h.clocks, agent, to, bytes, true);
    if (!settings.late_copies) return carry_out(load);
    memset(to, 0xff, bytes);                           // whoever reads before the phase ends, reads this
    h.loads.push_back(load);
}

// Some load arrives: the oldest, the latest or any. False where none is on its way.
bool a_load_arrives(Block& block) {
    if (!block.hopper || block.hopper->loads.empty()) return false;
    std::vector<TileLoad>& loads = block.hopper->loads;
    size_t i = 0;
    if (settings.order == Order::Reverse) i = loads.size() - 1;
    if (settings.order == Order::Random) i = machine->random() % loads.size();
    const TileLoad load = loads[i];
    loads.erase(loads.begin() + long(i));
    carry_out(load);
    return true;
}

}  // namespace emulator

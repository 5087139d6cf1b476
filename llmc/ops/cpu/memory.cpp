#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/machine.h"
#include "llmc/base/simd.h"
#include "llmc/ops/cpu/attention.h"
#include "llmc/ops/cpu/matmul.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

static constexpr size_t kPage = 4096, kHugePage = 2 << 20;

static size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// The mapping starts at a huge page. The kernel promises more memory than there is and kills who touches it,
// so what is available is asked first.
void* device_allocate(size_t bytes) {
    const size_t size = whole_pages(std::max(bytes, size_t(1))), available = available_memory_bytes();
    void* mapped = MAP_FAILED;
    if (available == 0 || size <= available)
        mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK_INPUT(
        mapped != MAP_FAILED,
        "no memory for the tensors: %.2f GB needed, %.2f GB available. Make train.micro_batch or the model "
        "smaller, choose memory.recompute=block, or stop what else holds memory (--plan prints what needs "
        "how much)",
        size / 1e9, available / 1e9);
    std::byte* start = static_cast<std::byte*>(mapped);
    const size_t head = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
    if (head) munmap(start, head);
    if (head < kHugePage) munmap(start + head + size, kHugePage - head);
    start += head;
    madvise(start, size, MADV_HUGEPAGE);
    set_zero(start, size);
    return start;
}

void device_free(void* p, size_t bytes) { munmap(p, whole_pages(std::max(bytes, size_t(1)))); }

size_t scratch_bytes(const ScratchSizes& s) {
    return std::max(matmul_scratch(s), attention_scratch(s.T, s.D));
}

void lend_scratch(void* memory, size_t bytes) {
    context.scratch = static_cast<std::byte*>(memory);
    context.scratch_bytes = bytes;
}

void warm_up(const ScratchSizes& s) {
    #pragma omp parallel num_threads(context.threads)
    { }
    matmul_warm_up(s);
}

// Past the caches: what is so large is out of them before it is read, and stores that go through them read
// first what they overwrite. REQUIRES: `p` at a multiple of 16.
static void stream_zero(std::byte* p, size_t bytes) {
    const size_t whole = bytes / 64 * 64;
    for (size_t i = 0; i < whole; i += 64)
        for (size_t k = 0; k < 64; k += 16)
            _mm_stream_si128(reinterpret_cast<__m128i*>(p + i + k), _mm_setzero_si128());
    memset(p + whole, 0, bytes - whole);
    _mm_sfence();
}

void set_zero(void* p, size_t bytes) {
    const int64_t pieces = int64_t((bytes + kHugePage - 1) / kHugePage);
    const bool stream = bytes >= 16 * kHugePage && reinterpret_cast<uintptr_t>(p) % 16 == 0;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int64_t i = 0; i < pieces; i++) {
        std::byte* piece = static_cast<std::byte*>(p) + i * kHugePage;
        const size_t size = std::min(kHugePage, bytes - i * kHugePage);
        if (stream) stream_zero(piece, size);
        else memset(piece, 0, size);
    }
}

void round_to(floatX* out, const real* in, size_t count) {
    #pragma omp parallel for simd schedule(static) num_threads(context.threads)
    for (size_t i = 0; i < count; i++) out[i] = floatX(in[i]);
}

void add(floatX* out, const floatX* a, const floatX* b, size_t count) {
    #pragma omp parallel for simd schedule(static) num_threads(context.threads)
    for (size_t i = 0; i < count; i++) out[i] = floatX(real(a[i]) + real(b[i]));
}

void sum_in_order(double* total, const real* values, size_t count) {
    for (size_t i = 0; i < count; i++) *total += double(values[i]);
}

}  // namespace cpu
}  // namespace PRECISION

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/machine.h"
#include "llmc/base/progress_page.h"
#include "llmc/base/simd.h"
#include "llmc/ops/cpu/attention.h"
#include "llmc/ops/cpu/matmul.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

static constexpr size_t kPage = 4096, kHugePage = 2 << 20;
static constexpr size_t kBetweenBeats = size_t(16) << 30;       // seconds of first touch

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
        double(size) / 1e9, double(available) / 1e9);
    std::byte* start = static_cast<std::byte*>(mapped);
    const size_t head = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
    if (head) munmap(start, head);
    if (head < kHugePage) munmap(start + head + size, kHugePage - head);
    start += head;
    madvise(start, size, MADV_HUGEPAGE);
    for (size_t at = 0; at < size; at += kBetweenBeats) {
        set_zero(start + at, std::min(kBetweenBeats, size - at));
        beat();
    }
    return start;
}

void device_free(void* p, size_t bytes) { munmap(p, whole_pages(std::max(bytes, size_t(1)))); }

size_t device_available() { return available_memory_bytes(); }
size_t device_in_use() { return resident_bytes(); }
std::string device_name() { return "cpu: " + cpu_name(); }
std::string device_bus_id() { return ""; }
double device_tflops() { return 0; }
bool reached_by_host() { return true; }
bool on_device(const void*) { return false; }
void synchronize() {}

size_t scratch_bytes(const ScratchSizes& s) {
    return std::max(matmul_scratch(s), attention_scratch(s.T, s.D));
}

size_t library_bytes(const ScratchSizes& s) { return matmul_library_bytes(s); }

void lend_scratch(void* memory, size_t bytes) {
    context.scratch = static_cast<std::byte*>(memory);
    context.scratch_bytes = bytes;
}

void warm_up(const ScratchSizes& s) {
    #pragma omp parallel num_threads(context.threads)
    attention_products_warm_up(s.T, s.D);
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

void* host_allocate(size_t bytes) { return device_allocate(bytes); }
void host_free(void* p, size_t bytes) { device_free(p, bytes); }

void start_copy(void* out, const void* in, size_t bytes) {
    const int64_t pieces = int64_t((bytes + kHugePage - 1) / kHugePage);
    #pragma omp parallel for schedule(static) num_threads(context.threads) if (pieces > 1)
    for (int64_t i = 0; i < pieces; i++)
        memcpy(static_cast<std::byte*>(out) + i * kHugePage,
               static_cast<const std::byte*>(in) + i * kHugePage,
               std::min(kHugePage, bytes - size_t(i) * kHugePage));
}

void finish_copies() {}
void mark_copies(int) {}
void await_copies(int) {}

void accumulate(real* sum, const real* values, size_t count) {
    #pragma omp parallel for simd schedule(static) num_threads(context.threads)
    for (size_t i = 0; i < count; i++) sum[i] += values[i];
}

void copy_to_device(void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); }
void copy_to_host(void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); }
void copy_on_device(void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); }

void round_to(floatX* out, const real* in, size_t count) {
    #pragma omp parallel for simd schedule(static) num_threads(context.threads)
    for (size_t i = 0; i < count; i++) out[i] = floatX(in[i]);
}

void copy(floatX* out, const floatX* in, size_t count) { memcpy(out, in, count * sizeof(floatX)); }

// Pieces of the vectors that stay in the first-level cache while they are summed.
template <class Out, class In, class Load>
static void sum_of(Out* out, const In* const* pieces, int parts, size_t count, Load load) {
    static constexpr size_t kRun = 1024;
    #pragma omp parallel for schedule(static) num_threads(context.threads) if (count > 8 * kRun)
    for (size_t first = 0; first < count; first += kRun) {
        real sums[kRun];
        const size_t n = std::min(kRun, count - first);
        for (size_t i = 0; i < n; i++) sums[i] = load(pieces[0][first + i]);
        for (int k = 1; k < parts; k++) {
            const In* piece = pieces[k] + first;
            for (size_t i = 0; i < n; i++) sums[i] += load(piece[i]);
        }
        for (size_t i = 0; i < n; i++) out[first + i] = Out(sums[i]);
    }
}

void sum_pieces(floatX* out, const floatX* const* pieces, int parts, size_t count) {
    sum_of(out, pieces, parts, count, [](floatX x) { return real(x); });
}

void sum_rounded(real* out, const real* const* pieces, int parts, size_t count) {
    sum_of(out, pieces, parts, count, [](real x) { return real(floatX(x)); });
}

void sum_widened(real* out, const floatX* const* pieces, int parts, size_t count) {
    sum_of(out, pieces, parts, count, [](floatX x) { return real(x); });
}

void sum_in_order(double* total, const real* values, size_t count) {
    for (size_t i = 0; i < count; i++) *total += double(values[i]);
}

void sum_rows(double* out, const double* in, int rows, int cols) {
    for (int c = 0; c < cols; c++) {
        double sum = 0;
        for (int r = 0; r < rows; r++) sum += in[size_t(r) * size_t(cols) + size_t(c)];
        out[c] = sum;
    }
}

}  // namespace cpu
}  // namespace PRECISION

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/progress.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/numbers/simd.h"
#include "llmc/ops/cpu/attention.h"
#include "llmc/ops/ops.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

static constexpr size_t kPage = 4096, kHugePage = 2 << 20;
static constexpr size_t kBetweenBeats = size_t(16) << 30;       // seconds of first touch

static size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// The mapping starts at a huge page. Linux promises more memory than the machine has and kills a process that
// touches too much, so the available memory is checked first.
void* device_allocate(size_t bytes) {
    const size_t size = whole_pages(std::max(bytes, size_t(1))), available = available_memory_bytes();
    void* mapped = MAP_FAILED;
    if (available == 0 || size <= available)
        mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK_INPUT(
        mapped != MAP_FAILED,
        "no memory for the tensors: {} needed, {} available. Make train.micro_batch or the model smaller, "
        "choose memory.recompute=block, or stop what else holds memory (--plan prints what needs how much)",
        human_bytes(double(size)), human_bytes(double(available)));
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

// Below `ulimit -v`, code that libraries generate and buffers of the host need room as well.
size_t device_available() {
    constexpr size_t kOthers = size_t(64) << 20;
    return std::min(available_memory_bytes(), std::max(room_in_address_space(), kOthers + 1) - kOthers);
}
size_t device_in_use() { return resident_bytes(); }
std::string device_name() { return "cpu: " + cpu_name(); }
std::string device_bus_id() { return ""; }
double device_tflops() { return 0; }
bool reached_by_host() { return !context.target || context.target->backend == Target::Cpu; }
bool on_device(const void*) { return false; }
void synchronize() {}
void open_device() {}

void lend_scratch(void* memory, size_t bytes) {
    context.scratch = static_cast<std::byte*>(memory);
    context.scratch_bytes = bytes;
}

// The walk has built the products of matrices. Those of attention are each thread's own.
void warm_up(const Walk& walk) {
    for (const Cost& c : walk.costs) {
        if (c.kind != Kind::Attention) continue;
        #pragma omp parallel num_threads(context.threads)
        attention_products_warm_up(c.attention);
    }
}

// Zeros past the caches: large memory leaves the caches before anybody reads, and ordinary stores first read
// the old content. REQUIRES: `p` at a multiple of 16.
static void stream_zero(std::byte* p, size_t bytes) {
    const size_t whole = bytes / 64 * 64;
    for (size_t i = 0; i < whole; i += 64)
        for (size_t k = 0; k < 64; k += 16)
            _mm_stream_si128(reinterpret_cast<__m128i*>(p + i + k), _mm_setzero_si128());
    memset(p + whole, 0, bytes - whole);
    _mm_sfence();
}

void set_zero(void* p, size_t bytes) {
    if (walked(vector_cost, "set_zero", 0, bytes)) return;
    const int64_t pages = int64_t((bytes + kHugePage - 1) / kHugePage);
    const bool stream = bytes >= 16 * kHugePage && reinterpret_cast<uintptr_t>(p) % 16 == 0;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int64_t i = 0; i < pages; i++) {
        std::byte* page = static_cast<std::byte*>(p) + i * kHugePage;
        const size_t size = std::min(kHugePage, bytes - i * kHugePage);
        if (stream) stream_zero(page, size);
        else memset(page, 0, size);
    }
}

void* host_allocate(size_t bytes) { return device_allocate(bytes); }
void pin(void*, size_t) {}
void unpin(void*, size_t) {}
void host_free(void* p, size_t bytes) { device_free(p, bytes); }

static void copy_pages(void* out, const void* in, size_t bytes) {
    const int64_t pages = int64_t((bytes + kHugePage - 1) / kHugePage);
    #pragma omp parallel for schedule(static) num_threads(context.threads) if (pages > 1)
    for (int64_t i = 0; i < pages; i++)
        memcpy(static_cast<std::byte*>(out) + i * kHugePage,
               static_cast<const std::byte*>(in) + i * kHugePage,
               std::min(kHugePage, bytes - size_t(i) * kHugePage));
}

// Copies are complete when their call returns.
void start_copy_to_device(void* to, const void* from, size_t bytes) {
    if (walked(start_copy_cost, CopyLane::ToDevice, bytes)) return;
    copy_pages(to, from, bytes);
}
void start_copy_to_host(void* to, const void* from, size_t bytes) {
    if (walked(start_copy_cost, CopyLane::ToHost, bytes)) return;
    copy_pages(to, from, bytes);
}
CopyTicket::~CopyTicket() = default;
void mark_copies(CopyTicket& ticket, CopyLane lane, double* arrived) {
    number_in_walk(ticket);
    if (walked(mark_copies_cost, ticket, lane)) return;
    if (arrived) *arrived = seconds_now();
}
void await_copies(const CopyTicket& ticket) { walked(await_copies_cost, "await_copies", ticket); }
void host_awaits_copies(const CopyTicket& ticket) {
    walked(await_copies_cost, "host_awaits_copies", ticket);
}
void finish_copies() { walked(finish_copies_cost); }

void accumulate(real* sum, const real* values, size_t count) {
    if (walked(vector_cost, "accumulate", 2 * count * sizeof(real), count * sizeof(real))) return;
    #pragma omp parallel for simd schedule(static) num_threads(context.threads)
    for (size_t i = 0; i < count; i++) sum[i] += values[i];
}

void copy_to_device(void* to, const void* from, size_t bytes) {
    if (walked(host_copy_cost, CopyLane::ToDevice, bytes)) return;
    memcpy(to, from, bytes);
}
void copy_to_host(void* to, const void* from, size_t bytes) {
    if (walked(host_copy_cost, CopyLane::ToHost, bytes)) return;
    memcpy(to, from, bytes);
}
void copy_on_device(void* to, const void* from, size_t bytes) {
    if (walked(copy_cost, "copy_on_device", bytes)) return;
    memcpy(to, from, bytes);
}

void round_to(floatX* out, const real* in, size_t count) {
    if (walked(vector_cost, "round_to", count * sizeof(real), count * sizeof(floatX))) return;
    #pragma omp parallel for simd schedule(static) num_threads(context.threads)
    for (size_t i = 0; i < count; i++) out[i] = floatX(in[i]);
}

void copy(floatX* out, const floatX* in, size_t count) {
    if (walked(copy_cost, "copy", count * sizeof(floatX))) return;
    memcpy(out, in, count * sizeof(floatX));
}

void join_rows(floatX* out, const JoinedRows& j) {
    if (walked(join_rows_cost, j)) return;
    const int rows = j.before + j.T;
    const size_t width = size_t(j.width), bytes = width * sizeof(floatX);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int i = 0; i < j.B * rows; i++) {
        const int b = i / rows, t = i % rows;
        const floatX* row = t < j.before
            ? j.kept + (size_t(j.from[b]) * size_t(j.before) + size_t(t)) * width
            : j.own + (size_t(b) * size_t(j.T) + size_t(t - j.before)) * j.stride;
        memcpy(out + size_t(i) * width, row, bytes);
    }
}

void copy_rows(floatX* out, const RowCopy& c) {
    if (walked(copy_rows_cost, c)) return;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int i = 0; i < c.rows; i++)
        memcpy(out + i * c.out_stride, c.from + i * c.stride, c.width * sizeof(floatX));
}

// Runs of kRun elements: partial sums stay in the first-level cache.
template <class Out, class In, class Load>
static void sum_of(Out* out, const In* const* terms, int number, size_t count, Load load) {
    static constexpr size_t kRun = 1024;
    #pragma omp parallel for schedule(static) num_threads(context.threads) if (count > 8 * kRun)
    for (size_t first = 0; first < count; first += kRun) {
        real sums[kRun];
        const size_t n = std::min(kRun, count - first);
        for (size_t i = 0; i < n; i++) sums[i] = load(terms[0][first + i]);
        for (int k = 1; k < number; k++) {
            const In* term = terms[k] + first;
            for (size_t i = 0; i < n; i++) sums[i] += load(term[i]);
        }
        for (size_t i = 0; i < n; i++) out[first + i] = Out(sums[i]);
    }
}

void sum_terms(floatX* out, const floatX* const* terms, int number, size_t count) {
    sum_of(out, terms, number, count, [](floatX x) { return real(x); });
}

void add(floatX* sum, const floatX* values, size_t count) {
    if (walked(vector_cost, "add", 2 * count * sizeof(floatX), count * sizeof(floatX))) return;
    const floatX* const both[] = {sum, values};
    sum_terms(sum, both, 2, count);
}

void sum_rounded(real* out, const real* const* terms, int number, size_t count) {
    sum_of(out, terms, number, count, [](real x) { return real(floatX(x)); });
}

void sum_widened(real* out, const floatX* const* terms, int number, size_t count) {
    sum_of(out, terms, number, count, [](floatX x) { return real(x); });
}

void sum_in_order(double* total, const real* values, size_t count) {
    if (walked(vector_cost, "sum_in_order", count * sizeof(real), sizeof *total)) return;
    for (size_t i = 0; i < count; i++) *total += double(values[i]);
}

void sum_rows(double* out, const double* in, int rows, int cols) {
    if (walked(sum_rows_cost, rows, cols)) return;
    for (int c = 0; c < cols; c++) {
        double sum = 0;
        for (int r = 0; r < rows; r++) sum += in[size_t(r) * size_t(cols) + size_t(c)];
        out[c] = sum;
    }
}

}  // namespace cpu
}  // namespace PRECISION

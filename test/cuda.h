// How operations of the CUDA backend are tested: against the CPU's in fp64, on the GPU or in the emulation.
#pragma once
#include "llmc/ops/cuda/device/runtime.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/cuda/scratch.h"
#include "test/compare.h"

#ifdef CUDA_EMU
#include "test/emulator/counters.h"
#include "test/emulator/memory.h"
#include "test/emulator/settings.h"
#endif

extern "C" [[gnu::weak]] void __gcov_init();    // there in `make coverage`: every access is checked

#ifndef DECLARED_FP64_CPU
#define DECLARED_FP64_CPU
namespace fp64 {
#include "llmc/ops/decl/needs.h"
namespace cpu {
#include "llmc/ops/decl/all.h"
}  // namespace cpu
}  // namespace fp64
#endif

namespace PRECISION {

namespace oracle = ::fp64::cpu;

// A copy of a vector in the GPU's memory.
template <class T> struct OnDevice {
    T* p;
    size_t count;

    explicit OnDevice(const std::vector<T>& v) : count(v.size()) {
        p = static_cast<T*>(cuda::device_allocate(bytes()));
        cuda::copy_to_device(p, v.data(), bytes());
    }
    OnDevice(const OnDevice&) = delete;
    ~OnDevice() { cuda::device_free(p, bytes()); }
    size_t bytes() const { return count * sizeof(T); }
    operator T*() const { return p; }
    std::vector<T> host() const {
        std::vector<T> v(count);
        cuda::copy_to_host(v.data(), p, bytes());
        return v;
    }
};

// Scratch for the operations of a test, given back at its end. It is full of NaN.
struct CudaScratch {
    Context before = context;
    void* memory;
    size_t bytes;

    explicit CudaScratch(size_t lent = kGemmWorkspace + (size_t(4) << 20)) : bytes(lent) {
        memory = cuda::device_allocate(bytes);
        const std::vector<unsigned char> nan(bytes, 0xff);
        cuda::copy_to_device(memory, nan.data(), bytes);
        cuda::lend_scratch(memory, bytes);
    }
    CudaScratch(const CudaScratch&) = delete;
    ~CudaScratch() { cuda::device_free(memory, bytes); context = before; }
};

// The same for the oracle.
struct OracleScratch {
    Context before = context;
    void* memory;
    size_t bytes;

    explicit OracleScratch(size_t lent = size_t(16) << 20) : bytes(lent) {
        context.threads = 2;
        memory = oracle::device_allocate(bytes);
        oracle::lend_scratch(memory, bytes);
    }
    OracleScratch(const OracleScratch&) = delete;
    ~OracleScratch() { oracle::device_free(memory, bytes); context = before; }
};

inline Wide absolute(Wide v) {
    for (double& x : v) x = std::fabs(x);
    return v;
}

// `make test` runs sums in every order, counts every kernel's traffic, and tries every candidate. Builds that
// check each access, ten times slower, and other settings of the emulation skip these.
static const bool kAgain = test::kAddressSanitizer || __gcov_init || getenv("EMU_ORDER");

#ifdef CUDA_EMU
// f() in every order of threads and with asynchronous copies early and late. On a GPU: a few times.
template <class F> void in_every_order(F f) {
    const emulator::Settings before = emulator::settings;
    for (const auto order : {emulator::Order::Random, emulator::Order::Forward, emulator::Order::Reverse})
        for (const bool late : {true, false}) {
            if (kAgain && (order != emulator::Order::Random || late)) continue;
            emulator::settings.order = order, emulator::settings.late_copies = late;
            f();
        }
    emulator::settings = before;
}

// Traffic and operations of kernels during f() equal their declared floors.
template <class F> void expect_floors(const char* file, int line, F f) {
    if (kAgain) return test::skip("counted by make test");
    emulator::settings.count = true;
    emulator::reset_counts();
    const Walk walk = walk_of({.backend = Target::Cuda, .threads = 1}, f, true);
    emulator::settings.count = false;
    const size_t stated = walk.needs().scratch, used = walk.scratch_used;
    if (stated < used || stated > used + 2 * kScratchAlign)
        test::fail(file, line, "an op states %zu bytes of scratch and uses %zu", stated, used);
    emulator::tell_of_counts();
    for (const auto& [name, count] : emulator::counts())
        for (const std::string& what : emulator::off_floor(count))
            test::fail(file, line, "%s: %s", name.c_str(), what.c_str());
}
#else
template <class F> void in_every_order(F f) {
    for (int i = 0; i < 3; i++) f();
}
template <class F> void expect_floors(const char*, int, F f) { f(); }
#endif
#define EXPECT_FLOORS(...) expect_floors(__FILE__, __LINE__, __VA_ARGS__)

}  // namespace PRECISION

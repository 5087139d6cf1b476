// One primitive per product, with its scratchpad in user mode: execution allocates no tensor. A thread has
// its own cache, as primitives in execution hold addresses; oneDNN shares compiled code between threads.
#include "llmc/ops/cpu/products/dnnl.h"

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/host/machine.h"

#ifdef HAVE_DNNL
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>
#endif

inline namespace onednn {

#ifndef HAVE_DNNL

bool dnnl_computes(DType) { return false; }
bool bf16_is_fast() { return false; }
std::string matmul_library() { return {}; }
size_t dnnl_scratch(const Product&, int) { return 0; }
size_t dnnl_built() { return 0; }
size_t dnnl_own_bytes(const Product&, int) { return 0; }
void dnnl_product(const Product&, const ProductTensors&, std::byte*, int) {
    CHECK(false, "this build has no oneDNN");
}

#else

using dnnl::memory;

struct Primitive {
    dnnl::matmul op;
    memory a, b, c, bias, scratchpad;
    std::unordered_map<int, memory> arguments;  // the same memory objects; only their addresses change
    size_t scratch;
    bool packs;                                 // into memory of its own
};

struct Key {
    Product product;
    int threads;
    bool operator==(const Key&) const = default;
};

struct Hash {
    size_t operator()(const Key& k) const {
        const Product& p = k.product;
        uint64_t h = 0;
        for (uint64_t x :
             {uint64_t(p.m), uint64_t(p.n), uint64_t(p.k), uint64_t(k.threads),
                           uint64_t(p.a_stride), uint64_t(p.b_stride), uint64_t(p.c_stride),
              uint64_t(p.in) | uint64_t(p.out) << 2 | uint64_t(p.a_transposed) << 4 |
                  uint64_t(p.b_transposed) << 5 | uint64_t(p.bias) << 6 | uint64_t(p.accumulate) << 7}) {
            h = (h ^ x) * 0x9e3779b97f4a7c15;
            h ^= h >> 29;
        }
        return h;
    }
};

struct Cache {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::unordered_map<Key, std::unique_ptr<Primitive>, Hash> primitives;
};

static Cache& cache() {
    thread_local Cache c;
    return c;
}

static memory::data_type type_of(DType t) {
    CHECK(t != DType::F64, "oneDNN has no FP64");
    return t == DType::F32 ? memory::data_type::f32 : memory::data_type::bf16;
}

// (rows, columns), in memory by rows or, transposed, by columns; stride 0: dense
static memory::desc matrix(int64_t rows, int64_t columns, DType t, bool transposed, int64_t stride = 0) {
    if (!stride) stride = transposed ? rows : columns;
    return {{rows, columns}, type_of(t), transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

struct Descriptions {
    memory::desc a, b, c, bias;
};

#if DNNL_VERSION_MAJOR >= 3
static dnnl::matmul::primitive_desc describe(const Descriptions& d, const dnnl::primitive_attr& attr) {
    return {cache().engine, d.a, d.b, d.bias, d.c, attr};
}
#else
static dnnl::matmul::primitive_desc describe(const Descriptions& d, const dnnl::primitive_attr& attr) {
    return {dnnl::matmul::desc(d.a, d.b, d.bias, d.c), attr, cache().engine};
}
#endif

static std::unique_ptr<Primitive> build(const Product& p) {
    const Descriptions d = {.a = matrix(p.m, p.k, p.in, p.a_transposed, p.a_stride),
                            .b = matrix(p.k, p.n, p.in, p.b_transposed, p.b_stride),
                            .c = matrix(p.m, p.n, p.out, false, p.c_stride),
                            .bias = p.bias ? matrix(1, p.n, p.in, false) : memory::desc()};
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
        dnnl::post_ops sum;
        sum.append_sum(1.0f);
        attr.set_post_ops(sum);
    }
    const auto description = describe(d, attr);
    const auto& engine = cache().engine;
    auto result = std::make_unique<Primitive>();
    result->op = dnnl::matmul(description);
    result->a = memory(d.a, engine, nullptr);
    result->b = memory(d.b, engine, nullptr);
    result->c = memory(d.c, engine, nullptr);
    result->scratchpad = memory(description.scratchpad_desc(), engine, nullptr);
    result->scratch = description.scratchpad_desc().get_size();
    result->packs = !strcmp(description.impl_info_str(), "gemm:jit");
    result->arguments = {{DNNL_ARG_SRC, result->a},
                         {DNNL_ARG_WEIGHTS, result->b},
                         {DNNL_ARG_DST, result->c},
                         {DNNL_ARG_SCRATCHPAD, result->scratchpad}};
    if (p.bias) {
        result->bias = memory(d.bias, engine, nullptr);
        result->arguments[DNNL_ARG_BIAS] = result->bias;
    }
    return result;
}

[[noreturn]] static void failed(const Product& p, const dnnl::error& e) {
    fatal(kExitInternal, __FILE__, __LINE__,
          "oneDNN, product of ({}, {}) and ({}, {}): {} (status {})", p.m, p.k,
          p.k, p.n, e.what(), int(e.status));
}

// A product of the same kind whose tensors are small.
static Product shrunk(Product p) {
    constexpr int64_t kMost = 512, kGap = 256;
    p.m = std::min(p.m, kMost), p.n = std::min(p.n, kMost), p.k = std::min(p.k, kMost);
    if (p.a_stride) p.a_stride = (p.a_transposed ? p.m : p.k) + kGap;
    if (p.b_stride) p.b_stride = (p.b_transposed ? p.k : p.n) + kGap;
    if (p.c_stride) p.c_stride = p.n + kGap;
    return p;
}

// oneDNN generates the code of gemm:jit, some megabytes for all shapes of a type, at the first product. Here
// a product of zeros has it generated where products are built, before memory is measured.
static void generate_code(const Product& of) {
    static std::once_flag once[2][2][2][2];
    std::call_once(once[of.in == DType::BF16][of.a_transposed][of.b_transposed][of.accumulate], [&] {
        const std::unique_ptr<Primitive> small = build(shrunk(of));
        Primitive& p = *small;
        std::vector<std::vector<std::byte>> zeros;
        for (memory* m : {&p.a, &p.b, &p.c, &p.bias, &p.scratchpad}) {
            zeros.emplace_back(*m ? m->get_desc().get_size() : 0);
            if (*m) m->set_data_handle(zeros.back().data());
        }
        p.op.execute(cache().stream, p.arguments);
        cache().stream.wait();
    });
}

static std::atomic<size_t> built = 0;
size_t dnnl_built() { return built; }

// oneDNN crashes without memory for generated code.
static constexpr size_t kLeastRoom = size_t(16) << 20;

static Primitive& find(const Product& p, int threads) {
    auto& kept = cache().primitives[{p, threads}];
    if (kept) return *kept;
    CHECK_INPUT(room_in_address_space() > kLeastRoom,
                "`ulimit -v` leaves less than {} to this process: raise it",
                human_bytes(double(kLeastRoom)));
    omp_set_num_threads(threads);  // the work is divided when the primitive is built
    try {
        kept = build(p);
        built++;
        if (kept->packs) generate_code(p);
    } catch (const dnnl::error& e) { failed(p, e); }
    return *kept;
}

size_t dnnl_scratch(const Product& p, int threads) { return find(p, threads).scratch; }

// Panels of up to 10,000 columns of C by 384 terms, and of 384 terms by 384 rows (oneDNN 2.6, gemm_info.cpp);
// columns are divided among threads where there are many.
size_t dnnl_own_bytes(const Product& p, int threads) {
    if (!find(p, threads).packs) return 0;
    const auto columns = std::min<int64_t>(p.n, 10000), terms = std::min<int64_t>(p.k, 384);
    const auto rows = std::min<int64_t>(p.m, 384);
    return size_t(threads) * size_t(terms * (columns + rows)) * sizeof(float);
}

void dnnl_product(const Product& p, const ProductTensors& t, std::byte* scratch, int threads) {
    Primitive& primitive = find(p, threads);
    if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
    primitive.a.set_data_handle(const_cast<void*>(t.a));
    primitive.b.set_data_handle(const_cast<void*>(t.b));
    primitive.c.set_data_handle(t.c);
    if (p.bias) primitive.bias.set_data_handle(const_cast<void*>(t.bias));
    if (primitive.scratch) primitive.scratchpad.set_data_handle(scratch);
    try {
        primitive.op.execute(cache().stream, primitive.arguments);
        cache().stream.wait();
    } catch (const dnnl::error& e) { failed(p, e); }
}

// VDPBF16PS does two multiplications where an FMA does one. AMD issues both at one rate (Zen 5: 808 to 1007
// GFLOP/s against 445 to 535). Intel issues VDPBF16PS at half the rate or less (Emerald Rapids: 165 against
// 280) and has AMX for BF16 instead.
bool bf16_is_fast() {
    const auto isa = int(dnnl::get_effective_cpu_isa());
    const auto has = [isa](dnnl::cpu_isa x) { return (isa & int(x)) == int(x); };
    if (has(dnnl::cpu_isa::avx512_core_amx)) return true;
    return has(dnnl::cpu_isa::avx512_core_bf16) && !__builtin_cpu_is("intel");
}

bool dnnl_computes(DType in) { return in == DType::F32 || (in == DType::BF16 && bf16_is_fast()); }

std::string matmul_library() {
    const dnnl_version_t* v = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
}

#endif

}  // namespace onednn

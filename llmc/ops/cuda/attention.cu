// Which way each part of attention goes: a variant by tensor cores, chosen as matmul.h has it for products,
// or the plain kernels for what these do not take.
#include "llmc/ops/cuda/attention.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "llmc/base/progress_page.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/trial.h"
#include "llmc/ops/cuda/verdicts.h"

namespace PRECISION {
namespace cuda {

enum class Part { Forward, Queries, Keys };
static constexpr const char* kNames[] = {"forward", "queries", "keys"};

// Sequences of T tokens, each of which sees all before it. Others, as when text is generated, take a default.
struct AttentionKey {
    Part part;
    int B, T, NH, D;
    auto operator<=>(const AttentionKey&) const = default;
};
static AttentionKey key_of(Part part, const AttentionDims& d) { return {part, d.B, d.Tq, d.NH, d.D}; }
static std::string text_of(const AttentionKey& k) {
    return strf("%s %d %d %d %d", kNames[int(k.part)], k.B, k.T, k.NH, k.D);
}

// The variant's name.
static std::map<AttentionKey, std::string>& routes() {
    thread_local std::map<AttentionKey, std::string> of_rank;
    return of_rank;
}

// The time that a launch cannot do without on an A100, the GPU with the most bandwidth for its products.
static double seconds_of(const Floor& f) { return std::max(f.bytes / 2.0e12, f.mma_flops / 312e12); }

static Verdict verdict(Part part, int D, const char* variant) {
    thread_local const std::string gpu = [] {
        cudaDeviceProp properties;
        CUDA_CHECK(cudaGetDeviceProperties(&properties, cuda_device().index));
        return std::string(properties.name);
    }();
    return verdict_of(gpu.c_str(), kNames[int(part)], D, variant);
}

// The chosen variant, else the fastest that is known of this GPU, else that with the lowest floor; null where
// none takes these heads.
template <class Variants> static auto route_of(Part part, const Variants& variants, const AttentionDims& d) {
    const typename Variants::element_type *best = nullptr, *fastest = nullptr;
    const auto chosen = d.Tq == d.Tk ? routes().find(key_of(part, d)) : routes().end();
    for (const auto& v : variants) {
        const Verdict known = verdict(part, d.D, v.name);
        if (!v.supports(d.D) || known == Verdict::Failed) continue;
        if (chosen != routes().end() && chosen->second == v.name) return &v;
        if (known == Verdict::Fastest) fastest = &v;
        if (!best || seconds_of(v.floor(d)) < seconds_of(best->floor(d))) best = &v;
    }
    return fastest ? fastest : best;
}

void attention_forward(floatX* out, real* lse, const floatX* q, const floatX* k, const floatX* v,
                       const AttentionDims& d) {
    const auto* variant = route_of(Part::Forward, attention_forward_variants(), d);
    if (!variant) return attention_plain_forward(out, lse, q, k, v, d);
    attention_check(d);
    variant->run({out, lse, q, k, v}, d);
}

void attention_backward(const AttentionBackward& t, const AttentionDims& d) {
    const auto* queries = route_of(Part::Queries, attention_queries_variants(), d);
    const auto* keys = route_of(Part::Keys, attention_keys_variants(), d);
    if (!queries || !keys) return attention_plain_backward(t, d);
    attention_check(d);
    const AttentionGradients gradients = {t, scratch<float>(size_t(d.B) * d.NH * d.Tq)};
    queries->run(gradients, d);
    keys->run(gradients, d);
}

// ---------------------------------------------------------------------------------------------------------
// choices

static std::string header() {
    return strf("attention %s, %s\n", name_of(dtype_of<floatX>), gemm_platform());
}

std::string attention_choices() {
    std::string text = header();
    for (const auto& [k, variant] : routes()) text += text_of(k) + ' ' + variant + '\n';
    return text;
}

int use_attention_choices(const std::string& text) {
    if (!text.starts_with(header())) return 0;
    std::istringstream lines(text.substr(header().size()));
    int taken = 0;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::string name, variant;
        AttentionKey k;
        fields >> name >> k.B >> k.T >> k.NH >> k.D >> variant;
        const auto* part = std::find(std::begin(kNames), std::end(kNames), name);
        if (!fields || part == std::end(kNames)) continue;
        k.part = Part(part - kNames);
        routes()[k] = variant, taken++;
    }
    return taken;
}

// ---------------------------------------------------------------------------------------------------------
// tuning

// Channels of the heads here: all of the model's, or this rank's of them.
static size_t channels_of(const ScratchSizes& s) { return size_t(s.NH) * size_t(s.D); }

// The tensors of a layer: rows of q, k and v side by side, as the model has them, and the gradients of those.
namespace {
struct Layer {
    floatX *qkv, *out, *dqkv, *dout;
    float *lse, *deltas;
    size_t bytes = 0;

    Layer(const ScratchSizes& s, void* memory) {
        const size_t values = size_t(s.N) * channels_of(s), rows = size_t(s.N) * s.NH;
        const auto take = [&]<class T>(T*& p, size_t count) {
            p = reinterpret_cast<T*>(static_cast<std::byte*>(memory) + bytes);
            bytes += scratch_size(count * sizeof(T));
        };
        take(qkv, 3 * values), take(out, values), take(dqkv, 3 * values), take(dout, values);
        take(lse, rows), take(deltas, rows);
    }
};
}  // namespace

size_t attention_tuning_bytes(const ScratchSizes& s) { return Layer(s, nullptr).bytes; }

static AttentionDims dims_of(const ScratchSizes& s) {
    const size_t stride = 3 * channels_of(s);
    return {.B = s.N / s.T, .Tq = s.T, .Tk = s.T, .NH = s.NH, .D = s.D, .q_stride = stride,
            .kv_stride = stride, .q_offset = 0, .k_offset = 0};
}

bool attention_tuned(const ScratchSizes& s) {
    const AttentionDims d = dims_of(s);
    const auto chosen = [&](Part part, const auto& variants) {
        return !route_of(part, variants, d) || routes().contains(key_of(part, d));
    };
    return chosen(Part::Forward, attention_forward_variants()) &&
           chosen(Part::Queries, attention_queries_variants()) &&
           chosen(Part::Keys, attention_keys_variants());
}

std::vector<AttentionTiming> attention_tune(const ScratchSizes& s, void* memory, int repeats) {
    const Layer x(s, memory);
    const size_t C = channels_of(s);
    const AttentionDims d = dims_of(s);
    std::vector<AttentionTiming> timings;
    const auto tune = [&](Part part, const auto& variants, const auto& tensors) {
        float best = 0;
        for (const auto& v : variants) {
            if (!v.supports(d.D) || verdict(part, d.D, v.name) == Verdict::Failed) continue;
            const float time = microseconds([&] { v.run(tensors, d); }, repeats);
            beat();
            timings.push_back({text_of(key_of(part, d)), v.name, time});
            if (best == 0 || time < best) best = time, routes()[key_of(part, d)] = v.name;
        }
    };
    fill_with_normals(x.qkv, 3 * C * s.N * sizeof(floatX));
    fill_with_normals(x.dout, C * s.N * sizeof(floatX));
    const AttentionBackward backward = {.dq = x.dqkv, .dk = x.dqkv + C, .dv = x.dqkv + 2 * C, .dout = x.dout,
                                        .out = x.out, .lse = x.lse, .q = x.qkv, .k = x.qkv + C,
                                        .v = x.qkv + 2 * C};
    const AttentionGradients gradients = {backward, x.deltas};
    tune(Part::Forward, attention_forward_variants(),
         AttentionForward{x.out, x.lse, x.qkv, x.qkv + C, x.qkv + 2 * C});
    tune(Part::Queries, attention_queries_variants(), gradients);
    tune(Part::Keys, attention_keys_variants(), gradients);
    return timings;
}

// ---------------------------------------------------------------------------------------------------------
// trial

static ScratchSizes little(ScratchSizes s) {
    s.T = s.N = std::min(s.T, 256);
    return s;
}

size_t attention_trial_bytes(const ScratchSizes& s) { return 2 * Layer(little(s), nullptr).bytes; }

// BF16 is off by some 2^-9 at each of a few roundings.
static void check_close(const char* what, const char* variants, const floatX* values, const floatX* simple,
                        size_t count) {
    const double off = apart(values, simple, count);
    CHECK(off <= 0.03, "attention %s, variants %s: off by %.2g of the plain kernels' result on "
          "this GPU, expected less than 0.03. Please report it with dev/results of scripts/gpu_check.sh",
          what, variants, off);
}

void attention_try(const ScratchSizes& sizes, void* memory) {
    const AttentionDims whole = dims_of(sizes), d = dims_of(little(sizes));
    const auto* forward = route_of(Part::Forward, attention_forward_variants(), whole);
    const auto* queries = route_of(Part::Queries, attention_queries_variants(), whole);
    const auto* keys = route_of(Part::Keys, attention_keys_variants(), whole);
    if (!forward || !queries || !keys) return;
    const size_t C = channels_of(sizes), count = C * size_t(d.Tq);
    const Layer x(little(sizes), memory);
    const Layer simple(little(sizes), static_cast<std::byte*>(memory) + x.bytes);
    fill_with_normals(x.qkv, 3 * count * sizeof(floatX));
    fill_with_normals(x.dout, count * sizeof(floatX));
    const floatX *q = x.qkv, *k = x.qkv + C, *v = x.qkv + 2 * C;
    attention_plain_forward(simple.out, simple.lse, q, k, v, d);
    forward->run({x.out, x.lse, q, k, v}, d);
    check_close("forward", forward->name, x.out, simple.out, count);
    const auto gradients = [&](floatX* to) -> AttentionBackward {
        return {.dq = to, .dk = to + C, .dv = to + 2 * C, .dout = x.dout, .out = simple.out,
                .lse = simple.lse, .q = q, .k = k, .v = v};
    };
    attention_plain_backward(gradients(simple.dqkv), d);
    queries->run({gradients(x.dqkv), x.deltas}, d);
    keys->run({gradients(x.dqkv), x.deltas}, d);
    check_close("backward", strf("%s and %s", queries->name, keys->name).c_str(), x.dqkv, simple.dqkv,
                3 * count);
}

}  // namespace cuda
}  // namespace PRECISION

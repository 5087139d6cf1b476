// The walk: records the ops and collectives of a step instead of running them.
//
// Every op and every collective begins with
//
//     if (walked(cost_of_the_op, its sizes ...)) return;
//
// A rank that computes pays for a test of a pointer. A rank that walks records the cost, and the op returns.
// So the real step of any rank of any mesh runs on any machine, without touching a tensor. The record serves
// the plan of scratch, the warm-up of libraries, tuning, and counts of FLOPs and bytes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/base/numbers/activations.h"

inline namespace comm { enum Verb : uint8_t; }        // of a collective: comm/group.h

inline namespace any_backend {

// The device of a cost, present or described.
struct Target {
    enum Backend : uint8_t { Cpu, Cuda } backend;
    int threads;                    // of a rank; Cpu
    bool any_size = false;          // Cuda: kernels of another program, without limits on sizes; for plans
    int processors = 132;           // Cuda: of the GPU that a plan is for; NCCL's buffers grow with them
    constexpr bool gpu() const { return backend == Cuda; }
    // The sides of weights are multiples of this.
    constexpr int product_unit() const { return gpu() ? 8 : 1; }
    bool operator==(const Target&) const = default;
};

enum class Kind : uint8_t { Memory, Product, Attention, Copy, Wait, Collective };

// (m, n) = (m, k) (k, n). Weight: of a gradient, which accumulates.
struct ProductShape {
    enum Op : uint8_t { Forward, Input, Weight, Gram } op = Forward;
    int m = 0, n = 0, k = 0;
    bool bias = false;
    int batch = 0;                  // such products in one call; 0: a single product
    std::optional<Activation> activation = {};      // that follows, or its backward
    bool fp8 = false;               // of FP8 codes
    bool operator==(const ProductShape&) const = default;
};

struct AttentionShape {
    int B = 0, Tq = 0, Tk = 0, NH = 0, D = 0;
    int apart = 0;                  // q_offset - k_offset
    int window = 0;                 // 0: all keys before a query
    bool documents = false, backward = false;
    bool operator==(const AttentionShape&) const = default;
};

// The two directions of copies between device and host.
enum class CopyLane : uint8_t { ToDevice, ToHost };

struct CopyPath {
    std::optional<CopyLane> lane;   // none: on the device
    bool beside = false;            // the ops, not among them
    bool operator==(const CopyPath&) const = default;
};

// Waits for copies beside the ops (CopyTicket).
struct TicketShape {
    enum Op : uint8_t { Mark, Await, AwaitAll } op = Mark;
    int number = 0;
    CopyLane lane = CopyLane();     // of Mark
    bool operator==(const TicketShape&) const = default;
};

// Bytes of an op besides its arguments: of context.scratch, and allocated by libraries.
struct Needs {
    size_t scratch = 0, library = 0;
    bool operator==(const Needs&) const = default;
};

struct Cost {
    const char* name;               // of the op, or the verb
    Kind kind = Kind::Memory;
    ProductShape product = {};
    AttentionShape attention = {};
    CopyPath copy = {};
    TicketShape ticket = {};        // of a wait without an axis
    double flops = 0;               // of products and attention: pairs inside the causal window, documents
                                    // ignored
    uint64_t read = 0, written = 0; // bytes as the formula needs them: every tensor once. Collective: bytes
                                    // that the rank sends are `read`, bytes of its result are `written`
    uint64_t passes = 0;            // Product: bytes that kernels of their own move behind it on a GPU, for
                                    // the activation or the sums of a bias's gradient
    Needs needs = {};
    const char* axis = nullptr;     // of a collective, or of a wait for one
    Verb verb = {};                 // of the collective on `axis`
    int peer = -1;                  // of a message: rank on the axis

    // The shape as numbers, for traces and comparisons; zeros at the end. A product: m, n, k, bias, batch.
    std::array<int, 8> sizes() const;
    bool operator==(const Cost&) const = default;
};

struct Timeline;                    // ops/timeline.h

// A record: costs in the order of the calls. Equal costs are kept once.
struct Walk {
    // block, micro-batch, place of the action in the stage's list: -1 outside of any
    struct Entry { int32_t cost, block, micro, action; };

    Target target;
    bool computes = false;          // ops are recorded, and run
    size_t scratch_used = 0;        // of a rank that computes: the largest of an op
    Timeline* timeline = nullptr;   // of a traced step: gets the time of each record
    std::vector<double> begun;      // of each entry of a rank that computes without a timeline, on the host's
                                    // clock in seconds
    int block = -1, micro = -1, action = -1;    // of the next entries
    int tickets = 0;                // of copies, so far
    std::vector<Cost> costs;        // distinct
    std::vector<Entry> entries;

    explicit Walk(const Target& target) : target(target) {}
    void record(const Cost& cost);
    Needs needs() const;            // the largest of an op
    double flops() const;           // of all entries
    const Cost& of(const Entry& e) const { return costs[size_t(e.cost)]; }

private:
    void time(const Cost& cost) const;
    std::unordered_multimap<uint64_t, int32_t> known;   // hash of a cost -> its place
};

// Records the cost of an op, if a walk is on. True: the rank only walks, and the op must return.
template <class F, class... Args> bool walked(F&& cost, const Args&... args) {
    Walk* walk = context.walk;
    if (!walk) return false;
    walk->record(cost(walk->target, args...));
    return !walk->computes;
}

// Whether ops only record: code that reads or writes tensors on the host has to ask.
inline bool only_walks() { return context.walk && !context.walk->computes; }

// Ops of the CPU call this before they use `bytes` of context.scratch; fatal() if less is lent.
void use_scratch(const char* op, size_t bytes);

// Records what f() does. computes: ops run as well; else no tensor is touched.
template <class F> Walk walk_of(const Target& target, F&& f, bool computes = false) {
    Walk walk(target);
    walk.computes = computes;
    Walk* const before = context.walk;
    context.walk = &walk;
    struct Back { Walk* before; ~Back() { context.walk = before; } } back{before};
    f();
    return walk;
}

// Records nothing until the end of the scope: for ops inside ops, and for the sums of collectives.
struct Unrecorded {
    Walk* const walk = std::exchange(context.walk, nullptr);
    ~Unrecorded() { context.walk = walk; }
    Unrecorded() = default;
    Unrecorded(const Unrecorded&) = delete;
};

// Sets the block, micro-batch or action of entries until the end of the scope.
struct Walking {
    Walk* walk = context.walk;
    int before;
    using Member = int Walk::*;
    Member which;
    Walking(Member w, int value) : before(walk ? walk->*w : -1), which(w) {
        if (walk) walk->*which = value;
    }
    ~Walking() { if (walk) walk->*which = before; }
    Walking(const Walking&) = delete;
};

}  // namespace any_backend

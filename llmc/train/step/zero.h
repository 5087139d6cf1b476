// The communication of a step. The model requests weights and reports complete gradients; the ZeRO stage
// (shards.h) decides the effect of each call:
//
//     ZeRO    done_block(l)                done by then
//     0       last micro-batch: reduce     update() gathers gradients
//     1       last micro-batch: reduce     update() gathers weights
//     2       each micro-batch: reduce     update() gathers weights
//     3       each micro-batch: reduce     block(l) gathers weights, for training in FP8 their codes
//
// With HostedBlocks block(l) brings weights to the device, and a gradient leaves for the host once it is
// complete. update() finds both on the host, and no rank gathers there.
//
// Reduced means: this rank's shard holds the sum over the data-parallel ranks. Gradients of the ends of the
// model are summed over micro-batches and reduced once a step, by finish(). Weights of the ends stay gathered
// from begin_step() on.
//
// In a backward of two halves done_block(l) is in the second.
//
// A step:  begin_step(order); clear_grads(); { begin_backward(last); Gpt::backward() } ...; finish();
// then Optimizer.
#pragma once
#include "llmc/base/guard/progress_page.h"
#include "llmc/model/gpt.h"
#include "llmc/train/step/shards.h"

namespace PRECISION::inline step {

// For tests: what was started and awaited, in order.
struct ZeroEvent {
    enum Kind {
        StartReduce, WaitReduce, StartGather, WaitGather, StartSum, WaitSum, StartSpread, WaitSpread
    } kind;
    int bucket;
};

// How blocks come where weights are sharded: as floatX, or, where CodedShards has them, as codes.
enum class BlockForm { Weights, Codes };

// Gradients of biases and gains between the halves of backward (parallel.schedule = zb), where ZeRO shards
// gradients: meanwhile other blocks use the buffer of a block's whole gradients. The first half adds to the
// memory here, the second half adds this memory to the buffer.
struct VectorGrads {
    const Shards* shards = nullptr;     // null: gradients are whole, and no memory is here
    real* memory = nullptr;
    size_t micros = 0, count = 0;       // micro-batches alive; elements of a micro-batch
    std::vector<size_t> starts;         // of each block, in the elements of a micro-batch

    void set_up(const Shards& s, const std::vector<int>& live) {
        if (!s.sharding.grads) return;
        shards = &s;
        micros = size_t(*std::max_element(live.begin(), live.end()));
        for (size_t l = 0; l < s.layout.block_at.size(); l++) {
            starts.push_back(count);
            for_each(int(l), [&](auto, size_t elements) { count += aligned(elements); });
        }
    }
    void add_to(ArenaOf gradients) {
        gradients.add("gradients of vectors, for the other half", &memory, micros * count);
    }
    // Of block l, cleared; matrices: null.
    BlockTensors<real> cleared(int l, int buffer) {
        const auto [g, elements] = of(l, buffer);
        ops::set_zero(start(l, buffer), elements * sizeof(real));
        return g;
    }
    void accumulate(const BlockTensors<real>& dw, int l, int buffer) {
        const BlockTensors<real> g = of(l, buffer).first;
        for_each(l, [&](auto member, size_t elements) {
            ops::accumulate(dw.*member, g.*member, elements);
        });
    }

private:
    // f(member, elements) for each tensor of block l whose gradient the first half computes: all vectors, and
    // gatew, a small matrix.
    template <class F> void for_each(int l, F f) const {
        using G = BlockTensors<real>;
        constexpr real* G::* others[] = {&G::qkvw, &G::attprojw, &G::fcw, &G::fcprojw, &G::wve};
        for (const auto& [member, param] : block_params<real>(shards->d, layer(l)))
            if (std::ranges::find(others, member) == std::end(others)) f(member, param.count());
    }
    int layer(int l) const {
        for (const Tensor& t : shards->layout.tensors)
            if (t.bucket == shards->layout.block(l)) return t.layer;
        return -1;
    }
    real* start(int l, int buffer) const { return memory + size_t(buffer) * count + starts[size_t(l)]; }
    std::pair<BlockTensors<real>, size_t> of(int l, int buffer) const {
        BlockTensors<real> g = {};
        size_t at = 0;
        for_each(l, [&](auto member, size_t elements) {
            g.*member = start(l, buffer) + at;
            at += aligned(elements);
        });
        return {g, at};
    }
};

struct Zero {
    Shards& shards;
    const Layout& layout;                  // of shards
    const Sharding& sharding;
    bool overlap;                          // collectives run while the model computes; results are the same
    CodedShards codes = {};                // of blocks that are gathered
    VectorGrads vectors = {};              // between the halves of a backward
    HostedBlocks hosted;
    // Reads the complete gradient of a bucket, this rank's shard, before it leaves the device; may be empty.
    std::function<void(int bucket, const real* shard)> before_leaving = {};
    std::vector<ZeroEvent>* events = nullptr;
    // Reads the gradients of each bucket and micro-batch; null: nobody does.
    const std::function<void(int bucket, const real* whole)>* reader = nullptr;
    bool rehearses = false;                // gradients are for the reader alone, and thrown away

    static constexpr int kGathered = 2;                    // most blocks whose weights are gathered at once

    explicit Zero(Shards& shards, bool overlap = true);
    Zero(const Zero&) = delete;

    void add_weights_to(Arena& arena, Arena& host);
    void add_training_to(Arena& arena, Arena& host);       // gradients and optimizer state
    size_t staging_bytes() const;                          // for reductions over the axes used here
    void lend_staging(void* memory, size_t bytes) const;
    size_t tp_staging_bytes() const;                       // and over tp

    // ---- the provider of the model's weights; see model/gpt.h

    EmbedTensors<floatX> embed() const {
        return bind_embed(end_weights(layout.wte), end_weights(layout.embed), layout);
    }
    HeadTensors<floatX> head() const { return head_of(end_weights(layout.wte), final(), shards.d); }
    FinalTensors<floatX> final() const { return bind_final(end_weights(layout.final), layout); }
    BlockTensors<floatX> block(int l) {
        beat();
        if (!fetches()) return bind_block(shards.weight(layout.block(l), 0), l, layout);
        floatX* const memory = gathered(l);
        return as_codes ? codes.rest_of(l) : bind_block(memory, l, layout);
    }
    // After block(l), as long as that is valid. Null: not gathered as codes.
    const BlockCodes* block_codes(int l) {
        if (!as_codes) return nullptr;
        bound = codes.codes_of(l, bytes_of(gather_buffers[in_use]));
        return &bound;
    }

    EmbedTensors<real> embed_grads() const {
        return bind_embed(end_grads(layout.wte), end_grads(layout.embed), layout);
    }
    HeadTensors<real> head_grads() const { return head_of(end_grads(layout.wte), final_grads(), shards.d); }
    FinalTensors<real> final_grads() const { return bind_final(end_grads(layout.final), layout); }
    BlockTensors<real> block_grads(int l) {
        real* const at = buffers_grads() ? buffered_grads(l) : shards.gradient(layout.block(l), 0);
        return bind_block(at, l, layout);
    }

    // A backward in two halves.
    BlockTensors<real> vector_grads(int l, int buffer) {
        return vectors.shards ? vectors.cleared(l, buffer) : block_grads(l);
    }
    void add_vector_grads(int l, int buffer) {
        if (vectors.shards) vectors.accumulate(block_grads(l), l, buffer);
    }

    uint64_t version() const { return shards.version; }

    void done_embed() {
        done(layout.wte, end_grads(layout.wte));
        done(layout.embed, end_grads(layout.embed));
    }
    void done_head() {}
    void done_final() { done(layout.final, end_grads(layout.final)); }
    void done_block(int l) {
        const int b = layout.block(l);
        done(b, buffers_grads() ? grad_buffers[filling] : shards.gradient(b, 0));
        if (rehearses) filled_block = -1;
        else if (sharding.grads || last) reduce(b);
        else if (hosted) finish_reduce();               // the block before leaves
    }
    // Whole gradients of a bucket, complete for a micro-batch, before any rank adds them up.
    void done(int bucket, const real* whole) {
        if (bucket < 0) return;
        shards.flip_gradients_if_asked(bucket, whole);
        if (reader) (*reader)(bucket, whole);
    }

    // ---- steps

    // Before any weights are requested, also to evaluate and generate. order: local blocks in the order of
    // use; the order repeats when more blocks are requested. form: of what the model's products read.
    void begin_step(std::vector<int> order, BlockForm form = BlockForm::Weights);
    void clear_grads();
    void begin_backward(bool is_last) { last = is_last; }      // of the chunk's micro-batches in this step
    void finish();                                             // this rank's shards of gradients are final

    // An update calls before_update(b) and after_update(b) around the update of each bucket b, in order, then
    // end_update().
    void before_update(int b);
    void after_update(int b);
    void finish_gather();                  // awaits a started gather; before other collectives of its group
    void end_update();

    // Where weights come to the device: blocks whose weights are gathered, or on their way.
    int gathered_blocks() const {
        return int(std::count_if(gather_buffers, gather_buffers + kGathered,
                                 [](const Gathered& g) { return g.block >= 0; }));
    }

private:
    struct Flight { Pending pending; uint64_t serial = 0; int bucket = -1; };      // serial 0: none
    struct Gathered { floatX* memory = nullptr; int block = -1; };

    static uint8_t* bytes_of(const Gathered& g) { return reinterpret_cast<uint8_t*>(g.memory); }
    size_t largest_block() const {
        size_t most = 0;
        for (size_t l = 0; l < layout.block_at.size(); l++)
            most = std::max(most, layout.size(layout.block(int(l))));
        return most;
    }
    size_t ends_start(int end) const {
        size_t at = 0;
        for (int b = 0; b < end; b++)
            if (!shards.is_block(b)) at += layout.size(b);
        return at;
    }
    size_t packed_count() const;
    // The buffers hold blocks of one form. Codes are made of the weights after an update.
    void take_form(BlockForm form) {
        const bool before = std::exchange(as_codes, form == BlockForm::Codes && codes.shards);
        for (Gathered& g : gather_buffers)
            if (as_codes != before) g.block = -1;
        if (as_codes) codes.refresh();
    }
    size_t replica_staging() const;
    floatX* end_weights(int b) const {
        if (b < 0) return nullptr;
        return sharding.weights ? ends + ends_start(b) : shards.weight(b, 0);
    }
    real* end_grads(int b) const { return b < 0 ? nullptr : shards.gradient(b, 0); }

    bool fetches() const { return sharding.weights || hosted; }
    bool buffers_grads() const { return sharding.grads || hosted; }
    int block_of(int b) const { return b - layout.blocks; }       // the inverse of Layout::block
    real* grad_shard(int b) const;         // on the device
    void leave(int b);
    floatX* gathered(int l);
    void fetch(int l);                     // starts to gather, into the buffer that is not in use
    int gathered_index(int l) const {
        if (gather_buffers[0].block == l) return 0;
        return gather_buffers[1].block == l ? 1 : -1;
    }
    real* buffered_grads(int l);
    void reduce(int b);
    void take_off(Flight& flight, ZeroEvent::Kind kind, int b, Pending pending);
    void land(Flight& flight, ZeroEvent::Kind kind, const Axis& ranks) {
        ranks.wait(flight.pending);
        log(kind, flight.bucket);
        flight.serial = 0;
    }
    void finish_reduce();
    void start_sum(int b);
    void start_spread();
    void finish_spread();
    void sum_over_tp(const std::function<bool(int bucket)>& of);
    void gather_bucket(int b);             // gradients where all ranks update all, else weights
    void log(ZeroEvent::Kind kind, int b) { if (events) events->push_back({kind, b}); }

    Flight gather, reduction;              // at most one of each; awaited in the order in which they started
    Flight sum, spread;                    // over replicas: of a slice of a shard, of the slices to all
    uint64_t started = 0;
    bool last = false;
    int reduced = 0;                       // blocks, for the last time in this step

    Gathered gather_buffers[kGathered];             // where fetches()
    floatX* ends = nullptr;
    int in_use = 0;
    bool as_codes = false;                          // gathered blocks, in this step
    BlockCodes bound = {};
    std::vector<int> order;
    size_t position = 0;

    real* grad_buffers[2] = {};            // where buffers_grads(): whole gradients of a block
    int filling = 0, filled_block = -1;
    std::vector<bool> begun;               // per bucket: its shard holds gradients of this step
    real* result = nullptr;                // of the reduction in flight
    bool completes = false;                // it is the block's last in this step
    std::vector<Run> tp_runs;              // gradients that are partial over tp
    real* packed = nullptr;
};

}  // namespace PRECISION::step

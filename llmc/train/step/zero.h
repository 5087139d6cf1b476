// Weights, gradients and optimizer state in flat buffers, and their placement over the ranks.
//
// The model requests weights and reports complete gradients. The three words of Sharding decide the effect of
// each call:
//
//     ZeRO    weights   gradients   state              done_block(l)
//     0       whole     whole       whole              last micro-batch: reduce; update() gathers gradients
//     1       whole     whole       shards             last micro-batch: reduce; update() gathers weights
//     2       whole     shards      shards             each micro-batch: reduce; update() gathers weights
//     3       shards    shards      shards             each micro-batch: reduce; block(l) gathers weights
//
// A bucket is cut into equal shards over mesh.shard, and every rank of mesh.replica has the same shards.
// Reduced means: this rank's shard holds the sum over the data-parallel ranks. At every ZeRO stage the norm
// is taken of the same shards. A bucket at start(bucket) in a whole buffer is at start(bucket) / shards in a
// sharded buffer. The ends of the model (wte, the rest of the embedding, the final group) are not sharded
// within a step, which would save no memory. At every ZeRO stage their gradients are whole, summed over
// micro-batches and reduced once a step, by finish(). Their weights stay gathered from begin_step() on.
//
// A step:  begin_step(order); clear_grads(); { begin_backward(last); Gpt::backward() } ...; finish();
// then Optimizer.
#pragma once
#include <functional>
#include <optional>
#include <unordered_map>

#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/axis.h"
#include "llmc/model/gpt.h"
#include "llmc/train/step/pieces.h"
#include "llmc/base/config/sharding.h"

namespace PRECISION {

// Bit-equal to floatX where masters would only be a copy.
inline constexpr bool kMasterIsParam = sizeof(floatX) == sizeof(real);

// An optimizer's state for each weight: a named flat buffer, stored by sharding.state. Plan, offload, save
// and load walk the list of slots.
struct StateSlot {
    const char *name, *planned;    // in checkpoints, and in the memory plan
    bool weights = false;          // the weights in full precision: kept by runs without training as well
    bool of_trailing = true;       // also of the layout's trailing tensors
    real* memory = nullptr;
    std::vector<size_t> at = {};   // start of each bucket in memory; one more at the end. Filled in by Zero

    bool has(const Tensor& t) const { return of_trailing || !t.trailing; }
};
// The place of a slot in the list. REQUIRES: the list has a slot of this name.
size_t slot_named(const std::vector<StateSlot>& slots, std::string_view name);

struct ZeroOptions {
    std::vector<StateSlot> state = {};     // Optimizer::slots()
    Sharding sharding = {};
    std::vector<std::string> trailing = {};        // names of params.h; see layout.h
    bool overlap = true;       // collectives run while the model computes; results are the same
    bool trains = true;
    bool offload = false;      // optimizer state in the host's memory
};

// For tests: what was started and awaited, in order.
struct ZeroEvent {
    enum Kind { StartReduce, WaitReduce, StartGather, WaitGather } kind;
    int bucket;
};

struct Zero {
    Dims d;
    Layout layout;
    Mesh mesh;
    Sharding sharding;
    bool overlap, trains, offload;
    std::function<void()> await_readers = {};      // of offloaded state, before it changes; may be empty

    floatX* params = nullptr;                              // whole, or shards: sharding.weights
    real* grads = nullptr;                                 // whole, or of blocks shards: sharding.grads
    std::vector<StateSlot> state;                          // whole, or shards: sharding.state
    std::vector<ZeroEvent>* events = nullptr;

    static constexpr int kGathered = 2;                    // most blocks whose weights are gathered at once
    static constexpr size_t kExport = 65536;               // most elements of export_tensor()

    Zero(const Dims& dims, const Part& part, const Mesh& mesh, const ZeroOptions& options);
    Zero(const Zero&) = delete;

    void add_weights_to(Arena& arena);
    void add_training_to(Arena& arena, Arena& host);       // gradients and optimizer state
    void add_masters_to(Arena& arena, Arena& host);        // only the slots with weights
    size_t staging_bytes() const;                          // for reductions over the axes used here
    void lend_staging(void* memory, size_t bytes) const;
    size_t tp_staging_bytes() const;                       // and over tp

    // ---- the provider of the model's weights; see model/gpt.h

    EmbedTensors<floatX> embed() const {
        return bind_embed(end_weights(layout.wte), end_weights(layout.embed), d, layout);
    }
    HeadTensors<floatX> head() const { return head_of(end_weights(layout.wte), final(), d); }
    FinalTensors<floatX> final() const { return bind_final(end_weights(layout.final), d, layout); }
    BlockTensors<floatX> block(int l) {
        beat();
        return bind_block(sharding.weights ? gathered(l) : params + start(l), l, d, layout);
    }

    EmbedTensors<real> embed_grads() const {
        return bind_embed(end_grads(layout.wte), end_grads(layout.embed), d, layout);
    }
    HeadTensors<real> head_grads() const { return head_of(end_grads(layout.wte), final_grads(), d); }
    FinalTensors<real> final_grads() const { return bind_final(end_grads(layout.final), d, layout); }
    BlockTensors<real> block_grads(int l) {
        return bind_block(sharding.grads ? buffered_grads(l) : grads + start(l), l, d, layout);
    }

    void done_embed() {}
    void done_head() {}
    void done_final() {}
    void done_block(int l) { if (sharding.grads || last) reduce(layout.block(l)); }

    // ---- steps

    // Before any weights are requested, also to evaluate and generate. order: local blocks in the order of
    // use; the order repeats when more blocks are requested.
    void begin_step(std::vector<int> order);
    void clear_grads();
    void begin_backward(bool is_last) { last = is_last; }      // of the chunk's micro-batches in this step
    void finish();                                             // this rank's shards of gradients are final

    // Where weights are sharded: blocks whose weights are gathered, or on their way.
    int gathered_blocks() const {
        return int(std::count_if(gather_buffers, gather_buffers + kGathered,
                                 [](const Gathered& g) { return g.block >= 0; }));
    }

    // ---- what the optimizer works on

    size_t shard(int b) const { return layout.size(b) / shards(); }         // elements
    real* grad_shard(int b) const;
    // Elements from .. from + count of a bucket, and where the first lies in the flat buffer of its kind.
    struct Extent { size_t from, count, at; };
    Extent stored_weights(int b) const { return stored(b, sharding.weights); }
    Extent stored_state(int b) const { return stored(b, sharding.state); }
    // Elements of e before the trailing tensors.
    size_t leading_count(const Extent& e, int b) const {
        return std::min(e.count, std::max(e.from, layout.leading[size_t(b)]) - e.from);
    }
    Extent stored_state(const StateSlot& slot, int b) const {
        Extent e = stored_state(b);
        if (!slot.of_trailing) e.count = leading_count(e, b);
        e.at = slot.at[size_t(b)];
        return e;
    }
    // The elements that this rank updates: those whose state is here.
    floatX* owned_params(int b) const {
        const Extent weights = stored_weights(b);
        return params + weights.at + (stored_state(b).from - weights.from);
    }
    real* owned_grads(int b) const { return grad_shard(b) - (own_offset(b) - stored_state(b).from); }

    // An update calls before_update(b) and after_update(b) around the update of each bucket b, in order, then
    // end_update().
    void before_update(int b);
    void after_update(int b);
    void finish_gather();                  // awaits a started gather; before other collectives of mesh.shard
    void end_update();

    // Elements of a shard of a bucket, counted from its start.
    struct Run { int bucket; size_t from, count; };
    // The runs of all tensors that keep() accepts, in shard number `index`; neighbours are joined.
    template <class Keep> std::vector<Run> shard_runs(int index, Keep keep) const;
    template <class Keep> std::vector<Run> shard_runs(Keep keep) const {
        return shard_runs(mesh.shard.index, keep);
    }
    // The largest size(runs) of any shard: such a buffer is as large on all ranks of a pipeline stage.
    template <class Keep, class Size> size_t most_of_shards(Keep keep, Size size) const {
        size_t most = 0;
        for (int i = 0; i < mesh.shard.size; i++) most = std::max(most, size(shard_runs(i, keep)));
        return most;
    }
    // Run of the tensor, without padding, that this rank counts in sums over the model. Empty: other ranks
    // count the tensor's elements.
    std::optional<Run> counted_run(const std::string& name) const;
    size_t own_offset(int b) const { return shard(b) * size_t(mesh.shard.index); }

    // The weights in full precision; null: not kept, or equal to params.
    real* master() const {
        for (const StateSlot& slot : state)
            if (slot.weights) return slot.memory;
        return nullptr;
    }
    void weights_changed() { stale = true; }       // call after a write to params

    // ---- weights by coordinates of the whole model: the same calls on every mesh

    // Weights from the table's initialisation: a function of (seed, tensor, index) alone.
    void init_weights(uint64_t seed);

    // `count` elements of the whole tensor of t's name from `first` on, of the masters if kept. import stores
    // this rank's share; export is collective and gives every rank every element.
    void export_tensor(const Tensor& t, size_t first, size_t count, real* out) const;
    void import_tensor(const Tensor& t, size_t first, size_t count, const real* in);

private:
    struct Flight { Pending pending; uint64_t serial = 0; int bucket = -1; };      // serial 0: none
    struct Gathered { floatX* memory = nullptr; int block = -1; };
    struct Held { const Tensor* tensor; std::vector<Piece> pieces, given; };       // given: by export

    size_t shards() const { return size_t(mesh.shard.size); }
    size_t start(int l) const { return layout.start(layout.block(l)); }
    bool is_block(int b) const { return b >= layout.blocks && b < layout.blocks + blocks; }
    int largest(bool of_blocks) const;
    Extent stored(int b, bool sharded) const {
        if (sharded) return {own_offset(b), shard(b), layout.start(b) / shards()};
        return {0, layout.size(b), layout.start(b)};
    }
    void place_slot(StateSlot& slot) const;
    void add_slot_to(Arena& arena, Arena& host, StateSlot& slot);
    size_t stored_size(bool sharded) const { return sharded ? layout.size() / shards() : layout.size(); }
    bool buffers_grads(int b) const { return sharding.grads && is_block(b); }
    size_t ends_start(int b) const;
    size_t packed_count() const;
    floatX* end_weights(int b) const {
        if (b < 0) return nullptr;
        return sharding.weights ? ends + ends_start(b) : params + layout.start(b);
    }
    real* end_grads(int b) const { return b < 0 ? nullptr : grads + grads_at[size_t(b)]; }

    floatX* gathered(int l);
    void fetch(int l);                     // starts to gather, into the buffer that is not in use
    int gathered_index(int l) const {
        if (gather_buffers[0].block == l) return 0;
        return gather_buffers[1].block == l ? 1 : -1;
    }
    real* buffered_grads(int l);
    void reduce(int b);
    void take_off(Flight& flight, ZeroEvent::Kind kind, int b, Pending pending);
    void finish_reduce();
    void sum_over_tp();
    void gather_bucket(int b);             // gradients where all ranks update all, else weights
    void log(ZeroEvent::Kind kind, int b) { if (events) events->push_back({kind, b}); }
    void store(const Tensor& t, size_t first, size_t count, const real* values);   // as stored here

    int blocks;
    std::vector<size_t> grads_at;          // start of each bucket in `grads`; one more at the end
    Flight gather, reduction;              // at most one of each; awaited in the order in which they started
    uint64_t started = 0;
    bool last = false;
    int reduced = 0;                       // blocks, for the last time in this step

    Gathered gather_buffers[kGathered];             // where weights are sharded
    floatX* ends = nullptr;
    int in_use = 0;
    bool stale = true;                     // gathered weights are older than the shards
    std::vector<int> order;
    size_t position = 0;

    real* grad_buffers[2] = {};            // where gradients are sharded: whole gradients of a block
    int filling = 0, filled_block = -1;
    std::vector<bool> begun;               // per bucket: its shard holds gradients of this step
    real* result = nullptr;                // of the reduction in flight
    bool completes = false;                // it is the block's last in this step
    std::vector<Run> tp_runs;              // gradients that are partial over tp
    real* packed = nullptr;
    std::unordered_map<std::string, Held> held;
};

template <class Keep> std::vector<Zero::Run> Zero::shard_runs(int index, Keep keep) const {
    std::vector<Run> runs;
    for (size_t i = 0; i < layout.tensors.size(); i++) {
        const Tensor& t = layout.tensors[i];
        if (!keep(t)) continue;
        const bool ends_bucket = i + 1 == layout.tensors.size() || layout.tensors[i + 1].bucket != t.bucket;
        const size_t base = layout.start(t.bucket) + shard(t.bucket) * size_t(index);   // of the shard
        const size_t end =
            ends_bucket ? layout.start(t.bucket) + layout.size(t.bucket) : layout.tensors[i + 1].start;
        const size_t from = std::max(t.start, base), to = std::min(end, base + shard(t.bucket));
        if (from >= to) continue;
        const bool joins = !runs.empty() && runs.back().bucket == t.bucket &&
                           runs.back().from + runs.back().count == from - base;
        if (joins) runs.back().count += to - from;
        else runs.push_back({t.bucket, from - base, to - from});
    }
    return runs;
}

}  // namespace PRECISION

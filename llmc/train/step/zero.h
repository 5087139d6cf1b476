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
// group_of(bucket) has the ranks that share a bucket, home_of(bucket, kind) the elements that lie here, and
// where. Reduced means: this rank's shard holds the sum over the data-parallel ranks. At every ZeRO stage the
// norm is taken of the same shards. The ends of the model (wte, the rest of the embedding, the final group)
// are not sharded within a step, which would save no memory. At every ZeRO stage their gradients are whole,
// summed over micro-batches and reduced once a step, by finish(). Their weights stay gathered from
// begin_step() on.
//
// A step:  begin_step(order); clear_grads(); { begin_backward(last); Gpt::backward() } ...; finish();
// then Optimizer.
#pragma once
#include <functional>
#include <unordered_map>

#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/axis.h"
#include "llmc/model/gpt.h"
#include "llmc/train/step/pieces.h"
#include "llmc/base/config/sharding.h"

namespace PRECISION::inline step {

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

// What there is of each bucket: the three words of Sharding.
enum class Kept : uint8_t { Weights, Gradients, State };

// The elements of a bucket that lie here, in which memory, and where the first is in the flat buffer.
struct Home {
    Interval elements;
    size_t at;
    bool on_host;
    size_t place(size_t element) const { return at + element - elements.begin; }   // REQUIRES: it lies here
};

// Each rank of `shard` has one of the equal shards of a bucket, each rank of `replica` the same shard.
struct BucketGroup { const Axis &shard, &replica; };

// Some elements of a bucket.
struct Run { int bucket; Interval elements; };

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
        return bind_embed(end_weights(layout.wte), end_weights(layout.embed), layout);
    }
    HeadTensors<floatX> head() const { return head_of(end_weights(layout.wte), final(), d); }
    FinalTensors<floatX> final() const { return bind_final(end_weights(layout.final), layout); }
    BlockTensors<floatX> block(int l) {
        beat();
        return bind_block(sharding.weights ? gathered(l) : weight(layout.block(l), 0), l, layout);
    }

    EmbedTensors<real> embed_grads() const {
        return bind_embed(end_grads(layout.wte), end_grads(layout.embed), layout);
    }
    HeadTensors<real> head_grads() const { return head_of(end_grads(layout.wte), final_grads(), d); }
    FinalTensors<real> final_grads() const { return bind_final(end_grads(layout.final), layout); }
    BlockTensors<real> block_grads(int l) {
        return bind_block(sharding.grads ? buffered_grads(l) : gradient(layout.block(l), 0), l, layout);
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

    // An update calls before_update(b) and after_update(b) around the update of each bucket b, in order, then
    // end_update().
    void before_update(int b);
    void after_update(int b);
    void finish_gather();                  // awaits a started gather; before other collectives of its group
    void end_update();

    // Where weights are sharded: blocks whose weights are gathered, or on their way.
    int gathered_blocks() const {
        return int(std::count_if(gather_buffers, gather_buffers + kGathered,
                                 [](const Gathered& g) { return g.block >= 0; }));
    }

    // ---- the place of a bucket

    BucketGroup group_of(int /*bucket*/) const { return {mesh.shard, mesh.replica}; }
    Home home_of(int b, Kept kind) const;
    Home home_of(int b, const StateSlot& slot) const;

    Interval own(int b) const { return shard_of(b, group_of(b).shard.index); }     // this rank's shard
    size_t shard(int b) const { return own(b).count; }
    // The elements that this rank updates: their state is here.
    Interval updated(int b) const { return home_of(b, Kept::State).elements; }

    // REQUIRES: the element lies here.
    floatX* weight(int b, size_t element) const { return params + home_of(b, Kept::Weights).place(element); }
    real* gradient(int b, size_t element) const { return grads + home_of(b, Kept::Gradients).place(element); }
    real* state_at(const StateSlot& slot, int b, size_t element) const {
        return slot.memory + home_of(b, slot).place(element);
    }
    floatX* weight_shard(int b) const { return weight(b, own(b).begin); }
    real* grad_shard(int b) const { return gradient(b, own(b).begin); }

    // ---- owners: several ranks have equal elements, and one of them owns an element. The owner counts the
    // element in sums over the model, gives it to other ranks and saves it.

    // Of replicas the first owns its whole shard, or each a part of it.
    enum class Replicas { First, Each };
    Interval owned(const Tensor& t, Replicas replicas) const;      // of the tensor, without padding
    // What this rank owns, First; with padding, as neighbours are joined.
    std::vector<Run> owned_runs() const;
    // The largest size(owned_runs()) of any rank of a pipeline stage, whose buffers are equally large.
    size_t most_owned(size_t (*size)(const std::vector<Run>&)) const;
    // This rank's part of a tensor of the whole model; null: other stages have it.
    const Tensor* tensor_here(const std::string& name) const;

    // The weights in full precision; null: not kept, or equal to params.
    const StateSlot* masters() const {
        const auto slot = std::ranges::find(state, true, &StateSlot::weights);
        return slot != state.end() && slot->memory ? &*slot : nullptr;
    }
    void weights_changed() { stale = true; }       // call after a write to params

    // `count` elements of the whole tensor of t's name from `first` on, of the masters if kept. All ranks
    // together; every rank gets every element.
    void export_tensor(const Tensor& t, size_t first, size_t count, real* out) const;

private:
    struct Flight { Pending pending; uint64_t serial = 0; int bucket = -1; };      // serial 0: none
    struct Gathered { floatX* memory = nullptr; int block = -1; };
    using Keeps = std::function<bool(const Tensor&)>;

    bool is_block(int b) const { return b >= layout.blocks && b < layout.blocks + blocks; }
    size_t largest_block() const;
    Interval shard_of(int b, int index) const;
    Interval kept(int b, Kept kind) const;
    bool owns(const Tensor& t, int tp) const;      // the rank of this index on tp, where it has the elements
    // The runs of all tensors that keep() accepts, in the shards of this index; neighbours are joined.
    std::vector<Run> shard_runs(int index, const Keeps& keep) const;
    size_t most_of_shards(const Keeps& keep, size_t (*size)(const std::vector<Run>&)) const;
    void place_slot(StateSlot& slot) const;
    void add_slot_to(Arena& arena, Arena& host, StateSlot& slot);
    size_t ends_start(int b) const;
    size_t packed_count() const;
    floatX* end_weights(int b) const {
        if (b < 0) return nullptr;
        return sharding.weights ? ends + ends_start(b) : weight(b, 0);
    }
    real* end_grads(int b) const { return b < 0 ? nullptr : gradient(b, 0); }

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

    int blocks;
    std::vector<size_t> starts[3];         // of each kind: where each bucket begins; one more at the end
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
    std::unordered_map<std::string, const Tensor*> by_name;
};

// All elements by export_tensor().
std::vector<real> whole_tensor(const Zero& zero, const Tensor& t);

}  // namespace PRECISION::step

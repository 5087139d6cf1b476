// The shards of weights, gradients and optimizer state: what of each bucket of the buffers lies here, and
// who owns it, and in which memory. The three words of Sharding decide, by ZeRO stage:
//
//     ZeRO    weights   gradients   state
//     0       whole     whole       whole
//     1       whole     whole       shards
//     2       whole     shards      shards
//     3       shards    shards      shards
//
// group_of(bucket) has the ranks that share a bucket, home_of(bucket, kind) the elements that lie here, and
// where. At every ZeRO stage the norm is taken of the same shards. Gradients of the ends of the model (wte,
// the rest of the embedding, the final group) are whole, as shards would save no memory.
//
// memory.offload = weights: weights and gradients of blocks lie in the host's memory (HostedBlocks),
// and come to the device for each use. From ZeRO 1 on weights and gradients there are shards.
#pragma once
#include <functional>
#include <unordered_map>

#include "llmc/base/config/sharding.h"
#include "llmc/comm/axis.h"
#include "llmc/model/linear.h"
#include "llmc/ops/arena.h"
#include "llmc/ops/ops.h"
#include "llmc/train/step/pieces.h"

namespace PRECISION::inline step {

// Bit-equal to floatX where masters would only be a copy.
inline constexpr bool kMasterIsParam = sizeof(floatX) == sizeof(real);

// An optimizer's state for each weight: a named flat buffer, stored by sharding.state. Plan, offload, save
// and load walk the list of slots.
struct StateSlot {
    const char *name, *planned;    // in checkpoints, and in the memory plan
    bool weights = false;          // the weights in full precision: kept by runs without training as well
    bool of_trailing = true;       // also of the layout's trailing tensors
    DType dtype = dtype_of<real>;
    std::byte* memory = nullptr;
    std::vector<size_t> at = {};   // start of each bucket in memory; one more at the end. Filled in by Shards

    bool has(const Tensor& t) const { return of_trailing || !t.trailing; }
    size_t bytes(size_t elements) const { return elements * size_of(dtype); }
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
inline size_t elements_of(const std::vector<Run>& runs) {
    size_t count = 0;
    for (const Run& run : runs) count += run.elements.count;
    return count;
}

// The layout of a rank whose buckets are cut into shards, and each shard into equal slices, one for each of
// its replicas. trailing: names of params.h of the tensors that may lack some of an optimizer's state. Their
// order leaves most of them uncut: one rank owns each of these. coded: names of those with FP8 codes.
Layout sharded_layout(const Dims& d, const Part& part, size_t shards,
                      const std::vector<std::string>& trailing, size_t replicas = 1,
                      const std::vector<std::string>& coded = {});

struct ShardOptions {
    std::vector<StateSlot> state = {};     // Optimizer::slots()
    Sharding sharding = {};
    std::vector<std::string> trailing = {}, coded = {};        // see sharded_layout()
    bool trains = true;
    bool offload = false;      // optimizer state in the host's memory
    bool hosts_blocks = false; // weights and gradients of blocks, too
};

struct Shards {
    Dims d;
    Layout layout;
    Mesh mesh;
    Sharding sharding;
    bool trains, offload, hosts_blocks;
    std::function<void()> await_readers = {};      // of offloaded state, before it changes; may be empty

    floatX* params = nullptr;                              // whole, or shards: sharding.weights
    real* grads = nullptr;                                 // whole, or of blocks shards: sharding.grads
    floatX* host_params = nullptr;                         // of blocks that lie in the host's memory
    real* host_grads = nullptr;
    std::vector<StateSlot> state;                          // whole, or shards: sharding.state
    bool stale = true;                                     // gathered copies of weights are older than params
    uint64_t version = 1;                                  // of params: rises with each change

    Shards(const Dims& dims, const Part& part, const Mesh& mesh, const ShardOptions& options);
    Shards(const Shards&) = delete;

    void add_weights_to(Arena& arena, Arena& host);
    void add_gradients_to(Arena& arena, Arena& host);
    void add_state_to(Arena& arena, Arena& host);
    void add_masters_to(Arena& arena, Arena& host);        // only the slots with weights

    // ---- the place of a bucket

    bool is_block(int b) const { return b >= layout.blocks && b < layout.block(int(layout.block_at.size())); }
    BucketGroup group_of(int /*bucket*/) const { return {mesh.shard, mesh.replica}; }
    bool on_host(int b) const { return hosts_blocks && is_block(b); }      // its weights and gradients
    Home home_of(int b, Kept kind) const;
    Home home_of(int b, const StateSlot& slot) const;

    Interval own(int b) const { return shard_of(b, group_of(b).shard.index); }     // this rank's shard
    size_t shard(int b) const { return own(b).count; }
    // The elements that this rank updates: their state is here.
    Interval updated(int b) const { return home_of(b, Kept::State).elements; }

    // REQUIRES: the element lies here.
    floatX* weight(int b, size_t element) const {
        return (on_host(b) ? host_params : params) + home_of(b, Kept::Weights).place(element);
    }
    real* gradient(int b, size_t element) const {
        return (on_host(b) ? host_grads : grads) + home_of(b, Kept::Gradients).place(element);
    }
    std::byte* state_at(const StateSlot& slot, int b, size_t element) const {
        return slot.memory + slot.bytes(home_of(b, slot).place(element));
    }
    floatX* weight_shard(int b) const { return weight(b, own(b).begin); }
    real* grad_shard(int b) const { return gradient(b, own(b).begin); }
    // Elements of all buckets that lie here, on the host or on the device.
    size_t count_of(Kept kind, bool host) const { return counts[size_t(kind)][host]; }

    // The weights in full precision; null: not kept, or equal to params.
    const StateSlot* masters() const {
        const auto slot = std::ranges::find(state, true, &StateSlot::weights);
        return slot != state.end() && slot->memory ? &*slot : nullptr;
    }
    void weights_changed() {                               // call after a write to params
        stale = true;
        version++;
    }

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

    // The runs of tensors that keep() accepts, in this rank's shards. Neighbours are joined.
    // most_of_shards(): the largest size() of such runs; each rank's shards have their own.
    using Keeps = std::function<bool(const Tensor&)>;
    std::vector<Run> own_runs(const Keeps& keep) const;
    size_t most_of_shards(const Keeps& keep, size_t (*size)(const std::vector<Run>&)) const;

    // Places where tests flip a bit (comm/flip_here.h): weights here, then the state, tensor by tensor;
    // gradients of a bucket, whole.
    void flip_state_if_asked() const;
    void flip_gradients_if_asked(int bucket, const real* whole) const;

private:
    Interval shard_of(int b, int index) const;
    Interval kept(int b, Kept kind) const;
    bool owns(const Tensor& t, int tp) const;      // the rank of this index on tp, where it has the elements
    std::vector<Run> runs_in(const Keeps& keep, const std::function<Interval(int b)>& elements) const;
    void place_slot(StateSlot& slot) const;
    void add_slot_to(Arena& arena, Arena& host, StateSlot& slot);

    std::vector<size_t> starts[3];         // of each kind: where each bucket begins in its memory
    size_t counts[3][2] = {};              // of each kind: on the device, on the host
    std::unordered_map<std::string, const Tensor*> by_name;
};

// Blocks as FP8 codes where weights lie in shards: a rank codes its part of a block's matrices after each
// update, by the largest elements over all ranks, and a gathered block is codes. The rest of a block (biases,
// gains) lies on the first rank of a group, which sends those of all blocks; they stay until the next update.
struct CodedShards {
    const Shards* shards = nullptr;     // null: blocks are gathered in floatX
    struct Block {
        CodedPlace place;
        int bucket;
        size_t codes_at, rest_at;       // in codes and rest
    };
    std::vector<Block> blocks;          // of this rank
    uint8_t* codes;                     // of each block this rank's shard
    floatX* rest;                       // of each block the elements before Layout::coded
    float *parts, *gathered;            // amaxes: (matrices, ops::kFp8Parts) here, (tp, shards, matrices)
    float *amaxes, *inverses;           // (matrices)
    uint64_t version = 0;               // of the weights that were coded

    // Without weights in shards, matrices with codes, or a small rest: as by default.
    CodedShards() = default;
    explicit CodedShards(const Shards& shards);
    void add_to(ArenaOf weights);
    void refresh();                     // codes the shards of all blocks, if weights have changed
    const uint8_t* shard(int l) const { return codes + blocks[size_t(l)].codes_at; }
    BlockTensors<floatX> rest_of(int l) const { return of(l).place.rest(rest + of(l).rest_at); }
    BlockCodes codes_of(int l, uint8_t* bucket) const {
        return of(l).place.codes(bucket, inverses + size_t(l) * kCodedMatrices);
    }

private:
    const Block& of(int l) const { return blocks[size_t(l)]; }
    size_t count() const { return blocks.size() * kCodedMatrices; }
    size_t rest_count() const {
        return blocks.back().rest_at + shards->layout.coded[size_t(blocks.back().bucket)];
    }
    // f(number of the matrix, its weights here, where their codes lie, how many)
    template <class F> void for_parts(F f) const {
        size_t matrix = 0;
        for (const Block& block : blocks)
            for (const Interval& all : block.place.matrices) {
                const Interval own = shards->own(block.bucket), here = common(all, own).from(own.begin);
                const floatX* const weights = shards->weight_shard(block.bucket);
                if (!here.empty()) f(matrix, weights + here.begin, block.codes_at + here.begin, here.count);
                matrix++;
            }
    }
    void merge();
};

// Blocks whose weights and gradients lie in the host's memory (memory.offload = weights), and their way to
// and from the device. Copies run on their lanes beside the ops; a ticket tells when they have come.
//
//     weights      whole blocks into a buffer of Zero; from shards: the shard here, from which Zero gathers
//     gradients    complete, from this rank's shard of the sum: whole, where each rank updates all
//
// While one block computes, the next comes and the one before leaves.
struct HostedBlocks {
    const Shards* shards = nullptr;             // null: blocks lie on the device

    explicit HostedBlocks(const Shards& of) : shards(of.hosts_blocks ? &of : nullptr) {}
    HostedBlocks(const HostedBlocks&) = delete;
    explicit operator bool() const { return shards; }
    bool of_shards() const { return shards && shards->sharding.weights; }

    void add_weights_to(Arena& arena);
    void add_gradients_to(Arena& arena);

    // ---- weights. Of buffer 0 or 1 of Zero
    void bring(int l, floatX* whole, int buffer);       // starts to copy a whole block
    void await(int buffer) const { ops::await_copies(came[buffer]); }
    // Starts to copy the shard of block l, if it is not here. REQUIRES: the gather of the block before the
    // last is over.
    void request(int l);
    const floatX* shard(int l);                 // copied; until the next but one is requested
    void forget() { requested[0] = requested[1] = -1; }       // weights have changed

    // ---- gradients: of odd and even blocks in turn
    real* sum(int l) const { return sums[l % 2]; }      // (shard), where gradients are sharded
    void await_left(int l) const { ops::await_copies(left[l % 2]); }    // later ops may write there
    void leave(int l, const real* from);        // from: what the host keeps of the block
    void await_all_left() const;

private:
    size_t largest_shard() const;
    floatX* shard_of[2] = {};                   // of the blocks in `requested`
    int requested[2] = {-1, -1}, next = 0;
    real* sums[2] = {};
    ops::CopyTicket came[2], left[2];
};

}  // namespace PRECISION::step

#include "llmc/train/save/rank_state.h"

#include <map>

namespace PRECISION::inline saves {

namespace {

struct StateArray {
    const char *name, *dtype;
    size_t element;
    std::byte* memory;
    std::byte* on_host = nullptr;          // of the weights that lie in the host's memory
    const StateSlot* slot = nullptr;       // null: lies as the weights do
};

std::vector<StateArray> arrays_of(const Shards& shards) {
    std::vector<StateArray> arrays;
    arrays.push_back({kMasterIsParam ? "master" : "weights", name_of(dtype_of<floatX>), sizeof(floatX),
                      reinterpret_cast<std::byte*>(shards.params),
                      reinterpret_cast<std::byte*>(shards.host_params)});
    for (const StateSlot& slot : shards.state) {      // at step 0 every slot but the masters is zero
        if (!shards.trains && !slot.weights) continue;
        arrays.push_back({slot.name, name_of(slot.dtype), size_of(slot.dtype), slot.memory, nullptr, &slot});
    }
    return arrays;
}

Home home_of(const Shards& shards, const StateArray& array, int bucket) {
    return array.slot ? shards.home_of(bucket, *array.slot) : shards.home_of(bucket, Kept::Weights);
}

}  // namespace

std::vector<int64_t> saved_shape(const Param& p) {
    if (p.whole_cols == 1) return {p.whole_rows};
    return {p.whole_rows, p.whole_cols};
}

RankShare share_to_save(const Shards& shards) {
    RankShare share;
    for (const StateArray& array : arrays_of(shards))
        for (const Tensor& t : shards.layout.tensors) {
            if (array.slot && !array.slot->has(t)) continue;
            const Home home = home_of(shards, array, t.bucket);
            const size_t start = shards.layout.in_bucket(t).begin;
            for (const Piece& p : pieces_of(t, shards.owned(t, Shards::Replicas::Each))) {
                SavedPiece s{.tensor = t.name, .array = array.name, .dtype = array.dtype,
                             .shape = saved_shape(t.param), .start = {int64_t(p.row)},
                             .extent = {int64_t(p.rows)}, .file = {}};
                if (t.param.whole_cols > 1) {
                    s.start.push_back(int64_t(p.col));
                    s.extent.push_back(int64_t(p.cols));
                }
                share.bytes += s.bytes();
                if (home.on_host) share.offloaded += s.bytes();
                share.pieces.push_back(std::move(s));
                share.on_host.push_back(home.on_host);
                share.start.push_back(home.place(start + p.at));
            }
        }
    return share;
}

std::vector<std::span<const std::byte>> RankShare::data(const Shards& shards) const {
    std::map<std::string, StateArray> arrays;
    for (const StateArray& a : arrays_of(shards)) arrays.emplace(a.name, a);
    std::vector<std::span<const std::byte>> spans;
    for (size_t i = 0; i < pieces.size(); i++) {
        const StateArray& a = arrays.at(pieces[i].array);
        const std::byte* const memory = on_host[i] && a.on_host ? a.on_host : a.memory;
        spans.emplace_back(memory + start[i] * a.element, size_t(pieces[i].bytes()));
    }
    return spans;
}

}  // namespace PRECISION::saves

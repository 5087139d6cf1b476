// Where the state of a rank comes from: a checkpoint, another program's model, random numbers, or memory with
// what ranks save. restore() reads them all, on any mesh.
//
// A source has arrays of whole tensors, by the names of manifest.h: "master", the weights in full precision,
// and what else was saved.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "llmc/io/files/manifest.h"
#include "llmc/train/save/formats/format.h"
#include "llmc/train/step/shards.h"

namespace PRECISION::inline saves {

struct StateSource {
    // Reads a rectangle of an array of t, row by row. Ends where the array is missing, has another shape than
    // t, or holds weights that are not finite.
    std::function<void(const Tensor& t, const char* array, const Piece& some, real* out)> read;
    // Whether an array of t is there: "weights", as a step has rounded them, or "master". Null: "master" is.
    std::function<bool(const Tensor& t, const char* array)> has = nullptr;
};

// What ranks of any mesh have saved. from: a name for messages. bytes_of: the address of some bytes of a
// piece, valid until the next call. REQUIRES: the pieces outlive the source.
StateSource saved_state(const std::string& from, std::span<const SavedPiece> pieces,
                        std::function<const std::byte*(const SavedPiece& p, Interval bytes)> bytes_of);
// folder: of a checkpoint with this manifest, which outlives the source. wpe may have more positions than
// needed.
StateSource checkpoint_state(const std::string& folder, const Manifest& manifest);
StateSource foreign_weights(const ForeignModel& foreign);       // which outlives the source
// The initialisation of the table of parameters: a function of (seed, tensor, index) alone.
StateSource random_weights(const Dims& d, uint64_t seed);

// Sets what lies here of the weights, and of the masters where the rank keeps them. moments: also of the
// other slots of the optimizer.
void restore(Shards& shards, const StateSource& from, bool moments = false);
// The weights of a checkpoint's folder or of another program's model. All ranks together.
void load_weights(Shards& shards, const std::string& init);
// Sets one tensor of the whole model. values: of the whole tensor.
void set_tensor(Shards& shards, const Tensor& whole, const std::vector<real>& values);

}  // namespace PRECISION::saves

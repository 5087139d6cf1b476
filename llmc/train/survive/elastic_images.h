// Room train/survive: the state of a rank in memory, from which training goes on when a rank is lost.
// train_gpt.cu calls it in each step. The room knows pieces of tensors, as train/save does; agents keep their
// bytes (comm/agents). It does not know why a rank was lost.
//
// Images of this rank's share of the state, in memory that outlives the process (run.elastic): one after each
// step, with the agent of this rank (comm/agents/member.h). A rank that joins restores the newest step of
// which all images are there, as it restores a checkpoint.
#pragma once
#include "llmc/train/save/checkpoint.h"

namespace PRECISION::inline survive {

struct ElasticImages {
    // Without run.elastic nothing is kept.
    ElasticImages(const Config& cfg, const Checkpoint& checkpoint);

    // Keeps the state after state.step. Call when the rows of this step are written: none is written twice.
    // leaves: all ranks end this generation here, as others join. Throws Lost then.
    void keep(const RunState& state, bool leaves);
    // Waits until the image survives the loss of this node. Call before a collective of all ranks in each
    // step: what follows it then never has to be computed again after the loss of one node.
    void await_safe() const;

private:
    const Checkpoint& checkpoint_;
    std::vector<uint64_t> at_;              // of each piece
};

}  // namespace PRECISION::survive

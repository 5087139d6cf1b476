// Room train/survive: the state of a rank in memory, from which training goes on when a rank is lost.
// train_gpt.cu calls it in each step. The room knows pieces of tensors, as train/save does; agents keep their
// bytes (comm/agents). It does not know why a rank was lost.
//
// Images of this rank's share of the state, in memory that outlives the process (run.elastic): one after each
// step, with the agent of this rank (comm/agents/member.h). A rank that joins restores the newest step of
// which all images are there, as it restores a checkpoint.
//
// With train.rollback agents keep the images of saves::Images as well. A rank that joins restores these
// first: training goes back to the same image as a run that lost no rank.
#pragma once
#include <map>
#include <span>

#include "llmc/train/save/checkpoint.h"

namespace PRECISION::inline survive {

struct ElasticImages {
    // Without run.elastic nothing is kept.
    ElasticImages(const Config& cfg, Checkpoint& checkpoint) : cfg_(cfg), checkpoint_(checkpoint) {}
    ElasticImages(const ElasticImages&) = delete;
    ~ElasticImages();

    // Checkpoint's load_or_init(), and the images of train.rollback that belong to the origin.
    RunState load_or_init(const std::optional<Origin>& origin, const Contents& contents);
    // Keeps the state after state.step. Call when the rows of this step are written: none is written twice.
    // leaves: all ranks end this generation here, as others join. Throws Lost then.
    void keep(const RunState& state, bool leaves);
    // Waits until the image survives the loss of this node. Call before a collective of all ranks in each
    // step: what follows it then never has to be computed again after the loss of one node.
    void await_safe() const;

private:
    const Config& cfg_;
    Checkpoint& checkpoint_;
    std::vector<uint64_t> at_;              // of each piece
    std::span<std::byte> memory_;           // of all images; pinned, so that a copy keeps no host
    ops::CopyTicket ticket_;
    int64_t last_ = -1;                     // number of the last image
    std::map<int64_t, int64_t> numbers_;    // of the newest image of a step
    void open();
    void put(const RunState& state, int64_t number, const std::array<int64_t, 2>& needs);
    std::array<int64_t, 2> needs(int64_t before);
};

}  // namespace PRECISION::survive

#include "llmc/train/survive/elastic_images.h"

#include "llmc/base/guard/generation.h"
#include "llmc/comm/agents/member.h"

namespace PRECISION::inline survive {

ElasticImages::ElasticImages(const Config& cfg, const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
    if (!member() || cfg.train.steps == 0) return;
    Manifest head = checkpoint.manifest();
    head.pieces = checkpoint.share.pieces;
    uint64_t bytes = 0;
    for (SavedPiece& p : head.pieces) {
        p.file = std::to_string(member()->seated.rank);
        p.at = bytes;
        at_.push_back(bytes);
        bytes += p.bytes();
    }
    member()->open_images(bytes, packed(head));
}

void ElasticImages::keep(const RunState& state, bool leaves) {
    if (!member()) return;
    std::byte* const to = member()->image(state.step);
    const auto data = checkpoint_.share.data(checkpoint_.shards);
    for (size_t i = 0; i < data.size(); i++)
        ops::start_copy_to_host(to + at_[i], data[i].data(), data[i].size());
    ops::finish_copies();
    member()->commit(state.step, checkpoint_.state_text(state));
    if (leaves) leave_generation();
}

void ElasticImages::await_safe() const {
    if (member()) member()->await_safe();
}

}  // namespace PRECISION::survive

#include "llmc/train/survive/elastic_images.h"

#include "llmc/base/guard/generation.h"
#include "llmc/comm/agents/member.h"

namespace PRECISION::inline survive {

void ElasticImages::open() {
    Manifest head = checkpoint_.manifest();
    head.pieces = checkpoint_.share.pieces;
    uint64_t bytes = 0;
    for (SavedPiece& p : head.pieces) {
        p.file = std::to_string(member()->seated.rank);
        p.at = bytes;
        at_.push_back(bytes);
        bytes += p.bytes();
    }
    const int places = image_places(cfg_.train.rollback.every > 0, cfg_.run.check_every > 0);
    memory_ = member()->open_images(bytes, places, packed(head));
    ops::pin(memory_.data(), memory_.size());
}

ElasticImages::~ElasticImages() {
    if (!memory_.empty()) ops::unpin(memory_.data(), memory_.size());
}

RunState ElasticImages::load_or_init(const std::optional<Origin>& origin, const Contents& contents) {
    const RunState state = checkpoint_.load_or_init(origin, contents);
    if (!member() || cfg_.train.steps == 0) return state;
    open();
    const bool restores = origin && origin->bytes_of;
    last_ = (restores ? origin->number : state.step) - 1;
    if (!restores || origin->with.empty()) return state;
    for (const Origin& image : origin->with) {
        checkpoint_.restore_from(image);
        checkpoint_.images.keep(image.state(), false);
        put(image.state(), image.number, {kNeverRestored, kNeverRestored});
    }
    checkpoint_.restore_from(*origin);
    return state;
}

// The numbers of the images before this step that train.rollback may go back to.
std::array<int64_t, 2> ElasticImages::needs(int64_t before) {
    std::array<int64_t, 2> numbers = kNeedsNone;
    std::map<int64_t, int64_t> kept;
    size_t count = 0;
    for (const int64_t step : checkpoint_.images.steps())
        if (step < before) kept[step] = numbers[count++] = numbers_.at(step);
    numbers_ = kept;
    return numbers;
}

void ElasticImages::put(const RunState& state, int64_t number, const std::array<int64_t, 2>& needs) {
    std::byte* const to = member()->image(number, needs);
    const auto data = checkpoint_.share.data(checkpoint_.shards);
    for (size_t i = 0; i < data.size(); i++)
        ops::start_copy_to_host(to + at_[i], data[i].data(), data[i].size());
    ops::mark_copies(ticket_, CopyLane::ToHost);
    ops::host_awaits_copies(ticket_);
    member()->commit(checkpoint_.state_text(state));
    numbers_[state.step] = number;
}

void ElasticImages::keep(const RunState& state, bool leaves) {
    if (!member()) return;
    put(state, ++last_, needs(state.step));
    if (leaves) leave_generation(true);
}

void ElasticImages::await_safe() const {
    if (member()) member()->await_safe();
}

}  // namespace PRECISION::survive

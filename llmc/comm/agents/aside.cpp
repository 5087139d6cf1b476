// What the controller puts aside: places of ranks that are slow.
#include "llmc/base/check.h"
#include "llmc/comm/agents/controller.h"

inline namespace agents {

void Controller::slow(const Message& m, double now) {
    const SlowRank s = m.head<SlowRank>();
    if (state != State::Running || s.generation != generation || s.rank < 0 || s.rank >= world_now()) return;
    slow_[s.rank] = s.factor;
    replace_slow(now);
}

// Slots without a rank that have not been put aside.
int Controller::free_slots() const {
    std::set<Slot> taken = aside_;
    for (const Seat& s : seats_) taken.insert({s.agent, s.slot});
    int free = 0;
    for (const auto& [number, agent] : agents_)
        for (int64_t slot = 0; slot < agent.hello.slots; slot++) free += !taken.contains({number, slot});
    return free;
}

// Ranks that are slow move to free slots after the step that is computed: nothing is computed twice. A rank
// without a free slot waits for an agent that joins.
void Controller::replace_slow(double now) {
    if (state != State::Running || !finished_.empty()) return;
    int free = free_slots();
    bool any = false;
    for (auto at = slow_.begin(); at != slow_.end() && free > 0; at = slow_.erase(at), free--) {
        const Seat& seat = seats_[size_t(at->first)];
        aside_.insert({seat.agent, seat.slot});
        const std::string cause = fmt::format("was {:.1f} times slower than the ranks beside it", at->second);
        lose_rank(at->first, cause, now);
        any = true;
    }
    if (any) tell(Say::Leave, bytes_of(Generation{generation}));
}

}  // namespace agents

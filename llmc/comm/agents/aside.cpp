// What the controller puts aside: slots of ranks that are slow, agents whose bits are wrong, images of these.
#include <algorithm>
#include <utility>

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

bool Controller::may_sit(const Seat& seat) const {
    const auto found = agents_.find(seat.agent);
    return found != agents_.end() && seat.slot < found->second.hello.slots &&
           !aside_.contains({seat.agent, seat.slot});
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

// Every rank says the same, and then leaves the generation: no agent is ready before its ranks have said so.
void Controller::corrupt(const Message& m, double now) {
    const CorruptRank c = m.head<CorruptRank>();
    const bool now_known = state == State::Running || state == State::Stopping;
    if (!now_known || c.bound.generation != generation || c.rank < 0 || c.rank >= world_now()) return;
    if (!c.sure) return end(kExitRestart, "silent data corruption, and no majority says where");
    lose_rank(c.rank, "", now);
    LostRank& lost = *std::ranges::find(losses_, c.rank, &LostRank::rank);
    if (std::exchange(lost.corrupt, true)) return;
    lost.cause = c.what;
    const Seat seat = seats_[size_t(c.rank)];
    if (const auto found = agents_.find(seat.agent); found != agents_.end()) found->second.hello.slots = 0;
    say(seat.agent, Say::Aside, "");
    bounds_.push_back(c.bound);
    tell(Say::Forget, bytes_of(c.bound));
    rules.note(fmt::format("the agent on {} with rank {} is put aside: no rank runs there any more",
                           word_text(seat.host), c.rank));
    if (most_ranks() < rules.least)
        return end(kExitRestart, fmt::format("{} ranks have a slot on other agents, and at least {} train",
                                             slots_here(), rules.least));
    if (state == State::Running) stop(now);
}

// Images that no agent at fault holds, where there are any.
Restorable Controller::restorable() const {
    std::map<int64_t, std::vector<Held>> held, sound;
    for (const auto& [number, agent] : agents_)
        for (const Held& h : agent.held) {
            const auto beyond = [&](const ImageBound& b) { return !b.holds(h.generation, h.step); };
            if (std::ranges::any_of(bounds_, beyond)) continue;
            held[number].push_back(h);
            if (agent.hello.slots > 0) sound[number].push_back(h);
        }
    const Restorable of_all = newest_images(held, begun_), of_sound = newest_images(sound, begun_);
    return of_all.step > of_sound.step ? of_all : of_sound;
}

}  // namespace agents

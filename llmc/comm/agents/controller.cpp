#include "llmc/comm/agents/controller.h"

#include <algorithm>

#include "llmc/base/check.h"

inline namespace agents {

void Controller::tell(Say kind, const std::string& bytes) {
    for (const auto& [number, agent] : agents_) say(number, kind, bytes);
}

// ---------------------------------------------------------------------------------------------------------
// who is here

void Controller::joins(int64_t agent, const AgentHello& hello, double now) {
    agents_[agent] = {.hello = hello, .held = {}, .ready = false, .heard = now};
    if (state == State::Ended) return say(agent, Say::End, bytes_of(int32_t(code)));
    if (state == State::Gathering && generation == 0 && hello.generation > 0) take_lease_over(now);
    if (state == State::Taking) return;
    if (hello.generation > generation) {        // its ranks are of a job that this controller does not know
        generation = hello.generation;
        return stop(now);
    }
    const bool complete = state == State::Forming || state == State::Running;
    if (complete && most_ranks() <= world_now()) {                              // a spare
        // it may be the next controller
        if (hello.generation < generation) say(agent, Say::Plan, plan_bytes_);
        note_buddies();
        return replace_slow(now);
    }
    if (state == State::Running) return tell(Say::Leave, bytes_of(Generation{generation}));
    stop(now);
}

void Controller::take_lease_over(double now) {
    state = State::Taking;
    waits_since_ = now;
}

int Controller::slots_here() const {
    int slots = 0;
    for (const auto& [number, agent] : agents_) slots += std::clamp(agent.hello.slots, 0, 1024);
    return slots;
}

// That have slots and fit.
int Controller::most_ranks() const {
    int world = std::min(slots_here(), rules.wanted);
    while (world > 0 && !rules.fits(world)) world--;
    return world;
}

// What an agent of a run knows, told to a new controller.
void Controller::adopt(const GroupPlan& last) {
    if (state != State::Taking || last.head.generation <= generation) return;
    generation = last.head.generation;
    seats_ = last.seats;
    begun_ = {generation, last.head.step};
    losses_.clear();
}

// The agents of the run are here. Ranks that train go on.
void Controller::take_over(double now) {
    state = State::Running;
    for (int r = 0; r < world_now(); r++)
        if (!agents_.contains(seats_[size_t(r)].agent)) lose_rank(r, "its agent is gone", now);
    if (broken_ || !losses_.empty() || world_now() < rules.wanted) stop(now);
    else note_buddies();
}

void Controller::loses(int64_t agent, double now) {
    const auto found = agents_.find(agent);
    if (found == agents_.end()) return;
    agents_.erase(found);
    if (state == State::Ended || state == State::Taking) return;
    bool any = false;
    for (int r = 0; r < world_now(); r++)
        if (seats_[size_t(r)].agent == agent && !finished_.contains(r)) {
            lose_rank(r, "its agent is gone", now);
            any = true;
        }
    if (any && !finished_.empty()) return end(code);
    if (any || state == State::Stopping) stop(now);
    else if (state == State::Running) note_buddies();
}

int Controller::world_now() const { return int(seats_.size()); }

void Controller::lose_rank(int rank, const std::string& cause, double now) {
    if (std::ranges::find(losses_, rank, &LostRank::rank) != losses_.end()) return;
    LostRank l = {.generation = generation, .rank = rank, .code = 0, .host = seats_[size_t(rank)].host,
                  .cause = {}};
    set_word(l.cause, cause);
    losses_.push_back(l);
    if (lost_at_ < 0) lost_at_ = now;
}

// ---------------------------------------------------------------------------------------------------------
// what is heard

void Controller::hears(int64_t agent, const Message& m, double now) {
    const auto found = agents_.find(agent);
    if (found == agents_.end() || state == State::Ended) return;
    found->second.heard = now;
    switch (m.kind) {
        case Say::Ready: return ready(agent, m, now);
        case Say::Door: return door(m);
        case Say::Safe: return safe(m);
        case Say::Finished: return finish(m);
        case Say::Slow: return slow(m, now);
        case Say::Corrupt: return corrupt(m, now);
        case Say::Broken: {
            const int64_t of = m.head<Generation>().generation;
            if (state == State::Taking) broken_ |= of >= generation;
            if (of != generation || (state != State::Forming && state != State::Running)) return;
            return finished_.empty() ? stop(now) : end(code);
        }
        case Say::Plan: return adopt(plan_of(m.bytes));
        case Say::Died: {
            const LostRank l = m.head<LostRank>();
            if (l.code) return end(l.code);
            const bool of_now = l.generation == generation && l.rank >= 0 && l.rank < world_now();
            if (!of_now || finished_.contains(l.rank) || state == State::Gathering) return;
            if (!finished_.empty()) return end(code);       // behind a barrier: all work is done
            lose_rank(l.rank, word_text(l.cause), now);
            return state == State::Stopping || state == State::Taking ? void() : stop(now);
        }
        default: return;
    }
}

void Controller::ready(int64_t agent, const Message& m, double now) {
    if (state != State::Stopping || m.head<Generation>().generation != generation) return;
    agents_.at(agent).ready = true;
    agents_.at(agent).held = list_of<Held>(m.rest<Generation>());
    if (all_ready()) form(now);
}

bool Controller::all_ready() const {
    return std::ranges::all_of(agents_, [](const auto& a) { return a.second.ready; });
}

void Controller::door(const Message& m) {
    const DoorOf d = m.head<DoorOf>();
    if (state != State::Forming || d.generation != generation || d.rank < 0 || d.rank >= world_now()) return;
    doors_[size_t(d.rank)] = m.rest<DoorOf>();
    if (std::ranges::any_of(doors_, [](const std::string& s) { return s.empty(); })) return;
    std::string all;
    for (const std::string& text : doors_) all += bytes_of(uint32_t(text.size()), text);
    tell(Say::Go, bytes_of(Generation{generation}, all));
    state = State::Running;
    lost_at_ = -1;
    losses_.clear();
    note_buddies();
}

void Controller::safe(const Message& m) {
    const DoorOf d = m.head<DoorOf>();
    if (d.generation != generation || d.rank < 0 || d.rank >= world_now()) return;
    safe_.insert(d.rank);
    if (int(safe_.size()) == world_now()) tell(Say::Settled, bytes_of(Generation{generation}));
}

// Ranks finish behind a barrier: where one has finished, all have done their work.
void Controller::finish(const Message& m) {
    const Finish f = m.head<Finish>();
    if (f.generation != generation || f.rank < 0 || f.rank >= world_now()) return;
    finished_.insert(f.rank);
    code = std::max(code, f.code);
    if (int(finished_.size()) == world_now()) end(code);
}

// ---------------------------------------------------------------------------------------------------------
// the next generation

void Controller::stop(double now) {
    tell(Say::Stop, bytes_of(Generation{generation}));
    for (auto& [number, agent] : agents_) agent.ready = false;
    state = State::Stopping;
    waits_since_ = now;
}

// Every agent is ready.
void Controller::form(double now) {
    const int world = most_ranks();
    const bool begins = generation == 0;
    if (world < (begins ? rules.wanted : rules.least)) {
        waits_since_ = now;
        state = State::Gathering;
        rules.note(fmt::format("the job waits for agents: {} of {} ranks have a slot", slots_here(),
                               begins ? rules.wanted : rules.least));
        return;
    }
    plan(world, now);
}

// Agents in the order of their numbers; ranks stay where they are.
void Controller::seat(int world) {
    std::map<int64_t, std::set<int64_t>> used;          // slots of each agent
    std::vector<Seat> next(size_t(world), Seat{.agent = -1, .slot = 0, .host = {}, .address = {}});
    for (int r = 0; r < std::min(world, world_now()); r++) {
        const Seat& was = seats_[size_t(r)];
        if (!may_sit(was)) continue;
        next[size_t(r)] = was;
        used[was.agent].insert(was.slot);
    }
    const auto fill = [&](Seat& s, bool aside) {
        for (const auto& [number, agent] : agents_)
            for (int64_t slot = 0; slot < agent.hello.slots && s.agent < 0; slot++)
                if (aside_.contains({number, slot}) == aside && used[number].insert(slot).second)
                    s = {.agent = number, .slot = slot, .host = agent.hello.host,
                         .address = agent.hello.address};
    };
    for (const bool aside : {false, true})
        for (Seat& s : next) fill(s, aside);
    seats_ = std::move(next);
}

void Controller::plan(int world, double now) {
    static constexpr int kEpochBits = 20;       // generations of a lease
    static constexpr int kMost = 5;             // plans from one step: what kills its ranks is not chance
    const Restorable from = restorable();
    if (!rules.may_plan()) return;
    stuck_ = from.step == stuck_at_ && !losses_.empty() ? stuck_ + 1 : 0;
    stuck_at_ = from.step;
    if (stuck_ >= kMost)
        return end(kExitRestart, fmt::format("ranks were lost {} times behind step {}, see the lines above",
                                             kMost + 1, std::max<int64_t>(from.step, 0)));
    if (generation > 0 && from.step < 0 && !losses_.empty())
        rules.note("an image is gone with its agents: training goes back to the last checkpoint");
    const bool regroups = generation > 0;
    // above those of every earlier lease: agents of a job that this one has begun anew know no later plan
    generation = std::max({generation, from.generation, int64_t(rules.epoch - 1) << kEpochBits}) + 1;
    seat(world);
    doors_.assign(size_t(world), "");
    finished_.clear();
    safe_.clear();
    slow_.clear();
    std::vector<Source> sources;
    for (const int64_t holder : from.holders)
        sources.push_back({agents_.at(holder).hello.address, agents_.at(holder).hello.port, 0});
    const PlanHead head = {.generation = generation, .step = from.step, .from = from.generation,
                           .seconds = lost_at_ < 0 ? -1 : now - lost_at_, .world = world,
                           .images = int32_t(sources.size()), .losses = int32_t(losses_.size()),
                           .epoch = rules.epoch, .regroups = regroups, .unused = 0};
    begun_ = {generation, from.step};
    state = State::Forming;
    plan_bytes_ = to_bytes({head, seats_, sources, losses_});
    tell(Say::Plan, plan_bytes_);
    note_buddies();
}

// Each agent's images are copied by the next agent, of another host where there is one; by an agent without
// ranks only where no other has ranks.
void Controller::note_buddies() {
    std::set<int64_t> ranked;
    for (const Seat& s : seats_) ranked.insert(s.agent);
    const auto rank_of = [&](int64_t other, const Agent& agent, int64_t number) {
        const bool same_host = agents_.at(other).hello.host == agent.hello.host;
        const bool spare = !ranked.contains(other);
        return std::tuple(spare, same_host, other < number);
    };
    for (const auto& [number, agent] : agents_) {
        int64_t best = -1;
        for (const auto& [other, its] : agents_) {
            if (other == number || its.hello.slots <= 0) continue;
            if (best < 0 || rank_of(other, agent, number) < rank_of(best, agent, number)) best = other;
        }
        Source to = {};
        if (best >= 0) to = {agents_.at(best).hello.address, agents_.at(best).hello.port, 0};
        say(number, Say::Buddy, bytes_of(to));
    }
}

void Controller::look(double now) {
    // time in which this process was stopped does not count
    if (now - std::exchange(looked_, now) > rules.silence / 2)
        for (auto& [number, agent] : agents_) agent.heard = now;
    std::vector<int64_t> silent;
    for (const auto& [number, agent] : agents_)
        if (now - agent.heard > rules.silence) silent.push_back(number);
    for (const int64_t number : silent) loses(number, now);
    if (state == State::Taking && now - waits_since_ > rules.moment) take_over(now);
    if (state == State::Stopping && !agents_.empty() && all_ready()) form(now);     // the lease was late
    if (state == State::Gathering && generation > 0 && now - waits_since_ > rules.patience)
        end(kExitRestart, fmt::format("no agents came for {:g} s", rules.patience));
}

void Controller::end(int exit_code, const std::string& why) {
    if (!why.empty()) rules.note(why + "; the job ends");
    code = exit_code;
    state = State::Ended;
    tell(Say::End, bytes_of(int32_t(code)));
}

}  // namespace agents

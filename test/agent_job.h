// A job without processes: the controller, and agents that answer as the real ones do.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "llmc/comm/agents/controller.h"
#include "test/test.h"

namespace test {

// Agents with slots, whose ranks keep an image of each step, and a copy with the next agent.
struct AgentJob {
    struct Told { int64_t agent; Say kind; std::string bytes; };
    struct Host {
        int slots;
        std::vector<Held> held;
    };
    Controller controller;
    std::map<int64_t, Host> hosts;
    std::vector<Told> told;
    GroupPlan plan;
    int plans = 0, leaves = 0;
    bool has_lease = true;
    std::set<size_t> moves;                 // ranks that may leave an agent that lives
    int64_t passed = INT64_MAX;             // images beyond may have wrong bits
    std::set<int> silent;                       // ranks that open no door
    int64_t deaf = 0;                           // an agent that does not answer Stop
    std::string went;                           // doors of the last Go
    double now = 1;

    AgentJob(int wanted, int least, int multiple = 1) {
        controller.rules = {.wanted = wanted, .least = least,
                            .fits = [=](int n) { return n % multiple == 0; },
                            .may_plan = [this] { return has_lease; }};
        controller.say = [this](int64_t to, Say kind, std::string bytes) {
            told.push_back({to, kind, bytes});
        };
    }
    AgentHello hello(int64_t id) const {
        AgentHello h = {};
        set_word(h.host, "host" + std::to_string(id));
        set_word(h.address, "10.0.0." + std::to_string(id));
        h.id = id;
        h.slots = hosts.at(id).slots;
        h.generation = plan.head.generation;
        return h;
    }
    void join(int64_t id, int slots) {
        hosts[id] = {slots, {}};
        controller.joins(id, hello(id), now);
        settle();
    }
    void lose(int64_t id) {
        hosts.erase(id);
        controller.loses(id, now);
        settle();
    }
    void kill_rank(int rank) {
        LostRank l = {.generation = plan.head.generation, .rank = rank, .code = 0, .host = {}, .cause = {}};
        set_word(l.cause, "was killed");
        controller.hears(plan.seats[size_t(rank)].agent, {Say::Died, bytes_of(l)}, now);
        settle();
    }
    // Each agent answers what it was told.
    void settle() {
        while (!told.empty()) {
            const Told t = told.front();
            told.erase(told.begin());
            if (!hosts.contains(t.agent)) continue;
            const Message m{t.kind, t.bytes};
            if (t.kind == Say::Stop && t.agent != deaf)
                controller.hears(t.agent, {Say::Ready, bytes_of(m.head<Generation>(),
                                                                bytes_of_list(hosts[t.agent].held))}, now);
            leaves += t.kind == Say::Leave;
            if (t.kind == Say::Go) went = m.bytes;
            if (t.kind == Say::Leave) controller.hears(t.agent, {Say::Broken, m.bytes}, now);
            if (t.kind == Say::Plan) {
                const GroupPlan next = plan_of(m.bytes);
                if (next.head.generation > plan.head.generation) check(next);
                plan = next;
                for (int r = 0; r < plan.head.world; r++)
                    if (plan.seats[size_t(r)].agent == t.agent && !silent.contains(r))
                        controller.hears(t.agent, {Say::Door, bytes_of(DoorOf{plan.head.generation, r, 0},
                                                                       "door")}, now);
            }
        }
    }
    // Every rank has a seat of its own, at an agent that lives, and keeps the seat while it lives. The plan
    // names the newest images of which all are held, and holders that have them.
    void check(const GroupPlan& next) {
        plans++;
        std::set<std::pair<int64_t, int64_t>> seats;
        for (const Seat& s : next.seats) {
            EXPECT(hosts.contains(s.agent) && s.slot < hosts[s.agent].slots, "agent %ld", long(s.agent));
            EXPECT(seats.insert({s.agent, s.slot}).second, "two ranks at slot %ld", long(s.slot));
        }
        for (size_t r = 0; r < std::min(next.seats.size(), plan.seats.size()); r++)
            if (hosts.contains(plan.seats[r].agent) && !moves.contains(r))
                EXPECT(next.seats[r].agent == plan.seats[r].agent && next.seats[r].slot == plan.seats[r].slot,
                       "rank %zu moved", r);
        int64_t newest = -1;
        for (const auto& [id, host] : hosts)
            for (const Held& h : host.held)
                if (h.step > newest && h.step <= passed && whole(h)) newest = h.step;
        EXPECT(next.head.step == newest, "from step %ld, not %ld", long(next.head.step), long(newest));
        for (int r = 0; r < next.head.images; r++) {
            const std::string address = word_text(next.sources[size_t(r)].address);
            const int64_t id = atoi(address.c_str() + 7);
            EXPECT(holds(id, {next.head.from, next.head.step, next.head.images, r}), "%s", address.c_str());
        }
    }
    bool holds(int64_t id, const Held& h) const {
        const auto found = hosts.find(id);
        if (found == hosts.end()) return false;
        for (const Held& x : found->second.held)
            if (x.generation == h.generation && x.step == h.step && x.rank == h.rank) return true;
        return false;
    }
    bool whole(const Held& h) const {
        for (int r = 0; r < h.world; r++) {
            bool any = false;
            for (const auto& [id, host] : hosts) any |= holds(id, {h.generation, h.step, h.world, r});
            if (!any) return false;
        }
        return true;
    }
    // A step: each rank's agent and the next one hold its image.
    void train(int64_t step) {
        for (auto& [id, host] : hosts)
            std::erase_if(host.held, [&](const Held& h) { return h.step < step - 1; });
        for (int r = 0; r < plan.head.world; r++) {
            const Held h = {plan.head.generation, step, plan.head.world, r};
            auto at = hosts.find(plan.seats[size_t(r)].agent);
            at->second.held.push_back(h);
            if (++at == hosts.end()) at = hosts.begin();
            if (hosts.size() > 1) at->second.held.push_back(h);
        }
    }
    bool runs() const { return controller.state == Controller::State::Running; }
};

}  // namespace test

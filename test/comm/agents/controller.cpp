// The controller without processes: agents that answer as the real ones do, and lose ranks at random.
#include "llmc/comm/agents/controller.h"

#include <map>
#include <set>

#include "llmc/base/numbers/rng.h"
#include "test/test.h"

using std::map, std::set, std::string, std::vector;

namespace {

// Agents with slots, whose ranks keep an image of each step, and a copy with the next agent.
struct Job {
    struct Told { int64_t agent; Say kind; string bytes; };
    struct Host {
        int slots;
        vector<Held> held;
    };
    Controller controller;
    map<int64_t, Host> hosts;
    vector<Told> told;
    GroupPlan plan;
    int plans = 0, leaves = 0;
    bool has_lease = true;
    double now = 1;

    Job(int wanted, int least, int multiple = 1) {
        controller.rules = {.wanted = wanted, .least = least,
                            .fits = [=](int n) { return n % multiple == 0; },
                            .may_plan = [this] { return has_lease; }};
        controller.say = [this](int64_t to, Say kind, string bytes) { told.push_back({to, kind, bytes}); };
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
            if (t.kind == Say::Stop)
                controller.hears(t.agent, {Say::Ready, bytes_of(m.head<Generation>(),
                                                                bytes_of_list(hosts[t.agent].held))}, now);
            leaves += t.kind == Say::Leave;
            if (t.kind == Say::Leave) controller.hears(t.agent, {Say::Broken, m.bytes}, now);
            if (t.kind == Say::Plan) {
                const GroupPlan next = plan_of(m.bytes);
                if (next.head.generation > plan.head.generation) check(next);
                plan = next;
                for (int r = 0; r < plan.head.world; r++)
                    if (plan.seats[size_t(r)].agent == t.agent)
                        controller.hears(t.agent, {Say::Door, bytes_of(DoorOf{plan.head.generation, r, 0},
                                                                       "door")}, now);
            }
        }
    }
    // Every rank has a seat of its own, at an agent that lives; a rank that lives has kept its seat; the
    // images are the newest of which all are held, and where the plan says.
    void check(const GroupPlan& next) {
        plans++;
        set<std::pair<int64_t, int64_t>> seats;
        for (const Seat& s : next.seats) {
            EXPECT(hosts.contains(s.agent) && s.slot < hosts[s.agent].slots, "agent %ld", long(s.agent));
            EXPECT(seats.insert({s.agent, s.slot}).second, "two ranks at slot %ld", long(s.slot));
        }
        for (size_t r = 0; r < std::min(next.seats.size(), plan.seats.size()); r++)
            if (hosts.contains(plan.seats[r].agent))
                EXPECT(next.seats[r].agent == plan.seats[r].agent && next.seats[r].slot == plan.seats[r].slot,
                       "rank %zu moved", r);
        int64_t newest = -1;
        for (const auto& [id, host] : hosts)
            for (const Held& h : host.held)
                if (h.step > newest && whole(h)) newest = h.step;
        EXPECT(next.head.step == newest, "from step %ld, not %ld", long(next.head.step), long(newest));
        for (int r = 0; r < next.head.images; r++) {
            const string address = word_text(next.sources[size_t(r)].address);
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

}  // namespace

TEST(a_job_begins_when_there_are_slots_for_all) {
    Job job(4, 2);
    job.join(1, 2);
    EXPECT(!job.runs() && job.plans == 0, "it began with 2 of 4 ranks");
    job.join(2, 3);
    EXPECT(job.runs() && job.plan.head.world == 4 && job.plan.head.step == -1, "world %d",
           job.plan.head.world);
    job.join(3, 4);
    EXPECT(job.runs() && job.plans == 1, "a spare stopped it");
}

TEST(a_lost_rank_is_seated_again_and_no_other_moves) {
    Job job(4, 4);
    job.join(1, 2);
    job.join(2, 2);
    for (int64_t step = 1; step < 20; step++) {
        job.train(step);
        job.kill_rank(int(philox(3, 0, uint64_t(step)).x[0] % 4));
        EXPECT(job.runs() && job.plan.head.step == step && job.plan.losses.size() == 1, "step %ld: %ld",
               long(step), long(job.plan.head.step));
    }
    EXPECT(job.plans == 20, "%d plans", job.plans);
}

// The spare takes the ranks; without one the job shrinks to what fits, or waits below the least, and grows.
TEST(a_lost_agent_is_replaced_or_the_job_shrinks) {
    Job job(6, 2, 2);
    for (int64_t id = 1; id <= 3; id++) job.join(id, 2);
    job.join(4, 2);
    job.train(1);
    job.lose(2);
    EXPECT(job.plan.head.world == 6 && job.plan.head.step == 1, "world %d", job.plan.head.world);
    job.train(2);
    job.lose(1);
    EXPECT(job.plan.head.world == 4 && job.plan.head.step == 2, "world %d", job.plan.head.world);
    job.train(3);
    job.join(5, 3);
    EXPECT(job.plan.head.world == 6 && job.plan.head.step == 3, "world %d", job.plan.head.world);
    EXPECT(job.leaves > 0, "no step was ended before the ranks came");
    // both that hold an image of rank 0 at once: there is no whole set
    job.train(4);
    const int64_t first = job.plan.seats[0].agent;
    auto next = ++job.hosts.find(first);
    const int64_t second = next == job.hosts.end() ? job.hosts.begin()->first : next->first;
    for (const int64_t id : {first, second}) job.hosts.erase(id);
    for (const int64_t id : {first, second}) job.controller.loses(id, job.now);
    job.settle();
    EXPECT(job.runs() && job.plan.head.step == -1, "step %ld", long(job.plan.head.step));
}

TEST(below_the_least_agents_have_a_while_to_come) {
    for (const bool comes : {true, false}) {
        Job job(4, 4);
        job.join(1, 2);
        job.join(2, 2);
        job.train(1);
        job.lose(2);
        EXPECT(!job.runs(), "it goes on with 2 of 4");
        job.controller.look(job.now += 1);
        if (comes) job.join(3, 2);
        for (int i = 0; i < 80; i++) {
            for (const auto& [id, host] : job.hosts) job.controller.hears(id, {Say::Beat, ""}, job.now);
            job.controller.look(job.now += 1);
        }
        if (comes) EXPECT(job.runs() && job.plan.head.step == 1, "step %ld", long(job.plan.head.step));
        else EXPECT(job.controller.state == Controller::State::Ended && job.controller.code == 75, "code %d",
                    job.controller.code);
    }
}

TEST(without_the_lease_nothing_is_planned) {
    Job job(2, 1);
    job.join(1, 1);
    job.join(2, 1);
    job.has_lease = false;
    const int before = job.plans;
    job.lose(2);
    EXPECT(job.plans == before, "it planned");
}

TEST(a_silent_agent_is_lost_and_a_stopped_controller_blames_nobody) {
    Job job(2, 1);
    job.join(1, 1);
    job.join(2, 1);
    job.controller.look(job.now);
    job.controller.look(job.now += 100);        // this process was stopped
    EXPECT(job.plan.head.world == 2, "an agent was lost while nobody listened");
    for (int i = 0; i < 30; i++) {
        job.controller.hears(1, {Say::Beat, ""}, job.now);
        job.controller.look(job.now += 0.5);
        job.hosts.erase(2);
        job.settle();
    }
    EXPECT(job.plan.head.world == 1, "the silent agent is still there");
}

// Another controller learns the plan from the agents. Ranks that live go on without a stop.
TEST(a_new_controller_takes_over) {
    for (const bool all_live : {true, false}) {
        Job old(4, 4);
        for (int64_t id = 1; id <= 3; id++) old.join(id, 2);
        old.train(7);
        Job job(4, 4);
        job.plan = old.plan;
        job.hosts = old.hosts;
        const int64_t gone = all_live ? 3 : 2;      // the third is a spare
        job.hosts.erase(gone);
        for (const auto& [id, host] : job.hosts) {
            job.controller.joins(id, job.hello(id), job.now);
            job.controller.hears(id, {Say::Plan, to_bytes(old.plan)}, job.now);
        }
        job.settle();
        EXPECT(job.plans == 0, "it did not wait for the agents");
        job.controller.look(job.now += 5);
        job.settle();
        EXPECT(job.runs() && job.plans == (all_live ? 0 : 1), "%d plans", job.plans);
        if (all_live) continue;
        EXPECT(job.plan.losses.size() == 2 && job.plan.head.generation == old.plan.head.generation + 1 &&
                   job.plan.head.step == 7, "%zu lost, step %ld", job.plan.losses.size(),
               long(job.plan.head.step));
    }
}

TEST(ranks_that_die_at_one_step_again_and_again_end_the_job) {
    Job job(2, 2);
    job.join(1, 2);
    job.train(5);
    for (int i = 0; i < 20 && job.controller.state != Controller::State::Ended; i++) job.kill_rank(1);
    EXPECT(job.controller.state == Controller::State::Ended && job.controller.code == 75 && job.plans < 10,
           "%d plans", job.plans);
}

// An image of which one rank's is missing does not count, nor one that ranks of different worlds have kept.
TEST(images_count_where_all_ranks_have_kept_them) {
    const map<int64_t, vector<Held>> held = {{1, {{2, 8, 2, 0}, {2, 9, 2, 0}, {3, 9, 4, 0}}},
                                             {2, {{2, 8, 2, 1}, {3, 9, 4, 1}}}};
    const Restorable r = newest_images(held);
    EXPECT(r.step == 8 && r.generation == 2 && r.holders == (vector<int64_t>{1, 2}), "step %ld",
           long(r.step));
    EXPECT(newest_images({{1, {{2, 8, 2, 0}}}}).step == -1, "half of an image");
}

// The controller without processes: agents that answer as the real ones do, and lose ranks at random.
#include "llmc/base/numbers/rng.h"
#include "test/agent_job.h"

using namespace test;
using std::map, std::vector;

TEST(a_job_begins_when_there_are_slots_for_all) {
    AgentJob job(4, 2);
    job.join(1, 2);
    EXPECT(!job.runs() && job.plans == 0, "it began with 2 of 4 ranks");
    job.join(2, 3);
    EXPECT(job.runs() && job.plan.head.world == 4 && job.plan.head.step == -1, "world %d",
           job.plan.head.world);
    job.join(3, 4);
    EXPECT(job.runs() && job.plans == 1, "a spare stopped it");
}

TEST(a_lost_rank_is_seated_again_and_no_other_moves) {
    AgentJob job(4, 4);
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
    AgentJob job(6, 2, 2);
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

// Replicas of two ranks, an agent each: the other rank of a broken replica is a spare, and takes the place of
// the next that is lost.
TEST(a_rank_of_a_broken_replica_is_a_spare) {
    AgentJob job(6, 2, 2);
    for (int64_t id = 1; id <= 6; id++) job.join(id, 1);
    job.train(1);
    job.lose(5);
    EXPECT(job.runs() && job.plan.head.world == 4 && job.plan.head.step == 1, "world %d",
           job.plan.head.world);
    job.train(2);
    job.lose(2);
    EXPECT(job.plan.head.world == 4 && job.plan.head.step == 2 && job.plan.seats[1].agent == 6,
           "world %d, agent %ld", job.plan.head.world, long(job.plan.seats[1].agent));
    job.train(3);
    job.join(7, 1);
    EXPECT(job.leaves == 0 && job.plan.head.world == 4, "it was stopped for a rank without a replica");
    job.join(8, 1);
    EXPECT(job.leaves > 0 && job.plan.head.world == 6 && job.plan.head.step == 3, "world %d",
           job.plan.head.world);
}

TEST(below_the_least_agents_have_a_while_to_come) {
    for (const bool comes : {true, false}) {
        AgentJob job(4, 4);
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
    AgentJob job(2, 1);
    job.join(1, 1);
    job.join(2, 1);
    job.has_lease = false;
    const int before = job.plans;
    job.lose(2);
    EXPECT(job.plans == before, "it planned");
}

TEST(a_silent_agent_is_lost_and_a_stopped_controller_blames_nobody) {
    AgentJob job(2, 1);
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
        AgentJob old(4, 4);
        for (int64_t id = 1; id <= 3; id++) old.join(id, 2);
        old.train(7);
        AgentJob job(4, 4);
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

// No agent of the job answers in time, so that the new controller begins anew. Then one comes back with later
// generations of its own, and images of steps whose rows are gone.
TEST(agents_of_a_job_that_was_begun_anew_join_the_new_one) {
    AgentJob anew(2, 1);
    anew.controller.rules.epoch = 2;
    anew.controller.take_lease_over(anew.now);
    anew.join(3, 2);
    for (int i = 0; i < 10 && !anew.runs(); i++) {
        anew.controller.look(anew.now += 5);
        anew.settle();
    }
    const PlanHead begun = anew.plan.head;
    EXPECT(begun.step == -1 && begun.generation > 7 && !begun.regroups, "generation %ld",
           long(begun.generation));
    anew.hosts[1] = {2, {{.generation = 7, .step = 763, .world = 2, .rank = 0},
                         {.generation = 7, .step = 763, .world = 2, .rank = 1}}};
    AgentHello back = anew.hello(1);
    back.generation = 7;
    anew.controller.joins(1, back, anew.now);
    anew.passed = 0;                                // the test's own look at the images
    anew.settle();
    EXPECT(anew.plan.head.generation == begun.generation, "generation %ld", long(anew.plan.head.generation));
    anew.kill_rank(0);
    EXPECT(anew.plan.head.step == -1 && anew.plan.head.generation == begun.generation + 1, "step %ld of %ld",
           long(anew.plan.head.step), long(anew.plan.head.generation));
}

TEST(ranks_that_die_at_one_step_again_and_again_end_the_job) {
    AgentJob job(2, 2);
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
    // the agent with images of generation 2 was away when generation 3 went on from step 5
    const map<int64_t, vector<Held>> back = {{1, {{2, 8, 1, 0}, {2, 5, 1, 0}}}, {2, {{3, 6, 1, 0}}}};
    EXPECT(newest_images(back, {3, 5}).generation == 3, "rows behind step 5 are gone");
    EXPECT(newest_images({{1, {{2, 8, 1, 0}, {2, 5, 1, 0}}}}, {3, 5}).step == 5, "not the step of the plan");
}

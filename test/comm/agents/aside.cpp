// What the controller puts aside: slots of slow ranks, agents whose bits are wrong.
#include "test/agent_job.h"

using test::AgentJob;

// A slow rank's place is put aside after a step, where another is free; the slot is used where no other is.
TEST(a_slow_rank_moves_to_a_free_slot) {
    AgentJob job(4, 2, 2);
    job.join(1, 2);
    job.join(2, 2);
    job.train(1);
    const auto slow = [&](int rank) {
        const SlowRank s = {job.plan.head.generation, rank, 0, 2.5};
        job.controller.hears(job.plan.seats[size_t(rank)].agent, {Say::Slow, bytes_of(s)}, job.now);
    };
    const Seat was = job.plan.seats[2];
    slow(2);
    EXPECT(job.told.empty() && job.plans == 1, "it stopped without a free slot");
    job.moves = {2};
    job.join(3, 1);
    EXPECT(job.plans == 2 && job.leaves > 0 && job.plan.head.world == 4 && job.plan.head.step == 1 &&
               job.plan.seats[2].agent == 3 && job.plan.losses.size() == 1, "%d plans", job.plans);
    job.join(4, 1);
    slow(2);
    job.settle();
    EXPECT(job.plans == 3 && job.plan.seats[2].agent == 4, "agent %ld", long(job.plan.seats[2].agent));
    job.moves = {};
    job.train(2);
    slow(2);
    job.settle();
    EXPECT(job.plans == 3, "it moved to a slot that had been put aside");
    job.lose(4);
    EXPECT(job.plans == 4 && job.plan.head.world == 4 &&
               (job.plan.seats[2].agent == 3 || job.plan.seats[2].agent == was.agent), "world %d",
           job.plan.head.world);
}

namespace {

void report_corrupt(AgentJob& job, int rank, bool sure) {
    CorruptRank c = {{job.plan.head.generation, job.passed}, rank, sure, {}};
    set_word(c.what, "weights");
    for (const Seat& s : std::vector<Seat>(job.plan.seats))         // every rank says the same
        job.controller.hears(s.agent, {Say::Corrupt, bytes_of(c)}, job.now);
    job.settle();
}

}  // namespace

// Its rank moves to a spare, with images that passed a comparison, from an agent that is not at fault.
TEST(an_agent_whose_bits_are_wrong_is_put_aside) {
    AgentJob job(3, 2);
    for (int64_t id = 1; id <= 4; id++) job.join(id, 1);
    job.train(5);
    job.train(6);
    job.passed = 5;
    job.moves = {1};
    report_corrupt(job, 1, true);
    EXPECT(job.runs() && job.plans == 2 && job.plan.head.world == 3 && job.plan.head.step == 5, "step %ld",
           long(job.plan.head.step));
    EXPECT(job.plan.seats[1].agent == 4 && job.plan.losses.size() == 1 && job.plan.losses[0].corrupt &&
               word_text(job.plan.losses[0].cause) == "weights", "agent %ld", long(job.plan.seats[1].agent));
    for (const Source& s : job.plan.sources) EXPECT(word_text(s.address) != "10.0.0.2", "its image");
    // images beyond the bound stay beyond it, and the agent stays aside
    job.kill_rank(0);
    EXPECT(job.plan.head.step == 5, "step %ld", long(job.plan.head.step));
    job.moves = {};
    job.lose(4);
    EXPECT(job.runs() && job.plan.head.world == 2, "world %d", job.plan.head.world);
}

TEST(without_a_majority_or_enough_ranks_wrong_bits_end_the_job) {
    for (const bool sure : {true, false}) {
        AgentJob job(2, 2);
        for (int64_t id = 1; id <= (sure ? 2 : 4); id++) job.join(id, 1);
        job.train(5);
        report_corrupt(job, 1, sure);
        EXPECT(job.controller.state == Controller::State::Ended && job.controller.code == 75, "code %d",
               job.controller.code);
    }
}

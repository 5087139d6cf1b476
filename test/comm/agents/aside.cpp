// What the controller puts aside: slots of slow ranks.
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

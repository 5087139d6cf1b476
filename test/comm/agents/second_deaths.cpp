// A death while a generation is being formed: nothing of the one before it counts.
#include "test/agent_job.h"

using namespace test;

// What the dead generation says arrives late: doors, Ready, and the death of a rank that is seated again.
TEST(words_of_an_earlier_generation_do_not_count) {
    AgentJob job(4, 4);
    job.join(1, 2);
    job.join(2, 2);
    job.train(5);
    job.silent = {0};
    job.kill_rank(1);
    EXPECT(job.controller.state == Controller::State::Forming && job.plans == 2, "%d plans", job.plans);
    const int64_t before = job.plan.head.generation;
    job.kill_rank(3);                               // while the others connect
    EXPECT(job.controller.state == Controller::State::Forming && job.plans == 3 && job.plan.head.step == 5 &&
               job.plan.losses.size() == 2, "%d plans, step %ld", job.plans, long(job.plan.head.step));
    const auto hears = [&](Say kind, const std::string& bytes) {
        job.controller.hears(1, {kind, bytes}, job.now);
        job.settle();
    };
    hears(Say::Door, bytes_of(DoorOf{before, 0, 0}, "a door of before"));
    hears(Say::Broken, bytes_of(Generation{before}));
    hears(Say::Ready, bytes_of(Generation{before}));
    LostRank late = {.generation = before, .rank = 0, .code = 0, .host = {}, .cause = {}};
    hears(Say::Died, bytes_of(late));
    EXPECT(job.controller.state == Controller::State::Forming && job.plans == 3, "%d plans", job.plans);
    hears(Say::Door, bytes_of(DoorOf{job.plan.head.generation, 0, 0}, "its door"));
    EXPECT(job.runs() && job.went.find("its door") != std::string::npos &&
               job.went.find("of before") == std::string::npos, "it does not run");
}

// An agent that is lost while the ranks stop, or connect: those that stay are asked again what they hold.
TEST(an_agent_that_is_lost_while_a_generation_forms) {
    for (const bool connecting : {false, true}) {
        AgentJob job(6, 2, 2);
        for (int64_t id = 1; id <= 3; id++) job.join(id, 2);
        job.train(8);
        if (connecting) job.silent = {0};
        else job.deaf = 3;                          // it does not answer Stop
        job.kill_rank(0);
        EXPECT(!job.runs() && job.plans == (connecting ? 2 : 1), "%d plans", job.plans);
        job.silent.clear();
        job.lose(3);
        EXPECT(job.runs() && job.plan.head.world == 4 && job.plan.head.step == 8, "world %d from step %ld",
               job.plan.head.world, long(job.plan.head.step));
    }
}

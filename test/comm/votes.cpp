// What ranks decide together, and rank 0 alone.
#include "llmc/comm/votes.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "llmc/base/context.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/launch/launch.h"
#include "test/ranks.h"
#include "test/test.h"

// A rank waiting for rank 0 has a heartbeat: its supervisor sees no hang.
TEST(ranks_that_wait_for_rank_0_have_its_heartbeat) {
    static RankProgress progress[3];
    std::vector<uint64_t> seen;
    int ran = 0;
    run_threads(config_of(3), [&](Config, const Mesh& mesh) {
        RankProgress* const before = std::exchange(context.progress, &progress[mesh.rank]);
        run_on_rank_0(mesh.world, [&](const Heartbeat&) {
            ran++;
            for (int i = 0; i < 4; i++) {
                usleep(110000);
                beat();
                seen.push_back(std::min(progress[1].beats.load(), progress[2].beats.load()));
            }
        });
        context.progress = before;
        return 0;
    });
    EXPECT(ran == 1 && seen.size() == 4, "%d ranks ran it", ran);
    EXPECT(seen.back() >= seen.front() + 2, "no progress on ranks that wait");      // a thread may come late
}

TEST(votes_are_those_of_the_step_that_was_read) {
    Votes votes;
    votes.ask({.save = true, .stop = false});
    const Votes::Words first = votes.send();
    votes.ask({});
    const Votes::Words second = votes.send();
    EXPECT(votes.sent == 2 && votes.read == 0 && !votes.asked().save, "nothing is read yet");
    votes.receive(first.data());
    EXPECT(votes.read == 1 && votes.asked().save && !votes.asked().stop, "the first step asks for a save");
    votes.receive(second.data());
    EXPECT(votes.read == 2 && !votes.asked().save, "the second does not");
}

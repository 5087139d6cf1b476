// Ranks as threads of one process: a message is a pointer that the receiver reads.
#pragma once
#include <functional>
#include <memory>

#include "llmc/comm/group.h"

inline namespace transport {

struct ThreadTeam;          // threads.cpp

// Shared by the ranks of a job. A failing rank breaks the object: every wait of a rank, now or later, ends by
// Fatal.
struct ThreadWorld {
    ThreadWorld();
    ~ThreadWorld();
    void broken();                      // a rank has failed: ends the waits of all others
    const std::function<void()> look;   // in_wait of each rank (base/guard/wait.h)

    // The members of one axis; made before the ranks run.
    ThreadTeam* make_team(int size);
    struct State;
    std::unique_ptr<State> state;
};

// This thread becomes member number `index`.
void join_team(Group& g, ThreadTeam* team, int index);

}  // namespace transport

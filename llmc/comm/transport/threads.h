// Ranks as threads of one process: messages are pointers, which the others read.
#pragma once
#include <memory>

#include "llmc/comm/group.h"

struct ThreadTeam;

// What the ranks of one job share. A rank that fails breaks it, and all who wait, or will, end by Fatal.
struct ThreadWorld {
    ThreadWorld();
    ~ThreadWorld();
    void broken();

    // The members of one axis. A team is made before its ranks run; `index` is a member's place.
    ThreadTeam* make_team(int size);
    struct State;
    std::unique_ptr<State> state;
};

void join_team(Group& g, ThreadTeam* team, int index);

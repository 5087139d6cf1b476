// A thread that is a rank of run.elastic, without an agent.
#pragma once
#include "llmc/comm/agents/member.h"

namespace test {

struct MemberOfPlan {
    Membership own;

    MemberOfPlan(int64_t epoch, int64_t generation) {
        own.plan.head.epoch = epoch, own.plan.head.generation = generation;
        member_of_thread = &own;
    }
    ~MemberOfPlan() { member_of_thread = nullptr; }
    MemberOfPlan(const MemberOfPlan&) = delete;
};

}  // namespace test

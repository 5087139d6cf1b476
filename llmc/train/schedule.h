// What one stage of the pipeline does in an optimizer step, as a list of actions.
//
// One stage yields F0 B0 F1 B1 ..., which is plain gradient accumulation: one path for everybody.
#pragma once
#include <vector>

struct Action {
    enum Kind { Forward, Backward, Send, Recv } kind;
    int chunk, micro;
};

// REQUIRES: stages == 1, as many as this version has.
inline std::vector<Action> pipeline_schedule(int micros) {
    std::vector<Action> list;
    for (int m = 0; m < micros; m++) {
        list.push_back({Action::Forward, 0, m});
        list.push_back({Action::Backward, 0, m});
    }
    return list;
}

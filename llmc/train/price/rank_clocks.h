// The events of a rank in a step, and its clocks: of ops, of each axis' collectives, of each lane of copies.
//
// Collectives of an axis follow each other. Collectives and copies run beside the ops until awaited.
#pragma once
#include <vector>

#include "llmc/comm/mesh.h"

inline namespace price {

// Seconds of a rank, by kind.
struct SecondsByKind {
    double products = 0, attention = 0, memory = 0;  // of ops
    double exposed = 0;                              // waits for collectives, messages and copies
    double hidden = 0;                               // of collectives beside ops; no part of the sum

    double sum() const { return products + attention + memory + exposed; }
    SecondsByKind& operator+=(const SecondsByKind& o);
};

struct RankEvent {
    // Work: ops, one after the other. Start: a collective. Await: the oldest of the axis that is not awaited
    // yet. Meet: a collective that is awaited at once. Mark: a ticket now stands for all copies of a lane so
    // far. AwaitCopies: the copies of a ticket. AwaitLanes: all copies so far.
    enum Kind : char { Work, Start, Await, Meet, Copy, Mark, AwaitCopies, AwaitLanes } kind;
    int axis = 0;             // of a collective, in the order of group_rows; of a copy or mark: its lane
    int ticket = -1;          // of a mark or wait for copies; -1: of no copy
    double busy = 0;          // seconds of a collective or copy
    SecondsByKind work = {};
};

struct RankClocks {
    double now = 0;
    SecondsByKind by_kind = {};

    void run(const RankEvent& event);
    void run(const std::vector<RankEvent>& events);

private:
    struct Started {
        double end, busy;
    };
    struct Collectives {
        double free = 0;  // when the last that started ends
        std::vector<Started> started = {};
        size_t awaited = 0;
    };
    Collectives axes[kGroups] = {};
    double lanes[2] = {};           // when the last copy of each ends
    std::vector<double> tickets;    // when the copies of each end

    Started start(Collectives& axis, double busy);
    void wait_for(const Started& s);
};

// The time of events on a rank that does nothing else.
SecondsByKind seconds_alone(const std::vector<RankEvent>& events);

}  // namespace price

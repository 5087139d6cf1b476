// The step of a small mesh by brute force: every rank walks every micro-batch at its real place. A collective
// starts when the last of its members arrives, a message when both its ranks have.
#pragma once
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "llmc/comm/launch/launch.h"
#include "llmc/train/plan/estimate.h"
#include "llmc/train/price/step_time.h"
#include "llmc/train/run/run_memory.h"

namespace PRECISION {

struct Border {
    int parts, smallest;
};
// How borders every `gpus` ranks cut these ranks.
inline Border cut(const std::vector<int>& ranks, int gpus) {
    std::map<int, int> parts;
    for (const int r : ranks) parts[gpus ? r / gpus : 0]++;
    int smallest = int(ranks.size());
    for (const auto& [part, members] : parts) smallest = std::min(smallest, members);
    return {.parts = int(parts.size()), .smallest = smallest};
}

// The ranks of a rank's group on an axis.
inline std::vector<int> group_of(const MeshShape& mesh, int ranks, int rank, size_t axis) {
    const Place own = place_of(mesh, axis, rank);
    if (own.size == 1) return {rank};
    std::vector<int> found;
    for (int r = 0; r < ranks; r++) {
        const Place at = place_of(mesh, axis, r);
        if (at.size > 1 && at.color == own.color) found.push_back(r);
    }
    return found;
}

inline Groups groups_at(const MeshShape& mesh, int ranks, int rank, const Machine& machine) {
    Groups groups;
    for (size_t axis = 0; axis < groups.size(); axis++) {
        const std::vector<int> members = group_of(mesh, ranks, rank, axis);
        const Border node = cut(members, machine.gpus_per_node);
        groups[axis] = {.all = int(members.size()),
                        .inside = node.smallest,
                        .nodes = node.parts,
                        .in_pod = cut(members, machine.pod_gpus).smallest};
    }
    return groups;
}

// A collective of a group: its members join one after the other.
struct Meeting {
    int joined = 0;
    double last = 0, end = 0;  // when the last joined; when it ends
};
using Meetings = std::deque<Meeting>;

struct Message {
    double sent, way, received = -1;
    Message(double sent, double way) : sent(sent), way(way) {}
};
using Messages = std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>>;  // by sender, receiver

struct WalkingRank {
    int rank = 0, members[kGroups] = {};
    Groups groups = {};
    Prices prices = {};
    std::unique_ptr<Walk> walk;
    std::vector<double> seconds;            // of each cost
    Meetings* meetings[kGroups] = {};         // of its groups
    size_t joins[kGroups] = {};               // so far
    std::deque<size_t> started[kGroups] = {}; // places in `meetings`, to be awaited
    std::deque<std::shared_ptr<Message>> in_buffers;  // sent, not awaited
    size_t next = 0;                        // entry
    bool joined = false;                    // the meeting of the next entry
    double now = 0, lanes[2] = {};
    std::map<int, double> tickets;          // when the copies of each end
    SecondsByKind by_kind = {};

    // Time that passes while other members are late is no time of the collective.
    bool await(size_t axis, size_t i) {
        const Meeting& m = (*meetings[axis])[i];
        if (m.joined < members[axis]) return false;
        by_kind.exposed += std::max(0.0, m.end - std::max(now, m.last));
        now = std::max(now, m.end);
        return true;
    }
    void join(size_t axis, double busy) {
        const size_t i = joins[axis]++;
        if (meetings[axis]->size() == i) meetings[axis]->emplace_back();
        Meeting& m = (*meetings[axis])[i];
        m.last = std::max(m.last, now);
        m.joined++;
        m.end = std::max(m.last, i ? (*meetings[axis])[i - 1].end : 0) + busy;
    }
    bool collective(const Cost& cost, double busy) {
        const size_t axis = index_of_group(cost.axis);
        const std::string_view verb = cost.name;
        const size_t i = joins[axis] - joined;
        if (!joined) join(axis, busy);
        joined = true;
        if (verb == "all_gather" || verb == "reduce_scatter" || verb == "all_to_all")
            started[axis].push_back(i);
        else if (!await(axis, i))
            return false;
        joined = false;
        return true;
    }
    bool wait(const Cost& cost) {
        if (!cost.axis) {
            const TicketShape& t = cost.ticket;
            if (t.op == TicketShape::Mark) {
                tickets[t.number] = lanes[int(t.lane)];
                return true;
            }
            const double end =
                t.op == TicketShape::AwaitAll ? std::max(lanes[0], lanes[1]) : tickets[t.number];
            by_kind.exposed += std::max(0.0, end - now);
            now = std::max(now, end);
            return true;
        }
        std::deque<size_t>& waiting = started[index_of_group(cost.axis)];
        if (waiting.empty()) return true;
        if (!await(index_of_group(cost.axis), waiting.front())) return false;
        waiting.pop_front();
        return true;
    }
};

// Returns false while a receiver or a buffer waits.
inline bool pass_message(WalkingRank& r, const Cost& cost, Messages& messages) {
    const MeshShape& mesh = r.prices.mesh;
    const int peer = r.rank + (cost.peer - index_on(mesh, kPp, r.rank)) * stride_of(mesh, kPp);
    const std::string_view verb = cost.name;
    if (cost.kind == Kind::Wait) {
        if (r.in_buffers.empty()) return true;
        const Message& m = *r.in_buffers.front();
        if (m.received < 0) return false;
        r.now = std::max(r.now, m.received);
        r.in_buffers.pop_front();
    } else if (verb == "send") {
        const int gpus = r.prices.machine.gpus_per_node;
        const double way = seconds_of_message(r.prices, cost, !gpus || r.rank / gpus == peer / gpus);
        r.in_buffers.push_back(std::make_shared<Message>(r.now, way));
        messages[{r.rank, peer}].push_back(r.in_buffers.back());
    } else if (verb == "recv") {
        std::deque<std::shared_ptr<Message>>& waiting = messages[{peer, r.rank}];
        if (waiting.empty()) return false;
        Message& m = *waiting.front();
        r.now = m.received = std::max(r.now, m.sent) + m.way;
        r.by_kind.exposed += m.way;
        waiting.pop_front();
    }
    return true;
}

// Returns false if the rank must wait for another that has not come so far.
inline bool pass_entry(WalkingRank& r, Messages& messages) {
    const Walk::Entry& e = r.walk->entries[r.next];
    const Cost& cost = r.walk->of(e);
    const double seconds = r.seconds[size_t(e.cost)];
    if (cost.axis && std::string_view(cost.axis) == "pp") return pass_message(r, cost, messages);
    switch (cost.kind) {
        case Kind::Collective: return r.collective(cost, seconds);
        case Kind::Wait: return r.wait(cost);
        case Kind::Copy:
            if (std::string_view(cost.name).starts_with("start_copy")) {
                double& lane = r.lanes[std::string_view(cost.name) == "start_copy_to_host"];
                lane = std::max(r.now, lane) + seconds;
                return true;
            }
            r.by_kind.memory += seconds;
            break;
        case Kind::Product: r.by_kind.products += seconds; break;
        case Kind::Attention: r.by_kind.attention += seconds; break;
        case Kind::Memory: r.by_kind.memory += seconds; break;
    }
    r.now += seconds;
    return true;
}

inline WalkingRank walking_rank(const Config& cfg, const Machine& machine, int ranks, int rank,
                                std::map<std::pair<size_t, int>, Meetings>& meetings) {
    const auto on = described_mesh(cfg.parallel, ranks, rank);
    WalkingRank r;
    r.rank = rank;
    r.prices = {.machine = machine, .bf16 = sizeof(floatX) == 2, .mesh = mesh_shape(cfg.parallel, ranks)};
    r.groups = groups_at(r.prices.mesh, ranks, rank, machine);
    r.walk = std::make_unique<Walk>(
        walk_of_run(cfg, on->mesh, {.micro_batch = cfg.train.micro_batch, .micros = 0}));
    for (size_t axis = 0; axis < kGroups; axis++) {
        r.members[axis] = r.groups[axis].all;
        r.meetings[axis] = &meetings[{axis, on->places[axis].color}];
    }
    return r;
}

struct WholeStep {
    double seconds = 0;
    std::vector<SecondsByKind> ranks = {};
};

inline WholeStep step_of_all_ranks(const Config& cfg, const Machine& machine, int ranks) {
    const Described gpu(kDescribedGpu);
    const Config planned = over_nccl(cfg);
    std::map<std::pair<size_t, int>, Meetings> meetings;  // by axis and colour
    std::vector<WalkingRank> all;
    for (int r = 0; r < ranks; r++) all.push_back(walking_rank(planned, machine, ranks, r, meetings));
    for (WalkingRank& r : all) {
        r.prices.groups = &r.groups;
        for (const Cost& c : r.walk->costs)
            r.seconds.push_back(c.kind == Kind::Collective ? seconds_of_collective(r.prices, c)
                                                           : seconds_of_op(r.prices, c));
    }
    Messages messages;
    for (bool moved = true; moved;) {
        moved = false;
        for (WalkingRank& r : all)
            for (; r.next < r.walk->entries.size() && pass_entry(r, messages); r.next++) moved = true;
    }
    WholeStep step;
    for (const WalkingRank& r : all) {
        EXPECT(r.next == r.walk->entries.size(), "rank %d waits for ever", r.rank);
        step.seconds = std::max(step.seconds, r.now);
        step.ranks.push_back(r.by_kind);
    }
    return step;
}

}  // namespace PRECISION

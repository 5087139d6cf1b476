// A simulator that walks the lists of a pipeline. Messages are carried when their receiver has come.
#pragma once
#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/train/step/schedule.h"

using std::vector;
using Lists = vector<vector<Action>>;

struct PipelineOutcome {
    int time = 0;       // when the last stage is done
    std::string wrong;  // empty: every action was done
};

static constexpr const char* kActions[] = {"forward", "backward", "weight half", "send", "receive"};

// The number of a chunk among those of all stages.
inline int number_of(const PipelineShape& p, int stage, const Action& a) {
    return a.chunk * p.stages + stage;
}

// Every pipeline stage runs its list in order. A message takes no time and moves when its receiver is at the
// receive: until then the sender's buffer is busy. A sending stage continues with a free buffer of `buffers`,
// and without buffers waits for each receiver. Messages between two stages arrive in the order of sending;
// both sides must name the same chunk and micro-batch.
struct PipelineWalk {
    const PipelineShape p;
    const Lists& lists;
    int F, B, buffers, W = 0;       // seconds of each work; B: with W the half for the input
    struct Message { Action action; int sent, carried = -1; };
    vector<size_t> at = vector<size_t>(size_t(p.stages));
    vector<int> time = vector<int>(size_t(p.stages));
    std::set<std::tuple<int, int, int>> held = {};  // present: stage, number * 2 + backward, micro
    std::set<std::tuple<int, int, int>> weighted = {};      // stage, number, micro
    vector<vector<Message>> sent = vector<vector<Message>>(size_t(p.stages));   // by each stage
    vector<int> waits = vector<int>(size_t(p.stages));                          // waits at a posted send

    const Action* next(int s) const {
        return at[size_t(s)] < lists[size_t(s)].size() ? &lists[size_t(s)][at[size_t(s)]] : nullptr;
    }
    std::string text(int s, const Action& a) const {
        return fmt::format("stage {}: {} of chunk {}, micro-batch {}, peer {}", s, kActions[a.kind], a.chunk,
                           a.micro,
                           a.peer);
    }
    // Each once, in the order of micro-batches, as gradients are sums in this order.
    std::string weight_half(int s, const Action& a) {
        const int number = number_of(p, s, a);
        if (!held.count({s, number * 2 + 1, a.micro})) return "before its backward: " + text(s, a);
        if (a.micro > 0 && !weighted.count({s, number, a.micro - 1})) return "out of order: " + text(s, a);
        if (!weighted.insert({s, number, a.micro}).second) return "twice: " + text(s, a);
        time[size_t(s)] += W;
        return "";
    }
    // A work needs the previous work, in this stage or by message; once.
    std::string work(int s, const Action& a) {
        const int number = number_of(p, s, a), last = p.stages * p.chunks - 1;
        const bool forward = a.kind == Action::Forward;
        const int from = forward ? number - 1 : number == last ? -2 : number + 1;  // -2: its own forward
        if (from >= 0 && !held.count({s, from * 2 + !forward, a.micro})) return "no input: " + text(s, a);
        if (!forward && !held.count({s, number * 2, a.micro})) return "before its forward: " + text(s, a);
        if (held.count({s, number * 2 + !forward, a.micro})) return "twice: " + text(s, a);
        held.insert({s, number * 2 + !forward, a.micro});
        time[size_t(s)] += forward ? F : B;
        return "";
    }
    // Whether the stage passes its send: posts the send once a buffer is free, at the time of its release.
    bool send(int s, const Action& a) {
        vector<Message>& out = sent[size_t(s)];
        const size_t most = size_t(std::max(buffers, 1));
        if (!waits[size_t(s)]) {
            if (out.size() >= most) {
                const int freed = out[out.size() - most].carried;
                if (freed < 0) return false;
                time[size_t(s)] = std::max(time[size_t(s)], freed);
            }
            out.push_back({a, time[size_t(s)]});
            waits[size_t(s)] = buffers == 0;
        }
        if (!waits[size_t(s)]) return true;
        if (out.back().carried < 0) return false;
        time[size_t(s)] = out.back().carried;
        waits[size_t(s)] = 0;
        return true;
    }
    // The oldest message that its peer has on the way to it.
    Message* arriving(int s, int peer) {
        for (Message& m : sent[size_t(peer)])
            if (m.carried < 0 && m.action.peer == s) return &m;
        return nullptr;
    }
    std::string receive(int s, const Action& a, Message& m) {
        const int number = number_of(p, a.peer, m.action), entered = number_of(p, s, a);
        const bool gradient = m.action.payload == Action::Gradient;
        if (a.payload != m.action.payload || a.micro != m.action.micro ||
            entered != number + (gradient ? -1 : 1))
            return "crossed messages: " + text(a.peer, m.action) + "; " + text(s, a);
        if (!held.count({a.peer, number * 2 + gradient, a.micro}))
            return "sent before it is made: " + text(a.peer, m.action);
        held.insert({s, number * 2 + gradient, a.micro});
        time[size_t(s)] = m.carried = std::max(time[size_t(s)], m.sent);
        return "";
    }
    // "": nothing to do yet; "done": a step further; else what is wrong
    std::string step(int s, const Action& a) {
        std::string wrong;
        if (a.kind == Action::Send) {
            if (!send(s, a)) return "";
        } else if (a.kind == Action::Recv) {
            Message* m = arriving(s, a.peer);
            if (!m) return "";
            wrong = receive(s, a, *m);
        } else if (a.kind == Action::Weight) {
            wrong = weight_half(s, a);
        } else {
            wrong = work(s, a);
        }
        at[size_t(s)]++;
        return wrong.empty() ? "done" : wrong;
    }
    PipelineOutcome run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (int s = 0; s < p.stages; s++) {
                const Action* a = next(s);
                if (!a) continue;
                const std::string did = step(s, *a);
                if (did == "done") moved = true;
                else if (!did.empty()) return {.time = 0, .wrong = did};
            }
        }
        for (int s = 0; s < p.stages; s++)
            if (next(s)) return {.time = 0, .wrong = "deadlock: " + text(s, *next(s))};
        return {.time = *std::max_element(time.begin(), time.end()), .wrong = ""};
    }
};

inline PipelineOutcome walk(const PipelineShape& p, const Lists& lists, int F, int B, int buffers) {
    return PipelineWalk{.p = p, .lists = lists, .F = F, .B = B, .buffers = buffers}.run();
}
inline PipelineOutcome walk(const PipelineShape& p, const Lists& lists, int F, int B) {
    return walk(p, lists, F, B, send_buffers(p));
}
inline PipelineOutcome walk_halves(const PipelineShape& p, const Lists& lists, int F, int B, int W) {
    return PipelineWalk{.p = p, .lists = lists, .F = F, .B = B, .buffers = send_buffers(p), .W = W}.run();
}

// The controller of a run with run.elastic, in the agent that holds the lease: which ranks train, from which
// images, and what happens when one is lost. Without files and sockets: it hears messages and says messages.
//
//     Taking       after another controller: waits a moment for the agents of the run
//     Gathering    too few slots: waits for agents
//     Stopping     Stop is said; waits until every agent is Ready, with what images it holds
//     Forming      Plan is said; waits for every rank's Door
//     Running      Go is said: nothing to do until a rank is lost, an agent comes, or all have finished
//     Ended        End is said
//
// Ranks keep their numbers where they live; a lost rank's number goes to a free slot, of its own agent first.
// Without a slot for each rank the job shrinks to the most ranks that fit the mesh, not below run.min_ranks;
// when slots are there again it grows after the step that it computes. A rank that is slow moves to another
// slot likewise, where one is free. An agent whose rank had other bits than its replicas loses its slots.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "llmc/comm/agents/channel.h"

inline namespace agents {

struct ControllerRules {
    int wanted = 1, least = 1;                  // ranks
    int32_t epoch = 1;                          // of the lease
    std::function<bool(int)> fits;              // whether the mesh fits so many ranks
    std::function<bool()> may_plan;             // whether the lease is still held
    std::function<void(const std::string&)> note = [](const std::string&) {};       // a line for people
    double patience = 60;                       // seconds to wait for agents, below `least`
    double moment = 3;                          // seconds in which agents find a new controller
    double silence = 10;                        // seconds without a word that count as a lost agent
};

// The last plan: its ranks have cut the rows behind its step. Images behind that step, of earlier
// generations, count no more: agents that were away come back with them.
struct Begun { int64_t generation = 0, step = -1; };

// The step and the generation of the newest images of which every rank's is held, and by whom. images of the
// same step: of the newest generation. step -1: there are none.
struct Restorable {
    int64_t step = -1, generation = 0;
    std::vector<int64_t> holders;                   // an agent for each rank
};
Restorable newest_images(const std::map<int64_t, std::vector<Held>>& held, Begun last = {});

struct Controller {
    enum class State { Taking, Gathering, Stopping, Forming, Running, Ended };

    ControllerRules rules;
    std::function<void(int64_t agent, Say, std::string)> say;
    State state = State::Gathering;
    int64_t generation = 0;
    int code = 0;                               // of Ended

    void joins(int64_t agent, const AgentHello& hello, double now);     // its settings are those of the run
    void hears(int64_t agent, const Message& m, double now);
    void loses(int64_t agent, double now);          // its channel has closed, or it is silent
    void look(double now);                      // every now and then

    // The lease was another's: its agents may come.
    void take_lease_over(double now);
    bool has(int64_t agent) const { return agents_.contains(agent); }

private:
    struct Agent {
        AgentHello hello;
        std::vector<Held> held;
        bool ready = false;
        double heard = 0;
    };
    std::map<int64_t, Agent> agents_;           // by id
    std::vector<Seat> seats_;                   // of this generation, by rank
    std::string plan_bytes_;
    std::vector<std::string> doors_;
    std::set<int> finished_, safe_;             // ranks
    std::map<int, double> slow_;                // ranks, and how many times slower than the median
    using Slot = std::pair<int64_t, int64_t>;   // of an agent
    std::set<Slot> aside_;                      // of slow ranks: taken where no other slot is left
    std::vector<ImageBound> bounds_;            // of images that are restored: replicas differed then
    std::vector<LostRank> losses_;                  // since the last plan
    double lost_at_ = -1, waits_since_ = 0, looked_ = 0;
    bool broken_ = false;                       // while Taking: ranks of the run wait for a plan
    Begun begun_;                               // with the last plan
    int64_t stuck_at_ = -2;                     // step of the images of the last plans
    int stuck_ = 0;                             // plans from that step in a row

    void tell(Say kind, const std::string& bytes);
    void stop(double now);
    void lose_rank(int rank, const std::string& cause, double now);
    void ready(int64_t agent, const Message& m, double now);
    void form(double now);
    void plan(int world, double now);
    void seat(int world);
    void end(int exit_code, const std::string& why = "");
    bool all_ready() const;
    void note_buddies();
    int world_now() const;
    int slots_here() const;
    int most_ranks() const;
    void door(const Message& m);
    void safe(const Message& m);
    void finish(const Message& m);
    void slow(const Message& m, double now);
    void replace_slow(double now);
    int free_slots() const;
    void corrupt(const Message& m, double now);
    Restorable restorable() const;
    bool may_sit(const Seat& seat) const;
    void take_over(double now);
    void adopt(const GroupPlan& last);
};

}  // namespace agents

// State of an agent, for its files: agent.cpp has the processes and the loop, agent_join.cpp finds the
// controller, agent_talk.cpp says and hears, agent_images.cpp has what concerns its ranks and their images.
#pragma once
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/comm/agents/controller.h"
#include "llmc/comm/agents/image_store.h"
#include "llmc/comm/agents/lease.h"
#include "llmc/comm/agents/rank_process.h"

inline namespace agents {

// A connection to this agent.
struct Connection {
    Caller caller;
    int64_t agent = 0;                      // that has said Hello, to this controller
};

struct Agent {
    const Config cfg;
    char** const argv;
    const std::string settings;             // settings_text()
    const int64_t id;
    sigset_t mask_of_ranks = {};
    std::function<bool(RankProcess&)> starts_thread = {};   // tests: ranks are threads
    Lease lease;
    Listeners listeners;
    std::string address;                    // of this agent, as others reach it
    uint16_t port = 0;
    std::string secret;

    std::optional<Controller> controller;   // while this agent has the lease
    MessageChannel to_controller;                  // else
    std::vector<Message> from_own;          // what the own controller has said
    double alone_since = 0, looked_for = 0, beat_at = 0;       // without a controller; 0: there is one
    double heard = 0, talked_at = 0;        // of the controller, if it is another; at the last talk()
    int64_t went = 0;                       // generation whose ranks have been told to connect

    std::vector<RankProcess> ranks;         // by slot
    std::vector<std::unique_ptr<Connection>> connections;
    ImageStore images;
    ImageSender buddy;
    double buddy_tried = 0;
    GroupPlan plan;
    std::string plan_bytes;
    int64_t stopping = 0;                   // generation that is being stopped; 0: none
    double stopping_since = 0;
    bool aside = false;                     // its bits were wrong: it has no slots any more
    bool stops = false;                     // and the controller has not heard that it is
    std::vector<bool> due;                  // by slot: the plan has to reach the rank
    double told_to_end = 0;                 // when, by a signal; 0: not told
    std::optional<int> ended;               // exit code of the job

    Agent(const Config& config, char** arguments);
    int run();

    // agent.cpp
    void start_rank(size_t slot);
    void reap();
    void bury(size_t slot, int code);
    void watch(double seconds);
    void take_signals(int file);
    void wait_for_events(int signals);
    int leave();
    bool computing() const;                 // a rank that does not wait for a plan

    // agent_talk.cpp: other agents
    void listen();
    void find_controller();
    void begin_to_control();
    void say_hello();
    void tell_controller(Say kind, const std::string& bytes);
    void talk();                            // with everyone: what has arrived, and what is due
    void hear_connections();
    bool hear(Connection& c, const Message& m);         // false: no message of an agent or a rank
    bool hear_hello(Connection& c, const Message& m);
    void obey(const Message& m);            // of the controller
    void follow(const Message& m);          // a plan
    void deliver(size_t slot);
    void answer_stop();

    // agent_images.cpp: its ranks
    void hear_ranks();
    void hear_rank(size_t slot, const Message& m);
    void note_safe(const ImageStep& s);     // it survives the loss of this node
    void refuse_images(const RankProcess& r, const ImageSpace& space);
    void connect_buddy(const Source& to);
    void lose_buddy();
    void hear_buddy();
};

}  // namespace agents

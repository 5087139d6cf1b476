// How the agents of a run find each other: by the lease of run.dir.
#include <algorithm>
#include <cstdlib>

#include "llmc/base/check.h"
#include "llmc/base/config/axes.h"
#include "llmc/base/console.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/host/version.h"
#include "llmc/comm/agents/agent_state.h"
#include "llmc/comm/same_settings.h"

inline namespace agents {

static constexpr double kLook = 0.3;            // seconds between two looks for a controller
static constexpr double kPatience = 60;         // seconds without agents or a controller; run.hang_timeout

static double patience_of(const Config& cfg) {
    return cfg.run.hang_timeout > 0 ? cfg.run.hang_timeout : kPatience;
}

void Agent::listen() {
    listeners = listen_at("0.0.0.0", {0});
    if (listeners.sockets.empty()) listeners = listen_at("::", {0});
    CHECK_INPUT(!listeners.sockets.empty(), "run.elastic: this agent can listen at no port");
    port = port_of(listeners.sockets[0]);
    const char* const given = getenv("MASTER_ADDR");
    // of a network that no host is in: the way to other hosts
    const std::string outward = own_address_towards("192.0.2.1");
    address = outward.empty() ? "127.0.0.1" : outward;
    if (listen_at(host_name(), {0}).local) address = host_name();
    if (given && listen_at(given, {0}).local) address = given;
    alone_since = seconds_now();
}

void Agent::begin_to_control() {
    controller.emplace();
    controller->rules = {.wanted = cfg.parallel.ranks,
                         .least = cfg.run.min_ranks ? cfg.run.min_ranks : cfg.parallel.ranks,
                         .epoch = int32_t(lease.own.epoch),
                         .fits = [this](int ranks) { return ranks_mistake(cfg, ranks).empty(); },
                         .may_plan = [this] { return lease.keep(true); },
                         .note = [](const std::string& text) { print(stderr, "note: {}\n", text); },
                         .patience = patience_of(cfg)};
    controller->say = [this](int64_t to, Say kind, const std::string& bytes) {
        if (to == id) return void(from_own.push_back({kind, bytes}));
        for (const auto& c : connections)
            if (c->agent == to) c->caller.channel.send(kind, bytes);
    };
    secret = secret_of_run(lease.own.secret);
    alone_since = 0;
    if (lease.own.epoch > 1) controller->take_lease_over(seconds_now());
    say_hello();
}

void Agent::find_controller() {
    const double now = seconds_now();
    if (controller || !to_controller.closed || now - looked_for < kLook) return;
    looked_for = now;
    if (!alone_since) alone_since = now;
    const std::optional<LeaseText> there = lease.read();
    if (!there && plan.head.generation > 0) {       // who ends the job removes the lease
        print(stderr, "error: the job has ended without the agent on {}\n", host_name());
        ended = kExitRestart;
        return;
    }
    const bool others = there && (there->process != getpid() || there->machine != this_machine());
    if ((!others || lease.may_take()) && lease.take(address, port)) return begin_to_control();
    if (!there || !others) return;
    secret = secret_of_run(there->secret);
    to_controller = call_agent(there->machine == this_machine() ? "127.0.0.1" : there->address,
                               uint16_t(there->port), secret, now + 2);
    if (!to_controller.closed) {
        const std::string own = own_address_towards(there->address);
        if (!own.empty()) address = own;
        alone_since = 0;
        heard = now;
        return say_hello();
    }
    if (now - alone_since > patience_of(cfg) + Lease::kTake) {
        print(stderr,
              "error: for {:.0f} s the agent on {} cannot reach the controller, the agent on {} (port {}): "
              "the network is cut, or TRAIN_GPT_SECRET is another one there\n",
              now - alone_since, host_name(), there->host, there->port);
        ended = kExitRestart;
    }
}

static std::string own_version() {
    return fmt::format("{}, {}", commit, built_device).substr(0, sizeof(Word) - 1);
}

void Agent::say_hello() {
    AgentHello h = {};
    set_word(h.host, host_name());
    set_word(h.version, own_version());
    set_word(h.address, address);
    h.id = id;
    h.generation = plan.head.generation;
    h.slots = aside ? 0 : int32_t(ranks.size());
    h.port = port;
    if (controller) {
        controller->joins(id, h, seconds_now());
    } else {
        to_controller.send(Say::Hello, h, settings);
    }
    if (!h.generation) return;
    tell_controller(Say::Plan, plan_bytes);
    for (int r = 0; r < int(plan.seats.size()); r++) {
        const Seat& s = plan.seats[size_t(r)];
        if (s.agent != id || s.slot < 0 || size_t(s.slot) >= ranks.size()) continue;
        if (ranks[size_t(s.slot)].process) continue;
        LostRank l = {.generation = h.generation, .rank = r, .code = 0, .host = h.host, .cause = {}};
        set_word(l.cause, "ended");
        tell_controller(Say::Died, bytes_of(l));
    }
    const bool seated = std::ranges::find(plan.seats, id, &Seat::agent) != plan.seats.end();
    bool waits = seated && went != h.generation;
    for (const RankProcess& r : ranks) waits |= r.process && r.idle && r.generation == h.generation;
    if (waits) tell_controller(Say::Broken, bytes_of(Generation{h.generation}));
}

bool Agent::hear_hello(Connection& c, const Message& m) {
    if (!controller) return false;
    const AgentHello h = m.head<AgentHello>();
    std::string why;
    if (word_text(h.version) != own_version())
        why = fmt::format("the run's agents are of another build: {} there, {} here",
                          own_version(), word_text(h.version));
    else why = settings_difference(settings, std::string(m.rest<AgentHello>()), "agents",
                                   "in the run", "on " + word_text(h.host));
    if (!why.empty()) {
        c.caller.channel.send(Say::Refused, why);
        return true;
    }
    for (const auto& other : connections)       // an earlier connection of this agent closes late
        if (other->agent == h.id) other->agent = 0;
    c.agent = h.id;
    controller->joins(h.id, h, seconds_now());
    return true;
}

}  // namespace agents

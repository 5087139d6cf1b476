// What an agent says and hears.
#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/config/axes.h"
#include "llmc/base/console.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/host/version.h"
#include "llmc/base/terminal.h"
#include "llmc/comm/agents/agent_state.h"
#include "llmc/comm/same_settings.h"

inline namespace agents {

static constexpr double kLook = 0.3;            // seconds between two looks for a controller
static constexpr double kBeat = 0.5;
static constexpr double kPatience = 60;         // seconds without agents or a controller; run.hang_timeout

static double patience_of(const Config& cfg) {
    return cfg.run.hang_timeout > 0 ? cfg.run.hang_timeout : kPatience;
}

void Agent::listen() {
    listeners = listen_at("0.0.0.0", {0});
    if (listeners.sockets.empty()) listeners = listen_at("::", {0});
    CHECK_INPUT(!listeners.sockets.empty(), "run.elastic: this agent can listen at no port");
    port = port_of(listeners.sockets[0]);
    address = listen_at(host_name(), {0}).local ? host_name() : "127.0.0.1";
    alone_since = seconds_now();
}

// ---------------------------------------------------------------------------------------------------------
// the controller

// Ranks of a size that this config can train on.
static bool fits_mesh(const Config& cfg, int ranks) {
    if (!mesh_mistake(cfg.parallel, cfg.model, ranks).empty()) return false;
    return batch_divides(cfg, mesh_shape(cfg.parallel, ranks).dp, cfg.train.micro_batch);
}

void Agent::begin_to_control() {
    controller.emplace();
    controller->rules = {.wanted = cfg.parallel.ranks,
                         .least = cfg.run.min_ranks ? cfg.run.min_ranks : cfg.parallel.ranks,
                         .fits = [this](int ranks) { return fits_mesh(cfg, ranks); },
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
    say_hello();
}

void Agent::find_controller() {
    const double now = seconds_now();
    if (controller || !to_controller.closed || now - looked_for < kLook) return;
    looked_for = now;
    if (!alone_since) alone_since = now;
    const std::optional<LeaseText> there = lease.read();
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
        return say_hello();
    }
    if (now - alone_since > patience_of(cfg) + Lease::kTake) {
        print(stderr, "error: for {:.0f} s the agent on {} cannot reach the controller, the agent on {}\n",
              now - alone_since, host_name(), there->host);
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
    h.slots = int32_t(ranks.size());
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
        if (s.agent != id || ranks[size_t(s.slot)].process) continue;
        LostRank l = {.generation = h.generation, .rank = r, .code = 0, .host = h.host, .cause = {}};
        set_word(l.cause, "ended");
        tell_controller(Say::Died, bytes_of(l));
    }
}

void Agent::tell_controller(Say kind, const std::string& bytes) {
    if (controller) controller->hears(id, {kind, bytes}, seconds_now());
    else to_controller.send(kind, bytes);
}

void Agent::obey(const Message& m) {
    switch (m.kind) {
        case Say::Refused:
            print(stderr, "error: {}\n", for_terminal(m.bytes));
            ended = kExitConfig;
            break;
        case Say::Stop:
            stopping = m.head<Generation>().generation;
            stopping_since = seconds_now();
            for (const RankProcess& r : ranks)
                if (r.page) r.page->stopped = std::max<int64_t>(r.page->stopped, stopping);
            stops = true;
            break;
        case Say::Leave:
            for (const RankProcess& r : ranks)
                if (r.page) r.page->leaves = m.head<Generation>().generation;
            break;
        case Say::Plan: follow(m); break;
        case Say::Go:
            for (size_t slot = 0; slot < ranks.size(); slot++)
                if (ranks[slot].generation == m.head<Generation>().generation)
                    ranks[slot].channel.send(Say::Go, m.bytes);
            break;
        case Say::Settled: images.drop_before(m.head<Generation>().generation); break;
        case Say::Buddy: connect_buddy(m.head<Source>()); break;
        case Say::End: ended = m.head<int32_t>(); break;
        default: break;
    }
}

// The ranks wait: the controller hears what images are here.
void Agent::answer_stop() {
    if (!stops || computing()) return;
    stops = false;
    tell_controller(Say::Ready, bytes_of(Generation{stopping}, bytes_of_list(images.held())));
}

void Agent::follow(const Message& m) {
    plan = plan_of(m.bytes);
    plan_bytes = m.bytes;
    stops = false;
    stopping = 0;
    std::vector<bool> seated(ranks.size());
    for (int r = 0; r < int(plan.seats.size()); r++) {
        const Seat& s = plan.seats[size_t(r)];
        if (s.agent != id || s.slot < 0 || size_t(s.slot) >= ranks.size()) continue;
        const size_t slot = size_t(s.slot);
        seated[slot] = due[slot] = true;
        if (!ranks[slot].process) start_rank(slot);
        ranks[slot].rank = r;
        ranks[slot].generation = plan.head.generation;
        committed[slot] = -1;
        if (ranks[slot].idle) deliver(slot);
    }
    for (size_t slot = 0; slot < ranks.size(); slot++)
        if (!seated[slot] && ranks[slot].process) {
            ranks[slot].rank = -1;
            ranks[slot].signal(SIGKILL);
        }
}

void Agent::deliver(size_t slot) {
    RankProcess& r = ranks[slot];
    due[slot] = false;
    r.idle = false;
    r.page->safe_step = -1;
    Seated seated = {.rank = r.rank, .port = port, .address = {}, .secret = {}};
    set_word(seated.address, address);
    set_word(seated.secret, secret);
    r.channel.send(Say::Plan, seated, plan_bytes);
}

// ---------------------------------------------------------------------------------------------------------
// connections

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
    c.agent = h.id;
    controller->joins(h.id, h, seconds_now());
    return true;
}

bool Agent::hear(Connection& c, const Message& m) {
    if (!c.caller.admitted) return c.caller.admit(m, secret);
    MessageChannel& channel = c.caller.channel;
    switch (m.kind) {
        case Say::Hello: return hear_hello(c, m);
        case Say::Push: {
            const ImageSpace space = m.head<ImageSpace>();
            images.add_copy(space, std::string(m.rest<ImageSpace>()));
            return true;
        }
        case Say::PushData: return images.write(m.head<ImagePart>(), m.rest<ImagePart>());
        case Say::PushDone:
            images.commit(m.head<ImageStep>(), std::string(m.rest<ImageStep>()));
            channel.send(Say::Acked, m.head<ImageStep>());
            return true;
        case Say::FetchHead:
        case Say::Fetch: return images.answer(channel, m);
        default:
            if (!c.agent || !controller) return false;
            controller->hears(c.agent, m, seconds_now());
            return true;
    }
}

void Agent::hear_connections() {
    for (const Socket& s : listeners.sockets)
        for (;;) {
            Socket caller(accept4(s.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (!caller) break;
            connections.push_back(std::make_unique<Connection>(Connection{Caller(std::move(caller))}));
        }
    for (const auto& c : connections) {
        MessageChannel& channel = c->caller.channel;
        channel.flush();
        while (std::optional<Message> m = channel.next())
            if (!hear(*c, *m)) channel.close();
        if (!c->caller.admitted && seconds_now() > c->caller.until) channel.close();
        if (channel.closed && c->agent && controller) controller->loses(c->agent, seconds_now());
    }
    std::erase_if(connections, [](const auto& c) { return c->caller.channel.closed; });
}

void Agent::talk() {
    const double now = seconds_now();
    find_controller();
    hear_ranks();
    hear_connections();
    while (std::optional<Message> m = to_controller.next()) obey(*m);
    to_controller.flush();
    for (size_t i = 0; i < from_own.size(); i++) obey(Message(from_own[i]));
    from_own.clear();
    hear_buddy();
    answer_stop();
    if (now - beat_at > kBeat) {
        beat_at = now;
        tell_controller(Say::Beat, bytes_of(Generation{plan.head.generation}));
    }
    if (!controller) return;
    controller->look(now);
    if (!lease.keep()) {
        print(stderr, "error: the agent on {} has lost the lease of the run, and ends\n", host_name());
        ended = kExitRestart;
    }
}

}  // namespace agents

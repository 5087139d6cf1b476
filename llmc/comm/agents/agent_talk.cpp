// What an agent says to other agents and the controller, and hears of them.

#include "llmc/base/console.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/terminal.h"
#include "llmc/comm/agents/agent_state.h"

inline namespace agents {

static constexpr double kBeat = 0.5;
static constexpr double kSilent = 10;           // seconds without a beat of the controller: it is gone

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
        case Say::Aside: aside = true; break;
        case Say::Forget: images.forget(m.head<ImageBound>()); break;
        case Say::Plan: follow(m); break;
        case Say::Go:
            went = m.head<Generation>().generation;
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
    images.drop_between(plan.head.step < 0 ? 0 : plan.head.from, plan.head.generation);
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
    if (told_to_end) r.signal(SIGUSR2);             // kept for the first step
    Seated seated = {.rank = r.rank, .port = port, .address = {}, .secret = {}};
    set_word(seated.address, address);
    set_word(seated.secret, secret);
    r.channel.send(Say::Plan, seated, plan_bytes);
}

// ---------------------------------------------------------------------------------------------------------
// connections

bool Agent::hear(Connection& c, const Message& m) {
    if (!c.caller.admitted) return c.caller.admit(m, secret);
    MessageChannel& channel = c.caller.channel;
    switch (m.kind) {
        case Say::Hello: return hear_hello(c, m);
        case Say::Push: {
            const ImageSpace space = m.head<ImageSpace>();
            if (space.generation >= plan.head.generation || space.generation == plan.head.from)
                images.add_copy(space, std::string(m.rest<ImageSpace>()));
            return true;
        }
        case Say::PushData:                 // of images that the last plan has made useless, too
            return images.write(m.head<ImagePart>(), m.rest<ImagePart>()) ||
                   m.head<ImagePart>().generation < plan.head.generation;
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
        if (c->agent && controller && !controller->has(c->agent)) channel.close();      // it joins anew
    }
    std::erase_if(connections, [](const auto& c) { return c->caller.channel.closed; });
}

void Agent::talk() {
    const double now = seconds_now();
    find_controller();
    hear_ranks();
    hear_connections();
    if (now - talked_at > kSilent / 2) heard = now;         // this process was stopped
    talked_at = now;
    for (const RankProcess& r : ranks)
        if (r.page) r.page->agent_beats++;
    while (std::optional<Message> m = to_controller.next()) {
        heard = now;
        obey(*m);
    }
    to_controller.flush();
    if (!to_controller.closed && now - heard > kSilent) to_controller.close();
    for (size_t i = 0; i < from_own.size(); i++) obey(Message(from_own[i]));
    from_own.clear();
    hear_buddy();
    answer_stop();
    if (now - beat_at > kBeat) {
        beat_at = now;
        tell_controller(Say::Beat, bytes_of(Generation{plan.head.generation}));
        for (const auto& c : connections)
            if (controller && c->agent) c->caller.channel.send(Say::Beat);
    }
    if (!controller) return;
    controller->look(now);
    if (!lease.keep()) {
        print(stderr, "error: the agent on {} has lost the lease of the run, and ends\n", host_name());
        ended = kExitRestart;
    }
}

}  // namespace agents

// What an agent hears of its ranks, and what it does with images of their state.
#include <algorithm>

#include "llmc/comm/agents/agent_state.h"

inline namespace agents {

void Agent::hear_rank(size_t slot, const Message& m) {
    RankProcess& r = ranks[slot];
    switch (m.kind) {
        case Say::Ready: {
            const bool by_itself = r.generation > 0 && !due[slot] && r.page->stopped < r.generation;
            r.idle = true;
            if (by_itself) tell_controller(Say::Broken, bytes_of(Generation{r.generation}));
            if (due[slot]) deliver(slot);
            break;
        }
        case Say::Door: tell_controller(Say::Door, m.bytes); break;
        case Say::Images:
            images.add(m.head<ImageSpace>(), r.process, std::string(m.rest<ImageSpace>()));
            break;
        case Say::Commit: {
            const ImageStep s = m.head<ImageStep>();
            images.commit(s, std::string(m.rest<ImageStep>()));
            committed[slot] = s.step;
            if (buddy.call.channel.closed) note_safe(s);
            else buddy.add(s);
            break;
        }
        case Say::Finished:
            r.finished = true;
            tell_controller(Say::Finished, m.bytes);
            break;
        default: break;
    }
}

// The first image of a rank in its generation makes older ones unneeded.
void Agent::note_safe(const ImageStep& s) {
    for (RankProcess& r : ranks) {
        if (!r.process || r.rank != s.rank || r.generation != s.generation) continue;
        const bool first = r.page->safe_step < 0;
        r.page->safe_step = std::max<int64_t>(r.page->safe_step, s.step);
        if (first) tell_controller(Say::Safe, bytes_of(DoorOf{s.generation, s.rank, 0}));
    }
}

void Agent::connect_buddy(const Source& to) {
    if (!buddy.call.channel.closed && buddy.to.address == to.address && buddy.to.port == to.port) return;
    lose_buddy();
    buddy.to = to;
    if (to.port) buddy.call = AgentCall(word_text(to.address), uint16_t(to.port), secret, seconds_now() + 2);
}

// Without a buddy the images here are all there is.
void Agent::lose_buddy() {
    buddy.call = AgentCall();
    buddy.reset();
    for (size_t slot = 0; slot < ranks.size(); slot++)
        if (ranks[slot].process && committed[slot] >= 0)
            note_safe({ranks[slot].generation, committed[slot], ranks[slot].rank, 0});
}

void Agent::hear_buddy() {
    MessageChannel& channel = buddy.call.channel;
    while (std::optional<Message> m = channel.next()) {
        if (!buddy.call.proved && !buddy.call.take(*m)) channel.close();
        if (m->kind == Say::Acked) note_safe(m->head<ImageStep>());
    }
    if (channel.closed && buddy.to.port) lose_buddy();
    buddy.advance(images);
}

void Agent::hear_ranks() {
    for (size_t slot = 0; slot < ranks.size(); slot++) {
        ranks[slot].channel.flush();
        while (std::optional<Message> m = ranks[slot].channel.next()) hear_rank(slot, *m);
    }
}

}  // namespace agents

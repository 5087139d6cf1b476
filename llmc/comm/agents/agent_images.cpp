// What an agent hears of its ranks, and what it does with images of their state.
#include <algorithm>

#include "llmc/base/console.h"
#include "llmc/base/host/machine.h"
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
        case Say::Images: {
            const auto added = images.add(m.head<ImageSpace>(), r.process, std::string(m.rest<ImageSpace>()));
            if (added == ImageStore::Added::NoRoom) refuse_images(r, m.head<ImageSpace>());
            if (added == ImageStore::Added::Gone) r.kill_for("ended before its images were there");
            break;
        }
        case Say::Commit: {
            const ImageStep s = m.head<ImageStep>();
            images.commit(s, std::string(m.rest<ImageStep>()));
            if (buddy.call.channel.closed) note_safe(s);
            else buddy.add(s);
            break;
        }
        case Say::Slow:
        case Say::Corrupt: tell_controller(m.kind, m.bytes); break;
        case Say::Finished:
            r.finished = true;
            tell_controller(Say::Finished, m.bytes);
            break;
        default: break;
    }
}

// The first image of a rank in its generation from which the run can go on makes older ones unneeded.
void Agent::note_safe(const ImageStep& s) {
    if (s.needs[0] == kNeverRestored) return;
    for (RankProcess& r : ranks) {
        if (!r.process || r.rank != s.rank || r.generation != s.generation) continue;
        const bool first = r.page->safe_step < 0;
        r.page->safe_step = std::max<int64_t>(r.page->safe_step, s.step);
        if (first) tell_controller(Say::Safe, bytes_of(DoorOf{s.generation, s.rank, 0}));
    }
}

// Without memory for images the job could not go on after a loss: it ends now.
void Agent::refuse_images(const RankProcess& r, const ImageSpace& space) {
    print(stderr, "error: the agent on {} has no room for {} images of {} of rank {}: see `ulimit -v`, or "
          "set run.elastic to false\n", host_name(), space.places, human_bytes(double(space.bytes)), r.rank);
    LostRank l = {.generation = r.generation, .rank = r.rank, .code = kExitConfig, .host = {}, .cause = {}};
    tell_controller(Say::Died, bytes_of(l));
}

// The images that are there go to the new one at once.
void Agent::connect_buddy(const Source& to) {
    if (!buddy.call.channel.closed && buddy.to.address == to.address && buddy.to.port == to.port) return;
    buddy.call = AgentCall();
    buddy.reset();
    buddy.to = to;
    buddy_tried = seconds_now();
    if (!to.port) return lose_buddy();
    buddy.call = AgentCall(word_text(to.address), uint16_t(to.port), secret, buddy_tried + 2);
    for (const RankProcess& r : ranks)
        if (r.process)
            for (const ImageStep& s : images.images_of(r.generation, r.rank)) buddy.add(s);
}

// Without a buddy the images here are all there is.
void Agent::lose_buddy() {
    buddy.call = AgentCall();
    buddy.reset();
    for (const RankProcess& r : ranks)
        if (r.process)
            for (const ImageStep& s : images.images_of(r.generation, r.rank)) note_safe(s);
}

void Agent::hear_buddy() {
    MessageChannel& channel = buddy.call.channel;
    while (std::optional<Message> m = channel.next()) {
        if (!buddy.call.proved && !buddy.call.take(*m)) channel.close();
        if (m->kind == Say::Acked) note_safe(m->head<ImageStep>());
    }
    if (channel.closed && buddy.to.port) {
        static constexpr double kAgain = 5;     // seconds until the next call
        lose_buddy();
        if (seconds_now() - buddy_tried > kAgain) connect_buddy(Source(buddy.to));
    }
    buddy.advance(images);
}

void Agent::hear_ranks() {
    for (size_t slot = 0; slot < ranks.size(); slot++) {
        ranks[slot].channel.flush();
        while (std::optional<Message> m = ranks[slot].channel.next()) hear_rank(slot, *m);
    }
}

}  // namespace agents

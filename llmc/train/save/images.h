// Images of this rank's state in memory, for train.rollback. An image has the rank's weights and its
// optimizer's state as they lie here, and the RunState of its step.
//
// A restart has no images and takes the same decisions. For that, a checkpoint that falls due forgets all
// images before it, and the first step of every start is an image.
#pragma once
#include <vector>

#include "llmc/train/save/run_state.h"
#include "llmc/train/step/shards.h"

namespace PRECISION::inline saves {

struct Images {
    static constexpr size_t kImages = 2;

    Images(const RollbackRule& r, Shards& s) : rule(r), shards(s), on(r.every > 0 && s.trains) {}
    Images(const Images&) = delete;

    void add_to(Arena& host) {
        host.add("images of the state, for train.rollback", &memory, on ? kImages * bytes() : 0);
    }

    bool due(int64_t step) const { return on && step % rule.every == 0; }
    // Of the images that are there, the oldest first.
    std::vector<int64_t> steps() const {
        std::vector<int64_t> all;
        for (const Image& image : kept) all.push_back(image.state.step);
        return all;
    }
    // Whether the last step was in trouble: its state is no image and no checkpoint.
    bool in_trouble(const RunState& state) const { return on && state.trouble.first > 0; }
    // Copies the state where an image is due. anew: a checkpoint is due, and earlier images are forgotten.
    void keep(const RunState& state, bool anew) {
        if (!on) return;
        if (anew) kept.clear();
        const bool there = !kept.empty() && kept.back().state.step == state.step;      // after a rollback
        if (there || (!kept.empty() && (!due(state.step) || in_trouble(state)))) return;
        if (kept.size() == kImages) kept.erase(kept.begin());
        const size_t place = kept.empty() ? 0 : 1 - kept.back().place;
        std::byte* to = memory + place * bytes();
        for (const Buffer& b : buffers()) {
            ops::start_copy_to_host(to, b.memory, b.bytes);
            to += b.bytes;
        }
        ops::finish_copies();                   // also those of the last update
        kept.push_back({state, place});
    }
    // Restores the newest image that is rule.steps older than the trouble, else the oldest, and forgets the
    // other. Returns the image's RunState, for the caller to change and to go on with.
    RunState& go_back(const Trouble& trouble) {
        CHECK(!kept.empty(), "train.rollback: no image of the state");
        while (kept.size() > 1 && kept.back().state.step > trouble.first - rule.steps) kept.pop_back();
        const std::byte* from = memory + kept.back().place * bytes();
        ops::finish_copies();
        if (shards.await_readers) shards.await_readers();       // a save reads offloaded state where it lies
        for (const Buffer& b : buffers()) {
            ops::copy_to_device(b.memory, from, b.bytes);
            from += b.bytes;
        }
        shards.weights_changed();
        kept.erase(kept.begin(), kept.end() - 1);
        return kept.back().state;
    }

private:
    struct Buffer { std::byte* memory; size_t bytes; };
    struct Image { RunState state; size_t place; };

    // What an update changes.
    std::vector<Buffer> buffers() const {
        std::vector<Buffer> all = {{reinterpret_cast<std::byte*>(shards.params),
                                    shards.count_of(Kept::Weights, false) * sizeof(floatX)}};
        if (shards.hosts_blocks)
            all.push_back({reinterpret_cast<std::byte*>(shards.host_params),
                           shards.count_of(Kept::Weights, true) * sizeof(floatX)});
        for (const StateSlot& slot : shards.state)
            all.push_back({slot.memory, slot.bytes(slot.at.back())});
        return all;
    }
    size_t bytes() const {
        size_t sum = 0;
        for (const Buffer& b : buffers()) sum += b.bytes;
        return sum;
    }

    RollbackRule rule;
    Shards& shards;
    bool on;
    std::byte* memory = nullptr;                // (kImages, bytes())
    std::vector<Image> kept;                     // the oldest first
};

}  // namespace PRECISION::saves

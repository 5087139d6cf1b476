#include "llmc/train/replicas/replay.h"

#include <bit>
#include <utility>

#include "llmc/base/guard/flip.h"
#include "llmc/train/replicas/state_hashes.h"

namespace PRECISION::inline replicas {

Replay::Replay(Pipeline& p)
    : pipeline(p), gpt(p.gpt), shards(p.zero.shards),
      reader([this](int bucket, const real* whole) { read(bucket, whole); }) {}

size_t Replay::place_of(int bucket) const {
    const Layout& layout = shards.layout;
    if (bucket == layout.final) return 1;
    if (shards.is_block(bucket)) {
        const int layer = gpt.part.layers[size_t(bucket - layout.blocks)];
        return 2 + size_t(gpt.d.L - 1 - layer);
    }
    return size_t(gpt.d.L) + (bucket == layout.wte ? 2 : 3);
}

void Replay::add(int bucket, const real* whole) {
    CopyHash& h = reading[place_of(bucket)];
    if (h.group) return;                    // a later micro-batch, whose sums have more than one
    const Mesh& mesh = pipeline.mesh;           // the ranks at this place of each replica
    h.group = 1 + uint64_t(mesh.tp.index + mesh.tp.size * (mesh.pp.index + mesh.pp.size * mesh.cp.index));
    h.hash = hash_of(whole, shards.layout.size(bucket) * sizeof *whole);
}

// With the final group the loss is there, and on a stage that does not embed the gradient of a tied wte.
void Replay::read(int bucket, const real* whole) {
    add(bucket, whole);
    if (bucket != shards.layout.final || reading[0].group) return;
    double loss = 0;
    ops::copy_to_host(&loss, gpt.loss, sizeof loss);
    reading[0] = {.group = 1 + uint64_t(pipeline.mesh.cp.index), .hash = std::bit_cast<uint64_t>(loss)};
    if (!gpt.part.first && shards.layout.wte >= 0)
        add(shards.layout.wte, shards.gradient(shards.layout.wte, 0));
}

// A flip that tests ask for is for the step itself.
Replay::Hashes Replay::rehearse(const Dataset& set, uint64_t sample, int dp) {
    const Flip asked = std::exchange(flip_asked, Flip::None);
    reading.assign(places(), {});
    pipeline.zero.reader = &reader;
    pipeline.rehearse(set, sample, dp);
    pipeline.zero.reader = nullptr;
    flip_asked = asked;
    return std::exchange(reading, {});
}

void Replay::expect(const Dataset& set, uint64_t sample, int dp) {
    again = rehearse(set, sample, dp);
    before.clear();
    reads_step = pipeline.mesh.dp.index == dp;
    if (!reads_step) return;
    reading.assign(places(), {});
    pipeline.zero.reader = &reader;
}

void Replay::expect_twice(const Dataset& set, uint64_t sample) {
    before = rehearse(set, sample, 0);
    again = rehearse(set, sample, 0);
}

// Beside the hashes travels the place where this rank contradicts itself, plus 1.
Suspects Replay::compare() {
    if (std::exchange(reads_step, false)) {
        before = std::exchange(reading, {});
        pipeline.zero.reader = nullptr;
    }
    uint64_t own = 0;
    for (size_t i = before.size(); i-- > 0;)
        if (before[i].hash != again[i].hash) own = i + 1;
    const Axis& world = pipeline.mesh.world;
    Hashes mine = again, all(size_t(world.size) * (places() + 1));
    mine.push_back({.group = 0, .hash = own});
    const uint64_t* const gathered = world.all_gather(&all[0].group, &mine[0].group, 2 * mine.size());
    if (world.size == 1) std::copy_n(gathered, 2 * mine.size(), &all[0].group);
    Suspects itself{.kind = places()};
    for (int rank = 0; rank < world.size; rank++) {
        const uint64_t place = all[size_t(rank + 1) * mine.size() - 1].hash;
        if (place == 0) continue;
        itself.ranks.push_back(rank);
        itself.kind = std::min(itself.kind, size_t(place - 1));
    }
    return itself.any() ? itself : ::replicas::compare(all, mine.size());
}

std::string Replay::name_of(const Suspects& s) const {
    const size_t L = size_t(gpt.d.L);
    if (s.kind == 0) return "loss";
    if (s.kind == 1) return "gradient of the final norm";
    if (s.kind < 2 + L) return fmt::format("gradient of block {}", L + 1 - s.kind);
    return "gradient of the embedding";
}

}  // namespace PRECISION::replicas

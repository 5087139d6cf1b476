#include "llmc/train/replicas/state_hashes.h"

#include <xxhash.h>

#include "llmc/base/guard/progress_page.h"

namespace PRECISION::inline replicas {

enum CopyScope : size_t { kCut, kUncut, kTied, kScopes };

static constexpr size_t kHashPart = size_t(1) << 20;       // bytes

static uint64_t hash_on_host(const std::byte* memory, size_t bytes, uint64_t seed) {
    const size_t parts = (bytes + kHashPart - 1) / kHashPart;
    std::vector<uint64_t> hashes(parts);
    #pragma omp parallel for schedule(static) num_threads(context.threads) if (parts > 1)
    for (size_t i = 0; i < parts; i++)
        hashes[i] = XXH3_64bits(memory + i * kHashPart, std::min(kHashPart, bytes - i * kHashPart));
    return XXH3_64bits_withSeed(hashes.data(), parts * sizeof hashes[0], seed);
}

// Parts of device memory pass through the host.
static uint64_t hash_on_device(const std::byte* memory, size_t bytes, uint64_t seed) {
    const size_t parts = (bytes + kHashPart - 1) / kHashPart;
    std::vector<uint64_t> hashes(parts);
    std::vector<std::byte> part(std::min(bytes, kHashPart));
    for (size_t i = 0; i < parts; i++) {
        const size_t n = std::min(kHashPart, bytes - i * kHashPart);
        ops::copy_to_host(part.data(), memory + i * kHashPart, n);
        hashes[i] = XXH3_64bits(part.data(), n);
    }
    return XXH3_64bits_withSeed(hashes.data(), parts * sizeof hashes[0], seed);
}

uint64_t hash_of(const void* memory, size_t bytes, uint64_t seed) {
    const auto* const from = static_cast<const std::byte*>(memory);
    beat();
    return ops::on_device(memory) ? hash_on_device(from, bytes, seed) : hash_on_host(from, bytes, seed);
}

size_t copy_kinds(const Shards& shards) { return kScopes * (1 + shards.state.size()); }

const char* name_of_copies(const Shards& shards, size_t kind) {
    return kind < kScopes ? "weights" : shards.state[kind / kScopes - 1].planned;
}

// A number for those that have to agree: this rank's place on the axes on which they do not differ.
static uint64_t group_of(const Mesh& mesh, CopyScope scope, bool sharded) {
    const uint64_t shard = sharded ? uint64_t(mesh.shard.index) : 0;
    const uint64_t pp = scope == kTied ? 0 : uint64_t(mesh.pp.index);
    const uint64_t tp = scope == kUncut ? 0 : uint64_t(mesh.tp.index);
    return 1 + tp + uint64_t(mesh.tp.size) * (pp + uint64_t(mesh.pp.size) * shard);
}

static CopyScope scope_of(const Shards& shards, const Tensor& t) {
    if (t.param.split == Split::None) return kUncut;
    return t.bucket == shards.layout.wte && shards.mesh.tied.size > 1 ? kTied : kCut;
}

std::vector<CopyHash> hashes_of_state(const Shards& shards) {
    ops::finish_copies();                       // offloaded state, on its way since the last update
    std::vector<CopyHash> hashes(copy_kinds(shards));
    const auto add = [&](size_t array, bool sharded, const Tensor& t, const void* at, size_t bytes) {
        const CopyScope scope = scope_of(shards, t);
        CopyHash& h = hashes[array * kScopes + scope];
        h.group = group_of(shards.mesh, scope, sharded);
        h.hash = hash_of(at, bytes, h.hash);
    };
    for (const Tensor& t : shards.layout.tensors) {
        const Interval all = shards.layout.in_bucket(t);
        const Interval here = common(all, shards.home_of(t.bucket, Kept::Weights).elements);
        if (!here.empty())
            add(0, shards.sharding.weights, t, shards.weight(t.bucket, here.begin),
                here.count * sizeof(floatX));
        for (size_t i = 0; i < shards.state.size(); i++) {
            const StateSlot& slot = shards.state[i];
            const Interval kept = common(all, shards.home_of(t.bucket, slot).elements);
            if (slot.memory && !kept.empty())
                add(1 + i, shards.sharding.state, t, shards.state_at(slot, t.bucket, kept.begin),
                    slot.bytes(kept.count));
        }
    }
    return hashes;
}

}  // namespace PRECISION::replicas

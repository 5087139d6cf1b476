// A micro-batch computed again, by all data-parallel ranks at once: hashes of its loss and of the gradient of
// each block. Ranks that compute the same numbers agree; and a rank agrees with what it computed before.
//
//     expect(set, sample, dp);        the first micro-batch of rank dp in the step to come
//     pipeline.run(loader);           reads what rank dp computes in the step itself
//     const Suspects s = compare();
#pragma once
#include "llmc/train/replicas/compare.h"
#include "llmc/train/step/pipeline.h"

namespace PRECISION::inline replicas {

struct Replay {
    explicit Replay(Pipeline& pipeline);
    Replay(const Replay&) = delete;

    void expect(const Dataset& set, uint64_t sample, int dp);
    // Of two computations one after the other, without a step.
    void expect_twice(const Dataset& set, uint64_t sample);
    // All ranks together. A rank that contradicts itself is named before one that others contradict. Ranks of
    // tp and pp compute a micro-batch together: all of them that differ are named.
    Suspects compare();
    std::string name_of(const Suspects& s) const;       // "loss", "gradient of block 3"

private:
    using Hashes = std::vector<CopyHash>;
    // In the order of computing: the loss, the final group, the blocks from the last on, the embedding.
    size_t places() const { return size_t(gpt.d.L) + 4; }
    size_t place_of(int bucket) const;
    void read(int bucket, const real* whole);
    void add(int bucket, const real* whole);
    Hashes rehearse(const Dataset& set, uint64_t sample, int dp);

    Pipeline& pipeline;
    Gpt& gpt;
    const Shards& shards;
    const std::function<void(int bucket, const real* whole)> reader;
    Hashes reading, again, before;      // again: of the rehearsal; before: what it has to equal, or empty
    bool reads_step = false;            // `reading` is of a step's own first micro-batch
};

}  // namespace PRECISION::replicas

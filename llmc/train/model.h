// Everything that a run holds in memory, planned before it is allocated.
#pragma once
#include <optional>

#include "llmc/base/machine.h"
#include "llmc/train/generate.h"
#include "llmc/train/optimizer.h"
#include "llmc/train/pipeline.h"

namespace PRECISION {

struct Model {
    Zero zero;
    Gpt gpt;
    std::optional<Optimizer> optimizer;    // when there are steps to train
    std::optional<Decoder> decoder;        // when text is generated
    std::byte* scratch;                    // of ops
    size_t scratch_bytes;
    Arena arena;

    // micro_batch: sequences at once. Plans; takes no memory.
    Model(const Config& cfg, const Dims& d, const Mesh& mesh, int micro_batch, bool generates);

    void warm_up() const;      // libraries build what they build on first use
    void allocate();
};

// Dims of a config whose vocabulary is known.
Dims dims_of(const Config& cfg, int vocab);

// train.micro_batch, or where that is 0 the largest divisor of the rows of a step whose plan fits in memory;
// 1 where none does.
int choose_micro_batch(const Config& cfg, const Dims& d, const Mesh& mesh, bool generates,
                       size_t available = available_memory_bytes());

// The same, refused where its plan does not fit: the message names what would.
int fitting_micro_batch(const Config& cfg, const Dims& d, const Mesh& mesh, bool generates,
                        size_t available = available_memory_bytes());

// The plan, a row per kind of memory, and its sum.
std::string plan_text(const Config& cfg, const Model& model);

}  // namespace PRECISION

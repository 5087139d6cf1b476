// Runs the forwards and backwards of a step, and of an evaluation.
#pragma once
#include <optional>
#include <span>

#include "llmc/train/loader.h"
#include "llmc/train/schedule.h"
#include "llmc/train/zero.h"

namespace PRECISION {

struct Pipeline {
    Gpt& gpt;
    Zero& zero;
    int64_t batch_rows;              // rows of a step, over all ranks
    std::vector<Action> actions;     // of this stage, in a step

    Pipeline(Gpt& gpt, Zero& zero, int64_t batch_tokens);

    // Mean loss per token of a step's batch. The gradients of that mean are left in zero.grads.
    double run(Loader& data);

    struct Evaluation {
        double loss;                             // mean per token
        std::optional<double> bits_per_byte;     // of the targets' text; none where `bytes` is empty
    };
    // Over the first `batches` batches of the set, its rows in order; 0: over every row. bytes: length of
    // each id's text. Nothing where stop_asked() cut it short.
    std::optional<Evaluation> evaluate(const Dataset& set, int64_t batches,
                                       std::span<const uint16_t> bytes);

private:
    Batch batch_of(const TokenBatch& b) const {
        return {.tokens = b.tokens.data(), .targets = b.targets.data(), .B = b.B, .T = gpt.shape.T};
    }
};

}  // namespace PRECISION

// Runs the forwards and backwards of a step, and of an evaluation: this rank's part of them.
#pragma once
#include <deque>
#include <optional>
#include <span>

#include "llmc/train/loader.h"
#include "llmc/train/stage.h"
#include "llmc/train/zero.h"

namespace PRECISION {

struct Pipeline {
    Gpt& gpt;
    Zero& zero;
    Mesh mesh;
    Stage stage;
    int64_t batch_rows;              // rows of a step, over all ranks

    Pipeline(const Config& cfg, const Mesh& mesh, const Stage& stage, Gpt& gpt, Zero& zero);
    Pipeline(const Pipeline&) = delete;
    void add_to(Arena& arena);

    // This rank's share of the mean loss per token of a step's batch: the mean is the sum over the ranks. The
    // gradients of that mean are left with zero, summed and spread as its stage says.
    double run(Loader& data);

    struct Evaluation {
        double loss;                             // mean per token
        std::optional<double> bits_per_byte;     // of the targets' text; none where `bytes` is empty
    };
    // Over the first `batches` batches of the set, its rows in order; 0: over every row. bytes: length of
    // each id's text. The same on every rank. Nothing where a signal to any of them cut it short.
    std::optional<Evaluation> evaluate(const Dataset& set, int64_t batches,
                                       std::span<const uint16_t> bytes);

private:
    struct Sent { int chunk, micro; };
    std::vector<TokenBatch> batches;             // of the micro-batches that are alive
    floatX* outbox = nullptr;                    // gradients that wait to be sent
    std::deque<Sent> waiting;                    // what they are, oldest first
    size_t posted = 0;                           // gradients put in the outbox so far

    TokenBatch& batch(int micro) { return batches[size_t(micro) % batches.size()]; }
    int slot(const Action& a) const { return a.micro % stage.slots[size_t(a.chunk)]; }
    Batch of(const TokenBatch& b) const {
        return {.tokens = b.tokens.data(), .targets = b.targets.data(), .B = b.B, .T = gpt.shape.T};
    }
    bool counts() const { return mesh.tp.index == 0 && gpt.part.last; }      // one of the ranks with a loss
    size_t stream_of(const Action& a) { return gpt.stream_count(batch(a.micro).B * gpt.shape.T); }
    size_t outbox_slots() const { return stage.waiting ? size_t(stage.waiting) + 1 : 0; }

    std::vector<int> block_order(const std::vector<Action>& actions) const;
    void send(const Action& a);
    void receive(const Action& a);
    void backward(const Action& a, real dloss);
    void evaluate_rounds(const Dataset& set, uint64_t first, uint64_t rows, int rounds);
};

}  // namespace PRECISION

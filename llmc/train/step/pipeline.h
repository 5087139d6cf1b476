// Room train/step: what a step is: schedule, pipeline, ZeRO, gradient norm, optimizers, learning rate.
// Called by train_gpt.cu, train/run and train/score; train/save reads and restores its state.
// The room follows the tables of model/. It knows no formula of a layer.
//
// Runs this rank's forwards and backwards of a step, and its forwards of an evaluation.
#pragma once
#include <optional>
#include <span>

#include "llmc/train/data/loader.h"
#include "llmc/train/step/schedule.h"
#include "llmc/train/step/zero.h"

namespace PRECISION::inline step {

// The blocks of a part in the order in which the actions request weights.
std::vector<int> block_order(const Part& part, const std::vector<Action>& actions);

struct Pipeline {
    Gpt& gpt;
    Zero& zero;
    Mesh mesh;
    Stage stage;
    int64_t batch_rows;              // rows of a step, over all ranks
    std::function<void()> before_run = {};      // of each step with data; may be empty

    static constexpr int kBuffered = 4;          // micro-batches in copy

    Pipeline(const Config& cfg, const Mesh& mesh, const Stage& stage, Gpt& gpt, Zero& zero);
    Pipeline(const Pipeline&) = delete;
    void add_to(ArenaOf arena, Arena& host);

    // Runs the forwards and backwards of a step. `zero` then holds the gradients of the mean loss per token,
    // summed and placed by its Sharding.
    void run(Loader& data) { run(&data); }
    // For ranks that walk, without data. walk(): a step. walk_evaluation(): the first and the last rounds of
    // an evaluation of `rows` rows.
    void walk() { run(nullptr); }
    void walk_evaluation(uint64_t rows);
    // Computes the first micro-batch of data-parallel rank `dp`, forward and backward, with run()'s bits.
    // sample: the first of the step. Zero::reader gets the gradients, which are not summed over ranks; the
    // next step begins as it would without. All ranks together and for one `dp`, as they gather weights. An
    // interleaved pipeline computes pp micro-batches.
    void rehearse(const Dataset& set, uint64_t sample, int dp);
    // *out, on the device, = the sum of the step's losses that this rank counts; one rank counts each loss.
    void sum_losses(double* out) const;
    double step_tokens() const { return double(batch_rows) * gpt.shape.T; }
    // Of a step to data-parallel rank `dp`.
    Deal deal(int dp) const {
        return {.B = gpt.shape.B, .rank = dp, .ranks = mesh.dp.size, .rounds = stage.shape.micros,
                .rows = uint64_t(batch_rows), .part = gpt.attention.part()};
    }

    struct Evaluation {
        double loss;                             // mean per token
        // Of the targets' text: control tokens have no bytes, their losses are left out. Empty: no `bytes`.
        std::optional<double> bits_per_byte;
    };
    // Evaluates the first `batches` batches of the set, its rows in order; 0 and -1: as eval.batches. bytes:
    // length of each id's text. Equal on every rank. Empty if a signal to any rank interrupted the
    // evaluation.
    std::optional<Evaluation> evaluate(const Dataset& set, int64_t batches,
                                       std::span<const uint16_t> bytes) {
        return evaluate(&set, rows_of_evaluation(set, batches), bytes);
    }
    uint64_t rows_of_evaluation(const Dataset& set, int64_t batches) const;     // of all ranks together

    double summed_loss() const;                  // since gpt.clear_loss(), on ranks that count the loss

private:
    std::vector<TokenBatch> batches;             // of the micro-batches alive
    int32_t* tokens = nullptr;                   // of each batch, with its targets and documents
    int32_t* outgoing = nullptr;                 // on the host, on their way there
    ops::CopyTicket on_their_way[kBuffered];
    size_t brought = 0;
    floatX* outbox = nullptr;                    // streams on their way to other pipeline stages
    std::vector<Pending> sends;                  // of each
    size_t sent = 0;                             // so far

    TokenBatch& batch(int micro) { return batches[size_t(micro) % batches.size()]; }
    int buffer(const Action& a) const { return a.micro % stage.buffers[size_t(a.chunk)]; }
    size_t place(int micro) const { return size_t(micro) % places(); }
    size_t places() const { return size_t(stage.buffers[0]) + 1; }      // micro-batches alive, and the next
    RowPart part() const { return gpt.attention.part(); }
    size_t ids_in_tables(int B) const;           // of a batch of B rows
    size_t ids_of_batch() const { return ids_in_tables(gpt.shape.B); }
    Batch of(int micro) { return in_place(batch(micro), place(micro)); }
    Batch in_place(const TokenBatch& b, size_t place) const;
    Batch brought_now(const TokenBatch& b);
    const ops::CopyTicket& bring(const TokenBatch& b, size_t place);
    void run(Loader* data);
    void compute(const Action& a, const Batch& b);
    void load(Loader* data, int micro);
    bool counts() const { return mesh.tp.index == 0 && gpt.part.last; }      // one of the ranks with a loss
    size_t ids_of(const TokenBatch& b) const { return size_t(b.B) * size_t(gpt.shape.here()); }
    size_t message_of(const Action& a) { return gpt.message_count(batch(a.micro).B * gpt.shape.here()); }
    size_t largest_message() const { return gpt.message_count(gpt.shape.N()); }

    void send(const Action& a);
    void receive(const Action& a);
    void finish_sends();
    // Of an evaluation: enough to fill the pipeline, so one for one stage; by layers as many as are alive.
    uint64_t rounds_at_once() const {
        const uint64_t pp = uint64_t(mesh.pp.size);
        return stage.shape.layers ? uint64_t(stage.buffers[0]) : pp * pp;
    }
    std::optional<Evaluation> evaluate(const Dataset* set, uint64_t rows, std::span<const uint16_t> bytes);
    int64_t evaluate_rounds(const Dataset* set, uint64_t first, uint64_t rows, int rounds,
                            std::span<const uint16_t> bytes);
    int64_t text_bytes(const TokenBatch& b, std::span<const uint16_t> bytes);
};

}  // namespace PRECISION::step

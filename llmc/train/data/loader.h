// Micro-batches in the order of their samples, read ahead by a thread.
//
// Data-parallel ranks receive a step's samples in turn, a micro-batch at a time: every mesh trains on the
// same samples in the same steps. Where ranks do not divide the micro-batches of a step (run.elastic), the
// last round has too few: a rank without one computes the step's first micro-batch, without counting it. The
// state is an integer: the index of the next sample.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "llmc/base/numbers/row_part.h"
#include "llmc/train/data/dataset.h"

inline namespace data {

// Rows of tokens for the model: inputs and targets, (B, here) each, of a rank that has `here` of the T tokens
// of a row. Under a document mask also each input's place in its document, and the place in the row behind
// the document's last, (B, T) each. own_positions (B, here): where here < T, the positions of this rank's
// tokens, in their documents under a mask, else in their rows.
struct TokenBatch {
    std::vector<int32_t> tokens, targets, own_positions, positions, ends;
    int B = 0;
    bool counts = true;             // false: losses and gradients of another rank's samples
};

// The micro-batches of a step that rank `rank` of `ranks` computes, one in each of `rounds` rounds.
struct Deal {
    int B = 1;                      // rows of a micro-batch
    int rank = 0, ranks = 1;
    int rounds = 1;
    uint64_t rows = 0;              // of a step; a multiple of B
    RowPart part = {};              // of each row

    uint64_t row(int round) const { return uint64_t(int64_t(round) * ranks + rank) * uint64_t(B); }
    bool counts(int round) const { return row(round) < rows; }
    // The rows of all ranks before a round.
    uint64_t before(int round) const { return std::min(rows, uint64_t(int64_t(round) * ranks * B)); }
    // Reads this rank's micro-batch of the step that begins with a sample.
    void load(TokenBatch& batch, const Dataset& set, uint64_t sample, int round) const;
};

inline constexpr const char* kLoaderWait = "loader";     // the wait for a micro-batch, in traces, too

struct Loader {
    // Micro-batches of the steps from sample `first` on.
    Loader(const Dataset& set, const Deal& deal, uint64_t first);
    // Without end, a round a step.
    Loader(const Dataset& set, int micro_batch, uint64_t first, int rank = 0, int ranks = 1)
        : Loader(set, {.B = micro_batch, .rank = rank, .ranks = ranks,
                       .rows = uint64_t(ranks) * uint64_t(micro_batch)}, first) {}
    ~Loader();
    Loader(const Loader&) = delete;

    // The next micro-batch; valid until the next call.
    const TokenBatch& next();
    void move_to(uint64_t sample);      // which next() continues with
    // Samples that all ranks together have received at this point, from sample 0 on.
    uint64_t position() const { return begin + deal.before(taken); }

private:
    void read_ahead();
    void await_ahead(std::unique_lock<std::mutex>& lock);

    const Dataset& set;
    const Deal deal;
    uint64_t begin;                 // of the step that next() is in
    int taken = 0;                  // its micro-batches so far; ahead: the one behind them
    TokenBatch current, ahead;
    bool full = false, stop = false;
    std::exception_ptr error;       // of the reading thread; next() rethrows
    std::mutex mutex;
    std::condition_variable changed;
    std::thread thread;
};

// Sets positions and ends: a document begins with id `eot`, or with its row, and ends before the next.
void find_documents(TokenBatch& batch, int T, int32_t eot);

// Reads `B` samples from `first` on, and keeps a part of each row.
void load_batch(TokenBatch& batch, const Dataset& set, uint64_t first, int B, RowPart part = {});

}  // namespace data

// Micro-batches in the order of their samples, read ahead by a thread.
//
// Data-parallel ranks receive a step's samples in turn, a micro-batch at a time: every mesh trains on the
// same samples in the same steps. The state is an integer: the index of the next sample.
#pragma once
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "llmc/train/data/dataset.h"

inline namespace data {

// Rows of tokens for the model: inputs (B, T) and targets (B, T). Under a document mask also each input's
// place in its document, and the place in the row behind the document's last, (B, T) each.
struct TokenBatch {
    std::vector<int32_t> tokens, targets, positions, ends;
    int B = 0;
};

inline constexpr const char* kLoaderWait = "loader";     // the wait for a micro-batch, in traces, too

struct Loader {
    // Samples of rank `rank` of `ranks`, from sample `first` on, `micro_batch` at a time.
    Loader(const Dataset& set, int micro_batch, uint64_t first, int rank = 0, int ranks = 1);
    ~Loader();
    Loader(const Loader&) = delete;

    // The next micro-batch; valid until the next call.
    const TokenBatch& next();
    void move_to(uint64_t sample);      // which next() continues with
    // Samples that all ranks together have received at this point, from sample 0 on.
    uint64_t position() const { return taken; }

private:
    void read_ahead();
    void await_ahead(std::unique_lock<std::mutex>& lock);

    const Dataset& set;
    const int B;
    const uint64_t offset, stride;  // of this rank's in a round; samples of a round
    uint64_t taken, loaded;
    TokenBatch current, ahead;
    bool full = false, stop = false;
    std::exception_ptr error;       // of the reading thread; next() rethrows
    std::mutex mutex;
    std::condition_variable changed;
    std::thread thread;
};

// Sets positions and ends: a document begins with id `eot`, or with its row, and ends before the next.
void find_documents(TokenBatch& batch, int T, int32_t eot);

// Reads `B` samples from `first` on.
void load_batch(TokenBatch& batch, const Dataset& set, uint64_t first, int B);

}  // namespace data

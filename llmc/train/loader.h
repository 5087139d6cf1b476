// Micro-batches in the order of their samples, read ahead by a thread.
//
// The state is one integer: the index of the next sample.
#pragma once
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "llmc/train/dataset.h"

// Rows of tokens as the model reads them: inputs (B, T) and targets (B, T).
struct TokenBatch {
    std::vector<int32_t> tokens, targets;
    int B = 0;
};

struct Loader {
    // Samples from `first` on, `micro_batch` at a time.
    Loader(const Dataset& set, int micro_batch, uint64_t first);
    ~Loader();
    Loader(const Loader&) = delete;

    // The next micro-batch; valid until the next call.
    const TokenBatch& next();
    uint64_t position() const { return taken; }     // samples handed out, counted from sample 0

private:
    void read_ahead(int rank);

    const Dataset& set;
    const int B;
    uint64_t taken, loaded;
    TokenBatch current, ahead;
    bool full = false, stop = false;
    std::exception_ptr error;       // what the reading thread met; thrown on by next()
    std::mutex mutex;
    std::condition_variable changed;
    std::thread thread;
};

// Reads `B` samples from `first` on.
void load_batch(TokenBatch& batch, const Dataset& set, uint64_t first, int B);

#include "llmc/train/data/loader.h"

#include <algorithm>
#include <chrono>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/host/start_thread.h"

inline namespace data {

void find_documents(TokenBatch& batch, int T, int32_t eot) {
    const int count = batch.B * T;
    batch.positions.resize(size_t(count));
    batch.ends.resize(size_t(count));
    for (int i = 0; i < count; i++) {
        const bool begins = i % T == 0 || batch.tokens[size_t(i)] == eot;
        batch.positions[size_t(i)] = begins ? 0 : batch.positions[size_t(i - 1)] + 1;
    }
    for (int i = count - 1; i >= 0; i--) {
        const bool ends = i % T == T - 1 || batch.positions[size_t(i + 1)] == 0;
        batch.ends[size_t(i)] = ends ? i % T + 1 : batch.ends[size_t(i + 1)];
    }
}

// In place: a chunk moves to the front.
static void keep(std::vector<int32_t>& rows, int B, int T, RowPart part) {
    auto to = rows.begin();
    for (int b = 0; b < B; b++)
        for (int i = 0; i < part.chunks(); i++) {
            const auto from = rows.begin() + std::ptrdiff_t(b) * T + part.begin(i, T);
            to = std::copy_n(from, part.length(T), to);
        }
    rows.resize(size_t(B) * size_t(part.here(T)));
}

static void keep_part(TokenBatch& batch, int T, RowPart part) {
    batch.own_positions = batch.positions;
    if (batch.own_positions.empty())
        for (int i = 0; i < batch.B * T; i++) batch.own_positions.push_back(i % T);
    for (auto* table : {&batch.tokens, &batch.targets, &batch.own_positions}) keep(*table, batch.B, T, part);
}

void load_batch(TokenBatch& batch, const Dataset& set, uint64_t first, int B, RowPart part) {
    const size_t T = size_t(set.T);
    std::vector<int32_t> row(T + 1);
    batch.B = B;
    batch.tokens.resize(size_t(B) * T);
    batch.targets.resize(size_t(B) * T);
    for (int b = 0; b < B; b++) {
        set.sample(first + uint64_t(b), row.data());
        beat();
        std::copy_n(row.begin(), T, batch.tokens.begin() + std::ptrdiff_t(size_t(b) * T));
        std::copy_n(row.begin() + 1, T, batch.targets.begin() + std::ptrdiff_t(size_t(b) * T));
    }
    if (set.mask_eot >= 0) find_documents(batch, set.T, set.mask_eot);
    if (part.size > 1) keep_part(batch, set.T, part);
}

void Deal::load(TokenBatch& batch, const Dataset& set, uint64_t sample, int round) const {
    batch.counts = counts(round);
    load_batch(batch, set, sample + (batch.counts ? row(round) : 0), B, part);
}

Loader::Loader(const Dataset& s, const Deal& d, uint64_t first) : set(s), deal(d), begin(first) {
    const std::string why = start_thread(thread, [this, of = context] {
        context.rank = of.rank;
        context.progress = of.progress;         // each row is a heartbeat of the rank
        read_ahead();
    });
    if (!why.empty()) warning("tokens are read between steps: {}", no_thread(why));
}

Loader::~Loader() {
    {
        std::lock_guard lock(mutex);
        stop = true;
    }
    changed.notify_all();
    join(thread, kLoaderWait);
}

// fatal() throws here: the rank's own thread reports a bad shard, not the reading thread
void Loader::read_ahead() {
    context.throw_on_fatal = true;
    for (std::unique_lock lock(mutex);;) {
        changed.wait(lock, [this] { return stop || !full; });
        if (stop) return;
        lock.unlock();
        std::exception_ptr caught;
        try {
            deal.load(ahead, set, begin, taken);
        } catch (...) {
            caught = std::current_exception();
        }
        lock.lock();
        error = caught;
        full = true;
        changed.notify_all();
    }
}

void Loader::await_ahead(std::unique_lock<std::mutex>& lock) {
    wait_until({.what = kLoaderWait, .on = Awaits::Own, .nap = 0.1}, [this] { return full; },
               [&](double nap) { changed.wait_for(lock, std::chrono::duration<double>(nap)); });
}

// What was read ahead is not used, nor is an error there.
void Loader::move_to(uint64_t sample) {
    std::unique_lock lock(mutex);
    if (thread.joinable()) await_ahead(lock);
    begin = sample;
    taken = 0;
    full = false;
    error = nullptr;
    changed.notify_all();
}

const TokenBatch& Loader::next() {
    std::unique_lock lock(mutex);
    if (!thread.joinable()) {
        deal.load(ahead, set, begin, taken);
        full = true;
    }
    await_ahead(lock);
    if (error) {
        lock.unlock();
        try {
            std::rethrow_exception(error);
        } catch (const Fatal& e) {
            fatal(e.code, __FILE__, __LINE__, "{}", e.what());
        }
    }
    std::swap(current, ahead);
    if (++taken == deal.rounds) {
        begin += deal.rows;
        taken = 0;
    }
    full = false;
    changed.notify_all();
    return current;
}

}  // namespace data

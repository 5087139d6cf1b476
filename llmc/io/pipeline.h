// Jobs in order over several threads, in bounded memory: the calling thread fills jobs and takes results,
// both in order; workers do what is between, in any order. One thread: all of it in the calling one.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

// fill(job) -> false at the end; work(thread, job); take(job).
template <class Job, class Fill, class Work, class Take>
void run_pipeline(int threads, Fill&& fill, Work&& work, Take&& take) {
    if (threads <= 1) {
        for (Job job; fill(job);) work(0, job), take(job);
        return;
    }
    struct Entry { Job job; bool done = false; };
    std::vector<Entry> ring(size_t(threads) * 2 + 1);
    std::mutex mutex;
    std::condition_variable filled, finished;
    // Jobs [first, started) are with workers or done, [started, end) wait.
    uint64_t first = 0, started = 0, end = 0;
    bool closed = false;

    const auto worker = [&](int thread) {
        std::unique_lock lock(mutex);
        for (;;) {
            filled.wait(lock, [&] { return started < end || closed; });
            if (started == end) return;
            Entry& e = ring[started++ % ring.size()];
            lock.unlock();
            work(thread, e.job);
            lock.lock();
            e.done = true;
            finished.notify_one();
        }
    };
    struct Workers {
        std::function<void()> close;
        std::vector<std::thread> threads;
        ~Workers() {
            close();
            for (auto& t : threads) t.join();
        }
    };
    Workers workers{[&] {
        { std::lock_guard lock(mutex); closed = true; }
        filled.notify_all();
    }, {}};
    for (int i = 0; i < threads; i++) workers.threads.emplace_back(worker, i);

    // Takes the oldest job that has not been taken, when it is done.
    const auto take_one = [&] {
        Entry& e = ring[first % ring.size()];
        std::unique_lock lock(mutex);
        finished.wait(lock, [&] { return e.done; });
        lock.unlock();
        take(e.job);
        e.done = false;
        first++;
    };
    for (;;) {
        if (end - first == ring.size()) take_one();
        if (!fill(ring[end % ring.size()].job)) break;
        std::lock_guard lock(mutex);
        end++;
        filled.notify_one();
    }
    while (first < end) take_one();
}

// Cores that this process may use.
int available_threads();

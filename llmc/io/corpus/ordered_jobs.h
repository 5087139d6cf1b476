// Jobs in order over several threads, in bounded memory. The calling thread fills jobs and takes results,
// both in order; workers process the jobs in any order. With a single thread, the caller does everything.
// The queue has 2 threads + 1 places and holds at most kJobBytes for each; one larger job may run alone. If
// the system has fewer threads, the available threads do the work.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

inline namespace corpus {

constexpr size_t kJobBytes = 1 << 20;       // a larger job is freed after take(), a smaller one reused

template <class Job, class Fill, class Work, class Take>
void run_in_this_thread(Fill&& fill, Work&& work, Take&& take) {
    for (Job job; fill(job);) {
        work(0, job);
        take(job);
        if (job.bytes() > kJobBytes) job = Job();
    }
}

struct JobThreads {
    std::function<void()> close;
    std::vector<std::thread> threads;
    // Makes threads that run worker(0) to worker(wanted - 1), or as many as the system has, with a warning.
    void start(int wanted, const std::function<void(int)>& worker);
    ~JobThreads();
};

// Calls of a job: fill(job), false at the end; job.bytes(), its memory; work(thread, job); take(job).
template <class Job, class Fill, class Work, class Take>
void run_ordered_jobs(int threads, Fill&& fill, Work&& work, Take&& take) {
    if (threads <= 1) return run_in_this_thread<Job>(fill, work, take);
    struct Entry { Job job; size_t bytes = 0; bool done = false; };
    std::vector<Entry> ring(size_t(threads) * 2 + 1);
    std::mutex mutex;
    std::condition_variable filled, finished;
    // Jobs [first, started) are with workers or done, [started, end) wait.
    uint64_t first = 0, started = 0, end = 0;
    size_t bytes = 0;           // of jobs [first, end)
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
    JobThreads workers{[&] {
        { std::lock_guard lock(mutex); closed = true; }
        filled.notify_all();
    }, {}};
    workers.start(threads, worker);
    if (workers.threads.empty()) return run_in_this_thread<Job>(fill, work, take);

    // Takes the oldest job not yet taken, as soon as the job is done.
    const auto take_one = [&] {
        Entry& e = ring[first % ring.size()];
        std::unique_lock lock(mutex);
        finished.wait(lock, [&] { return e.done; });
        lock.unlock();
        take(e.job);
        if (e.bytes > kJobBytes) e.job = Job();
        bytes -= e.bytes;
        e.done = false;
        first++;
    };
    for (;;) {
        while (end - first == ring.size() || bytes > ring.size() * kJobBytes) take_one();
        Entry& e = ring[end % ring.size()];
        if (!fill(e.job)) break;
        e.bytes = e.job.bytes();
        bytes += e.bytes;
        std::lock_guard lock(mutex);
        end++;
        filled.notify_one();
    }
    while (first < end) take_one();
}

// Number of cores that this process may use.
int available_threads();

}  // namespace corpus

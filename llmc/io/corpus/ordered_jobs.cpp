#include "llmc/io/corpus/ordered_jobs.h"

#include <sched.h>

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/host/start_thread.h"

inline namespace corpus {

void JobThreads::start(int wanted, const std::function<void(int)>& worker) {
    threads.reserve(size_t(wanted));
    for (int i = 0; i < wanted; i++) {
        std::thread thread;
        const std::string why = start_thread(thread, [worker, i] { worker(i); });
        if (!why.empty())
            return warning("{} of {} threads: {}", std::max(i, 1), wanted, no_thread(why));
        threads.push_back(std::move(thread));
    }
}

JobThreads::~JobThreads() {
    close();
    for (std::thread& t : threads) t.join();
}

int available_threads() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace corpus

#include "llmc/base/host/start_thread.h"

#include <unistd.h>

#include <future>
#include <system_error>
#include <vector>

inline namespace host {

std::string start_thread(std::thread& thread, std::function<void()> f) {
    try {
        thread = std::thread(std::move(f));
    } catch (const std::system_error& e) {
        return e.code().message();
    }
    return "";
}

std::string no_thread(const std::string& why) {
    return "no more threads can be made (" + why + "): see `ulimit -u`, `ulimit -v` and the pids limit of "
           "the container";
}

// A joined thread counts for a moment longer.
static void wait_until_gone(pid_t thread) {
    const std::string task = "/proc/self/task/" + std::to_string(thread);
    for (int tries = 0; tries < 1000 && access(task.c_str(), F_OK) == 0; tries++) usleep(1000);
}

int possible_threads(int wanted) {
    struct Probe { std::thread thread; pid_t id = 0; };
    std::vector<Probe> probes(size_t(wanted > 1 ? wanted - 1 : 0));
    std::promise<void> all_made;
    const std::shared_future<void> end = all_made.get_future();
    int count = 1;
    for (Probe& p : probes) {
        const auto wait = [&p, end] {
            p.id = gettid();
            end.wait();
        };
        if (!start_thread(p.thread, wait).empty()) break;
        count++;
    }
    all_made.set_value();
    for (Probe& p : probes) if (p.thread.joinable()) p.thread.join();
    for (const Probe& p : probes) if (p.id) wait_until_gone(p.id);
    return count;
}

}  // namespace host

// Threads within limits: `ulimit -u`, `ulimit -v` and the pids limit of a container.
#pragma once
#include <functional>
#include <string>
#include <thread>

inline namespace host {

// Runs f on a new thread, stored in `thread`. Returns an empty text, or the reason why the thread cannot be
// made.
std::string start_thread(std::thread& thread, std::function<void()> f);

// Number of threads, up to `wanted`, that this process can have at once, the calling thread included; at
// least 1. OpenMP ends the program if a thread cannot be made, so teams are bounded beforehand.
int possible_threads(int wanted);

// Text of a message about a missing thread; why: from start_thread().
std::string no_thread(const std::string& why = "Resource temporarily unavailable");

}  // namespace host

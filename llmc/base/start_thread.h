// Threads that cannot always be made: `ulimit -u`, `ulimit -v` and the pids limit of a container bound them.
#pragma once
#include <functional>
#include <string>
#include <thread>

// Runs f on a thread, which `thread` becomes. Returns why not where none can be made, else an empty text.
std::string start_thread(std::thread& thread, std::function<void()> f);

// How many of `wanted` threads this process can have at once, the calling one included; at least 1. OpenMP
// ends the program where it cannot make a thread, so teams are bounded beforehand.
int possible_threads(int wanted);

// What a message says of it; why: of start_thread().
std::string no_thread(const std::string& why = "Resource temporarily unavailable");

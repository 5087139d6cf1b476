// A wait of the start for ranks that come late: the rendezvous, MPI_Init, NCCL's connecting.
//
// The waiting thread is inside a call that sends no heartbeat. So a thread beside it beats for the rank, at
// most for `seconds`; then that thread ends the process with exit code 75.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

// Seconds that ranks wait for late ranks: two minutes, or run.hang_timeout where that is longer.
double start_patience();

struct StartWait {
    // what: the wait, published as the rank's collective; long: cut to 31 letters
    explicit StartWait(const std::string& what, double seconds = start_patience());
    ~StartWait();
    StartWait(const StartWait&) = delete;

private:
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    std::thread thread;

    void beat_until(double end, double seconds, const std::string& what);
};

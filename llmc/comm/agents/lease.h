// The lease of a run: the file run.dir/lease says which agent is the controller, and where it listens.
//
// Its holder renews it every 2 s. Who sees it unchanged for 20 s may take it; a holder that could not renew
// it for 10 s is controller no more. An agent of the same host sees at once that the holder is gone.
// Each taking raises `epoch`: of two agents that both believe to be the controller, the file names one.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

inline namespace agents {

struct LeaseText {
    int64_t epoch = 0, beat = 0;
    std::string host, address, machine, secret;
    int port = 0, process = 0;

    bool operator==(const LeaseText&) const = default;
};

struct Lease {
    static constexpr double kRenew = 2, kVoid = 10, kTake = 20;         // seconds

    explicit Lease(const std::string& run_dir);

    std::optional<LeaseText> read();            // none: no agent has it
    bool may_take();                            // by the last read()
    // Takes it for an agent that listens there, unless another agent was faster.
    bool take(const std::string& address, int port);
    // Of the holder, again and again: renews it when it is time. false: this agent is the holder no more.
    bool keep(bool now = false);                // now: whether or not it is time
    void give_up();                             // at the end of the job: removes the file

    LeaseText own;                              // where this agent holds it

private:
    std::string run_dir_, path_;
    std::optional<LeaseText> seen_;
    double seen_at_ = 0, renewed_at_ = 0;       // seconds_now()
    bool write(const LeaseText& text, const LeaseText* expected);
};

// Of rank 0, before it changes files of the run: notes its plan in run.dir/generation. false: a later plan is
// there. A rank that was stopped, or cut off with its agent, while others went on, may not cut their rows.
bool claim_run_files(const std::string& run_dir, int64_t epoch, int64_t generation);
// false: a later plan is there.
bool owns_run_files(const std::string& run_dir, int64_t epoch, int64_t generation);

std::string this_machine();                     // the host's boot and the namespace of processes

}  // namespace agents

// A rank of an agent: how it hears plans, and where it keeps images of its state.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmc/comm/agents/channel.h"

inline namespace agents {

struct Membership {
    MessageChannel agent;
    GroupPlan plan;                              // of this generation
    Seated seated = {};                     // of this rank in it

    // Says that this rank waits, and waits for the next plan. Ends the process where the job ends.
    void await_plan();
    // Exchanges where the ranks of the plan listen. Throws Lost where the plan is over before all have.
    std::vector<std::string> exchange_doors(const std::string& own);
    void finish(int code);
    void report_slow(double factor);
    // A rank's bits differ, from a majority (sure) or from each other. The agents put aside what is at fault,
    // or end the job; every rank reports. passed: only images up to note_passed() are to be restored.
    void report_corrupt(int rank, bool sure, bool passed, const std::string& what);

    // Of rank 0, before it changes files of the run. Throws Lost where the ranks of a later plan have them.
    void claim_files(const std::string& run_dir) const;
    // Of any thread of rank 0: false where the ranks of a later plan have the files of the run.
    bool owns_files(const std::string& run_dir) const;

    bool restores() const { return plan.head.step >= 0; }
    bool regroups() const { return plan.head.regroups; }

    // ---- images of this rank's state, of equal size, in memory that outlives this process

    // The memory of all. Exit code 78 where there is none. places: image_places().
    std::span<std::byte> open_images(uint64_t bytes, int places, const std::string& head);
    // The place for an image of this number (messages.h), and with commit() the image. needs: images to keep
    // beside it. An earlier image, which neither this one nor the last one needs, is none from here on.
    std::byte* image(int64_t number, const std::array<int64_t, 2>& needs);
    void commit(const std::string& state);
    // The last image passed a comparison of the replicas: it is kept until another one does.
    void note_passed() { passed_ = last_; }
    // Until the last commit survives the loss of this node. Throws Lost where the agent is silent.
    void await_safe();

    ~Membership();

private:
    std::byte* images_ = nullptr;
    uint64_t image_bytes_ = 0;
    int file_ = -1;
    std::vector<ImageStep> there_;              // by place
    ImageStep next_ = {}, last_ = {}, passed_ = {};         // being written; committed; compared
    void close_images();
};

// Of this process; null: it is no rank of an agent. Tests have ranks that are threads.
Membership* member();
inline thread_local Membership* member_of_thread = nullptr;

// The images of the plan, of all ranks that kept them, read from the agents that hold them.
struct HeldImages {
    explicit HeldImages(const Membership& m);
    // Head and state of a rank's image, and what it needs. Throws Lost where its agent has gone.
    struct Head {
        std::string head, state;
        std::array<int64_t, 2> needs;
    };
    Head head(int rank, int64_t number);
    // Bytes of a rank's image, valid until the next call.
    const std::byte* read(int rank, int64_t number, uint64_t at, uint64_t bytes);

private:
    const GroupPlan plan_;
    const std::string secret_;
    std::vector<std::pair<Source, MessageChannel>> open_;
    Message got_;
    MessageChannel& channel_of(int rank);
    void ask(int rank, Say kind, const std::string& bytes);
};

}  // namespace agents

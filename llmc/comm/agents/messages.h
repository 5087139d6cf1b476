// What agents, the controller among them, and ranks say to each other. Numbers and texts are sent as they lie
// in memory: all processes of a job are of one build, which Hello proves.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

inline namespace agents {

enum class Say : uint32_t {
    Challenge, Proof, Welcome,      // of a caller (channel.h)
    // an agent to the controller
    Hello,          // AgentHello, then its settings; Plan: the last that it had; Died: what it lost of that
    Ready,          // its ranks wait: Generation, then a list of Held
    Died,           // LostRank
    Broken,         // Generation: a rank of it has lost its connections, and waits
    Door,           // of a rank, through its agent: DoorOf, then where the rank listens
    Safe,           // of a rank: DoorOf: its first image lies where a lost node leaves it
    Finished,       // of a rank: Finish
    Slow,           // of a rank: SlowRank
    Corrupt,        // of a rank: CorruptRank
    Beat,           // Generation
    // the controller to an agent
    Refused,        // a text: why the agent may not join
    Stop,           // Generation: it is over
    Aside,          // no rank runs there any more: its replicas have other bits
    Forget,         // ImageBound: later images restore nothing
    Leave,          // Generation: it ends after the step that its ranks compute
    Plan,           // PlanHead, then lists of Seat, Source, LostRank. The agent passes it on behind a Seated
    Go,             // Generation, then all doors, each behind its length
    Settled,        // Generation: older images are not needed any more
    Buddy,          // Source: the agent that keeps copies of this one's images; port 0: none
    End,            // int32_t: the exit code of the job
    // a rank to its agent
    Images,         // ImageSpace, then the head of the images: a packed manifest
    Commit,         // ImageStep, then the state of the run
    // between agents, and a rank to the agent that holds an image
    Push,           // ImageSpace and the head: a copy begins
    PushData,       // ImagePart, then bytes
    PushDone,       // ImageStep, then the state of the run
    Acked,          // ImageStep
    FetchHead,      // ImageStep; answered by Fetched: ImageHead
    Fetch,          // ImagePart; answered by Fetched: the bytes
    Fetched,
};

using Word = std::array<char, 64>;              // a text that ends in a zero
using Cause = std::array<char, 128>;
template <size_t n> void set_word(std::array<char, n>& word, const std::string& text) {
    word = {};
    text.copy(word.data(), n - 1);
}
template <size_t n> std::string word_text(const std::array<char, n>& word) { return word.data(); }

struct Generation { int64_t generation; };
struct AgentHello {
    Word host, version, address;
    int64_t id;                                 // of the agent; a later one has a higher id
    int64_t generation;                         // of the last plan that it had; 0: none
    int32_t slots, port;                        // port: where it listens at the address
};
struct Held {                                   // an image
    int64_t generation, step;
    int32_t world, rank;
};
struct LostRank {
    int64_t generation;
    int32_t rank, code;                         // code: exit code that the job ends with; 0: it goes on
    Word host;
    Cause cause;                                // of a corrupt rank: what differs
    bool corrupt = false;
};
struct DoorOf {
    int64_t generation;
    int32_t rank, unused;
};
struct Finish {
    int64_t generation;
    int32_t rank, code;
};
struct SlowRank {
    int64_t generation;
    int32_t rank, unused;
    double factor;                              // of its own time to the median's (comm/stragglers.h)
};
struct ImageBound {                             // of images of the generation, and of those before
    int64_t generation, step;
    bool holds(int64_t of_generation, int64_t of_step) const {
        return of_generation > generation || of_step <= step;
    }
};
struct CorruptRank {
    ImageBound bound;                           // images that passed a comparison
    int32_t rank, sure;                         // sure: a majority has other bits
    Cause what;
};
struct Seat {                                   // of a rank
    int64_t agent, slot;
    Word host, address;
};
struct Source {
    Word address;
    int32_t port, unused;
};
struct PlanHead {
    int64_t generation, step;                   // step: the number of the images; -1: there are none
    int64_t from;                               // generation of the images
    double seconds;                             // since the loss; negative: nothing was lost
    int32_t world, images, losses;              // lengths of the lists
    int32_t epoch;                              // of the controller's lease
    int32_t regroups, unused;                   // regroups: not the first plan of its job
};
struct Seated {
    int32_t rank, port;
    Word address, secret;                       // of the rank's agent, and of the run
};
struct ImageSpace {
    int64_t generation;
    int32_t world, rank;
    uint64_t bytes;                             // of an image
    int32_t file, places;                       // the rank's descriptor; images in its file
};
// The number of an image is the steps that the run has computed for it, those included that train.rollback
// took back: later images have higher numbers.
struct ImageStep {
    int64_t generation, step;                   // step: the number
    int32_t rank, place;                        // place: in the file, until another image is there
    // Images of train.rollback, without which this image restores no run. kNoImage: none.
    std::array<int64_t, 2> needs;
};
inline constexpr int64_t kNoImage = -1, kNeverRestored = -2;    // the latter: only others need this image
// Places for images of a rank: the last and the next one, two that each needs, and one that has passed a
// comparison (run.check_every) with those that it needs.
constexpr int image_places(bool rolls_back, bool compares) {
    const int needed = rolls_back ? 2 : 0;
    return 2 + needed + (compares ? 1 + needed : 0);
}
inline constexpr std::array<int64_t, 2> kNeedsNone = {kNoImage, kNoImage};
struct ImagePart {
    int64_t generation, step;
    int32_t rank, place;
    uint64_t at, bytes;
};
struct ImageHead {                              // then the head of the images, then the state of the run
    uint64_t bytes;                             // of the head
    std::array<int64_t, 2> needs;
};

// A plan as its receiver reads it.
struct GroupPlan {
    PlanHead head = {};
    std::vector<Seat> seats;                    // by rank
    std::vector<Source> sources;                // of images, by the ranks that they are of
    std::vector<LostRank> losses;
};
std::string to_bytes(const GroupPlan& plan);
GroupPlan plan_of(std::string_view bytes);

}  // namespace agents

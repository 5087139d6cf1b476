// Messages and collectives between ranks on threads, or between ranks that are processes (processes.h), and
// the communicators behind NCCL's calls.
#pragma once
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace emulator {

enum class Call { AllGather, ReduceScatter, AllReduce, Broadcast, Message };
inline constexpr const char* call_names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce",
                                             "ncclBroadcast", "a message"};

struct Hall;

// A collective, or a message: the buffers of each rank, their offsets in memory that the rank has registered,
// or -1, and their bytes.
struct Meeting {
    struct Part {
        const std::byte* from;
        std::byte* to;
        ptrdiff_t from_at, to_at;
        size_t sent, received;
    };
    Call call;
    size_t count;
    ncclDataType_t type;
    int root, expected;
    std::vector<Part> parts;
    std::vector<std::thread::id> threads;              // threads that have called
    int entered = 0, arrived = 0;
    bool done = false;
    int post = -1;                                     // of this process, in the hall
};
using Key = std::tuple<int, int, uint64_t>;            // sender and receiver, or -1; number

// The ranks of a communicator.
struct Clique {
    int size, present = 0;
    std::vector<int> devices;                          // by rank
    std::map<Key, std::shared_ptr<Meeting>> open;      // some member has yet to call
    std::map<std::pair<int, int>, std::shared_ptr<Clique>> parts;      // by split and colour
    struct Asked { int color, key, rank, blocks; };
    std::vector<std::vector<Asked>> splits;            // by split: callers and colours
    ncclResult_t error = ncclSuccess;
    std::string why;
    bool left = false;                                 // a rank has: what waits for it never ends
    std::string name = {};                             // of ranks that are processes, with their hall
    std::shared_ptr<Hall> hall = {};
};

// Of a communicator: those that wait for other ranks, unless it is aborted.
struct Kernels {
    std::atomic<bool> aborted = false;
    std::atomic<int> waiting = 0;
};

struct Communicator {
    std::shared_ptr<Clique> clique;
    int rank;
    std::string name;
    int device, blocks;                                // most blocks of its kernels at once
    std::map<std::pair<int, int>, uint64_t> calls;     // by sender and receiver; a message's first connects
    uint64_t bytes_alone = 0;                          // messages of one byte, which only connect
    size_t splits = 0;
    std::vector<std::pair<const std::byte*, size_t>> registered;
    bool blocking = true;
    std::function<ncclResult_t()> pending = {};        // the last call; null: it has returned ncclSuccess
    ncclResult_t failed = ncclSuccess;                 // outcome of that call
    std::shared_ptr<Kernels> kernels = std::make_shared<Kernels>();
};

// What a rank put into a stream at once: a call, or the calls between ncclGroupStart and ncclGroupEnd.
struct Group {
    struct Visit {
        std::shared_ptr<Clique> clique;
        std::shared_ptr<Meeting> meeting;
        std::shared_ptr<Kernels> kernels;
    };
    cudaStream_t stream;
    std::vector<Visit> visits;
    uint64_t position = 0;
    bool arrived = false, waits = false;
};

extern std::mutex guard_of_ranks;                      // guards every clique
extern std::condition_variable came;                   // somebody, or an error
extern std::atomic<int> stuck_aborts;                  // that waited for a kernel of another communicator

ncclResult_t refuse(ncclResult_t error, std::string why);      // remembered for ncclGetLastError()
void break_up(Clique& c, ncclResult_t error, const std::string& why);
void no_longer_awaited(Clique& c);                     // its calls are over for CUDA
size_t bytes_of(ncclDataType_t type);                  // 0: unknown here

// The next meeting of two ranks of a communicator, or of every rank (-1); this rank's role.
std::shared_ptr<Meeting> enter(Communicator& comm, int from, int to, const Meeting& wanted, int place,
                               Meeting::Part part);
ncclResult_t enqueue(std::shared_ptr<Group> g);
void carry_out(const Meeting& m);                      // when all have arrived

int communicators_alive();                             // of this process: made, not destroyed or aborted
void break_up_all();                                   // for tests that would wait for ever

}  // namespace emulator

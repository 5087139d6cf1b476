// Messages and collectives between ranks on threads, and the communicators behind NCCL's calls.
#pragma once
#include <nccl.h>

#include <condition_variable>
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

// A collective, or a message: the buffers of each rank, and their offsets in memory that the rank has
// registered, or -1.
struct Meeting {
    struct Part {
        const std::byte* from;
        std::byte* to;
        ptrdiff_t from_at, to_at;
    };
    Call call;
    size_t count;
    ncclDataType_t type;
    int root, expected;
    std::vector<Part> parts;
    std::vector<std::thread::id> threads;              // threads that have called
    int entered = 0, arrived = 0;
    bool done = false;
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
};

// What a rank put into a stream at once: a call, or the calls between ncclGroupStart and ncclGroupEnd.
struct Group {
    struct Visit { std::shared_ptr<Clique> clique; std::shared_ptr<Meeting> meeting; };
    cudaStream_t stream;
    std::vector<Visit> visits;
    uint64_t position = 0;
    bool arrived = false;
};

extern std::mutex guard_of_ranks;                      // guards every clique
extern std::condition_variable came;                   // somebody, or an error

ncclResult_t refuse(ncclResult_t error, std::string why);      // remembered for ncclGetLastError()
void break_up(Clique& c, ncclResult_t error, const std::string& why);
size_t bytes_of(ncclDataType_t type);                  // 0: unknown here

// The next meeting of two ranks of a communicator, or of every rank (-1); this rank's role.
std::shared_ptr<Meeting> enter(Communicator& comm, int from, int to, const Meeting& wanted, int place,
                               Meeting::Part part);
ncclResult_t enqueue(std::shared_ptr<Group> g);

}  // namespace emulator

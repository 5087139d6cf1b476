#include "test/emulator/processes.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/numbers/rng.h"
#include "test/emulator/settings.h"

namespace emulator {

struct Post {
    uint64_t key, clique;               // key 0: free
    int place, expected;
    pid_t process;
    bool arrived, done;
    Call call;
    ncclDataType_t type;
    int root;
    uint64_t count;
    Meeting::Part part;                 // in the process's memory
    Clique::Asked said;
};

struct Hall {
    static constexpr int kMost = 1024;
    struct Shared {
        std::atomic<int> made;
        pthread_mutex_t lock;           // of a process that may die
        ncclResult_t error;
        uint64_t broken;                // clique
        char why[512];
        Post posts[kMost];
    };
    Shared* shared;

    explicit Hall(Shared* s) : shared(s) {}
    ~Hall() { munmap(shared, sizeof *shared); }
};

struct Locked {
    Hall::Shared& s;
    explicit Locked(Clique& c) : s(*c.hall->shared) {
        if (pthread_mutex_lock(&s.lock) == EOWNERDEAD) pthread_mutex_consistent(&s.lock);
    }
    ~Locked() { pthread_mutex_unlock(&s.lock); }
    // An error of one communicator, for all of its ranks.
    void break_up(Clique& c, const std::string& why) {
        if (s.error != ncclSuccess) return;
        s.error = ncclInvalidUsage;
        s.broken = stream_of(c.name.c_str());
        why.copy(s.why, sizeof s.why - 1);
    }
    bool broken(Clique& c) {
        if (s.error != ncclSuccess && s.broken == stream_of(c.name.c_str())) c.error = s.error, c.why = s.why;
        return c.error != ncclSuccess;
    }
    std::vector<Post*> all(uint64_t key) {
        std::vector<Post*> found;
        for (Post& p : s.posts)
            if (p.key == key) found.push_back(&p);
        return found;
    }
    Post& free_post() {
        for (Post& p : s.posts)
            if (!p.key) return p;
        fatal(kExitInternal, __FILE__, __LINE__, "the hall of the emulated NCCL is full");
    }
};

std::string new_hall_file() {
    static int next = 0;
    return fmt::format("{}/nccl_{}_{}", settings.processes, getpid(), next++);
}

std::shared_ptr<Hall> open_hall(const std::string& file) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, sizeof(Hall::Shared)) == 0, "{}: {}", file, strerror(errno));
    void* const p = mmap(nullptr, sizeof(Hall::Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    CHECK(p != MAP_FAILED, "{}: {}", file, strerror(errno));
    auto* const s = static_cast<Hall::Shared*>(p);
    int none = 0;
    if (s->made.compare_exchange_strong(none, 1)) {
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&s->lock, &kind);
        s->made = 2;
    }
    while (s->made != 2) std::this_thread::yield();
    return std::make_shared<Hall>(s);
}

static uint64_t key_of(const Clique& c, const std::string& name) {
    return stream_of((c.name + " " + name).c_str()) | 1;
}

// ---------------------------------------------------------------------------------------------------------
// meetings

int post(Clique& c, const Key& key, const Meeting& wanted, int place, const Meeting::Part& part) {
    Locked hall(c);
    const auto [from, to, number] = key;
    const uint64_t name = key_of(c, fmt::format("{} {} {}", from, to, number));
    for (const Post* const p : hall.all(name))
        if (p->call != wanted.call || p->count != wanted.count || p->type != wanted.type ||
            p->root != wanted.root)
            hall.break_up(c, fmt::format("{} of {} elements here, {} of {} on another rank",
                                         call_names[int(wanted.call)], wanted.count,
                                         call_names[int(p->call)], p->count));
    Post& own = hall.free_post();
    own = {name, stream_of(c.name.c_str()), place, wanted.expected, getpid(), false, false, wanted.call,
           wanted.type, wanted.root, wanted.count, part, {}};
    return int(&own - hall.s.posts);
}

static bool moved(bool writes, const Post& p, std::byte* own, const std::byte* there, size_t bytes) {
    if (bytes == 0) return true;
    const iovec here = {own, bytes}, away = {const_cast<std::byte*>(there), bytes};
    const ssize_t n = writes ? process_vm_writev(p.process, &here, 1, &away, 1, 0)
                             : process_vm_readv(p.process, &here, 1, &away, 1, 0);
    CHECK(n >= 0 || errno == ESRCH, "the emulated NCCL between processes: {}", strerror(errno));
    return n == ssize_t(bytes);
}

// false: a process is gone, and the meeting never ends.
static bool carried_out(const std::vector<Post*>& all, const Meeting& like) {
    const size_t n = all.size();
    Meeting m = like;
    m.parts.resize(n);
    std::vector<std::vector<std::byte>> sent(n), received(n);
    for (size_t i = 0; i < n; i++) {
        const Post& p = *all[i];
        sent[i].resize(p.part.sent);
        received[i].resize(p.part.received);
        m.parts[i] = {sent[i].data(), received[i].data(), -1, -1, p.part.sent, p.part.received};
        if (!moved(false, p, sent[i].data(), p.part.from, p.part.sent)) return false;
    }
    carry_out(m);
    for (size_t i = 0; i < n; i++)
        if (!moved(true, *all[i], received[i].data(), all[i]->part.to, all[i]->part.received)) return false;
    return true;
}

bool meet(Clique& c, int number) {
    Locked hall(c);
    Post& own = hall.s.posts[number];
    if (hall.broken(c)) return true;
    if (!own.arrived) {
        own.arrived = true;
        std::vector<Post*> all(size_t(own.expected), nullptr);
        int here = 0;
        for (Post* const p : hall.all(own.key))
            if (p->arrived) all[size_t(p->place)] = p, here++;
        const Meeting like{own.call, own.count, own.type, own.root, own.expected, {}, {}, 0, 0, false};
        if (here == own.expected && carried_out(all, like))
            for (Post* const p : all) p->done = true;
    }
    if (!own.done) return false;
    own.key = 0;
    return true;
}

// ---------------------------------------------------------------------------------------------------------
// the making of communicators

bool say(Clique& c, const std::string& name, int rank, const Clique::Asked& words) {
    Locked hall(c);
    const uint64_t key = key_of(c, name);
    for (const Post* const p : hall.all(key))
        if (p->place == rank) return false;
    Post& own = hall.free_post();
    own = {};
    own.key = key;
    own.place = rank;
    own.process = getpid();
    own.said = words;
    return true;
}

std::vector<Clique::Asked> heard(Clique& c, const std::string& name, int size) {
    Locked hall(c);
    std::vector<Clique::Asked> all;
    for (const Post* const p : hall.all(key_of(c, name))) all.push_back(p->said);
    return int(all.size()) == size ? all : std::vector<Clique::Asked>();
}

void leave(Clique& c) {
    Locked hall(c);
    for (Post& p : hall.s.posts)
        if (p.key && p.process == getpid() && p.clique == stream_of(c.name.c_str())) p.key = 0;
}

}  // namespace emulator

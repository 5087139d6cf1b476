// A peer sends Hello and its text, gets Hello back at once, which says that it found the right rank 0, and
// all texts when everybody has come. Whoever says anything else, or nothing, is not of this job.
#include "llmc/comm/rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/launcher.h"
#include "llmc/base/progress.h"
#include "llmc/base/rng.h"

static constexpr int kPorts = 8;
static constexpr uint32_t kLongest = 1 << 16;           // bytes of a text
static constexpr double kSilence = 1;                   // seconds that a stranger may say nothing

struct Hello {
    uint64_t magic, job;
    int32_t rank, world;
};

struct Socket {
    int fd = -1;

    explicit Socket(int fd = -1) : fd(fd) {}
    Socket(Socket&& s) noexcept : fd(s.fd) { s.fd = -1; }
    Socket& operator=(Socket&& s) noexcept { std::swap(fd, s.fd); return *this; }
    ~Socket() { if (fd >= 0) close(fd); }
    explicit operator bool() const { return fd >= 0; }

    bool ready(short events, double until) const {
        pollfd p = {.fd = fd, .events = events, .revents = 0};
        const double left = until - seconds_now();
        return left > 0 && poll(&p, 1, int(left * 1000) + 1) > 0;
    }
    bool send_all(const void* data, size_t n, double until) const {
        for (size_t at = 0; at < n;) {
            if (!ready(POLLOUT, until)) return false;
            const ssize_t k =
                send(fd, static_cast<const char*>(data) + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (k < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            if (k <= 0) return false;
            at += size_t(k);
        }
        return true;
    }
    bool recv_all(void* data, size_t n, double until) const {
        for (size_t at = 0; at < n;) {
            if (!ready(POLLIN, until)) return false;
            const ssize_t k = recv(fd, static_cast<char*>(data) + at, n - at, MSG_DONTWAIT);
            if (k < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            if (k <= 0) return false;
            at += size_t(k);
        }
        return true;
    }
    bool send_text(const std::string& text, double until) const {
        const uint32_t n = uint32_t(text.size());
        return send_all(&n, sizeof n, until) && send_all(text.data(), n, until);
    }
    bool recv_text(std::string& text, double until) const {
        uint32_t n;
        if (!recv_all(&n, sizeof n, until) || n > kLongest) return false;
        text.resize(n);
        return recv_all(text.data(), n, until);
    }
};

static Hello hello_of(const Rendezvous& r) {
    return {stream_of("train_gpt rendezvous"), stream_of(r.job.c_str()), r.rank, r.world};
}

static bool of_one_job(const Hello& a, const Hello& b) {
    return a.magic == b.magic && a.job == b.job && a.world == b.world;
}

static Socket listen_at(uint16_t port) {
    for (const int family : {AF_INET6, AF_INET}) {
        addrinfo hints = {};
        hints.ai_flags = AI_PASSIVE;
        hints.ai_family = family;
        hints.ai_socktype = SOCK_STREAM;
        addrinfo* found = nullptr;
        if (getaddrinfo(nullptr, std::to_string(port).c_str(), &hints, &found)) continue;
        Socket s(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const int on = 1, off = 0;
        if (s) setsockopt(s.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (s && family == AF_INET6) setsockopt(s.fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        const bool listens =
            s && bind(s.fd, found->ai_addr, found->ai_addrlen) == 0 && listen(s.fd, 1024) == 0;
        freeaddrinfo(found);
        if (listens) return s;
    }
    return Socket();
}

static Socket connect_to(const std::string& host, uint16_t port, double until) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found)) return Socket();
    Socket connected;
    for (const addrinfo* a = found; a && !connected; a = a->ai_next) {
        Socket s(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!s) continue;
        int error = connect(s.fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
        socklen_t size = sizeof error;
        if (error == EINPROGRESS && s.ready(POLLOUT, until))
            getsockopt(s.fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error == 0) connected = std::move(s);
    }
    freeaddrinfo(found);
    return connected;
}

static std::string ports_of(const Rendezvous& r) {
    std::string text;
    for (const uint16_t p : r.ports) text += (text.empty() ? "" : ", ") + std::to_string(p);
    return text;
}

// A rank that tries again, because its first attempt took too long, replaces itself.
static void welcome(const Rendezvous& r, Socket peer, std::vector<Socket>& peers,
                    std::vector<std::string>& texts) {
    const double until = seconds_now() + kSilence;
    const Hello own = hello_of(r);
    Hello h;
    if (!peer.recv_all(&h, sizeof h, until) || !of_one_job(h, own) || h.rank < 1 || h.rank >= r.world) return;
    std::string text;
    if (!peer.recv_text(text, until) || !peer.send_all(&own, sizeof own, until)) return;
    texts[size_t(h.rank)] = std::move(text);
    peers[size_t(h.rank)] = std::move(peer);
}

static std::vector<std::string> serve(const Rendezvous& r, const std::string& own) {
    const double until = seconds_now() + r.timeout;
    Socket door;
    for (size_t i = 0; i < r.ports.size() && !door; i++) door = listen_at(r.ports[i]);
    CHECK_INPUT(bool(door),
                "rank 0 cannot listen at any of the ports %s: set MASTER_PORT to one that is free",
                ports_of(r).c_str());
    std::vector<Socket> peers(size_t(r.world));
    std::vector<std::string> texts(size_t(r.world));
    texts[0] = own;
    const auto missing = [&] {
        std::string list;
        for (int i = 1; i < r.world; i++)
            if (!peers[size_t(i)]) list += (list.empty() ? "" : ", ") + std::to_string(i);
        return list;
    };
    while (!missing().empty()) {
        if (!door.ready(POLLIN, until))
            fatal(kExitRestart, __FILE__, __LINE__, "of %d ranks these did not come within %g s: %s", r.world,
                  r.timeout, missing().c_str());
        welcome(r, Socket(accept4(door.fd, nullptr, nullptr, SOCK_CLOEXEC)), peers, texts);
    }
    for (int i = 1; i < r.world; i++)
        for (const std::string& text : texts)
            if (!peers[size_t(i)].send_text(text, until))
                fatal(kExitRestart, __FILE__, __LINE__, "rank %d left while the ranks met", i);
    return texts;
}

static std::vector<std::string> ask(const Rendezvous& r, const std::string& own) {
    const double until = seconds_now() + r.timeout;
    const Hello hello = hello_of(r);
    while (seconds_now() < until) {
        for (const uint16_t port : r.ports) {
            const double soon = std::min(until, seconds_now() + r.patience);
            const Socket s = connect_to(r.host, port, soon);
            Hello answer;
            if (!s || !s.send_all(&hello, sizeof hello, soon) || !s.send_text(own, soon)) continue;
            if (!s.recv_all(&answer, sizeof answer, soon) || !of_one_job(answer, hello)) continue;
            std::vector<std::string> texts(size_t(r.world));
            for (std::string& text : texts)
                if (!s.recv_text(text, until))
                    fatal(kExitRestart, __FILE__, __LINE__,
                          "rank 0 left, or waited for others for more than %g s", r.timeout);
            return texts;
        }
        usleep(50000);
    }
    fatal(kExitRestart, __FILE__, __LINE__, "rank 0 does not answer at %s, ports %s, within %g s",
          r.host.c_str(), ports_of(r).c_str(), r.timeout);
}

std::vector<std::string> exchange(const Rendezvous& r, const std::string& own) {
    CHECK(own.size() <= kLongest, "a text of %zu bytes, %u at most", own.size(), kLongest);
    CHECK(r.rank >= 0 && r.rank < r.world, "rank %d of %d", r.rank, r.world);
    if (r.world == 1) return {own};
    return r.rank == 0 ? serve(r, own) : ask(r, own);
}

std::string first_host(const std::string& nodes) {
    const size_t open = nodes.find('['), comma = nodes.find(',');
    if (open == std::string::npos || comma < open) return nodes.substr(0, comma);
    const size_t number = nodes.find_first_of("-,]", open), close = nodes.find(']', open);
    if (close == std::string::npos) return nodes;
    const std::string tail = nodes.substr(close + 1);
    return nodes.substr(0, open) + nodes.substr(open + 1, number - open - 1) + tail.substr(0, tail.find(','));
}

static std::string variable(const char* name) {
    const char* text = getenv(name);
    return text ? text : "";
}

// mpirun tells how many of its processes are on this host.
static bool all_on_this_host(int world) {
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
        if (atoi(variable(name).c_str()) == world) return true;
    return false;
}

Rendezvous rendezvous_of_environment() {
    const Launcher& l = launcher();
    Rendezvous r{
        .rank = l.rank, .world = l.world, .host = variable("MASTER_ADDR"), .ports = {}, .job = l.job};
    if (r.host.empty()) {
        const std::string nodes = variable("SLURM_STEP_NODELIST");
        r.host = first_host(nodes.empty() ? variable("SLURM_JOB_NODELIST") : nodes);
    }
    if (r.host.empty() && all_on_this_host(r.world)) r.host = "localhost";
    CHECK_INPUT(r.world == 1 || !r.host.empty(),
                "%d processes were started, and nothing says where rank 0 is: set "
                "MASTER_ADDR to its host",
                r.world);
    // torchrun's agent listens at MASTER_PORT itself
    const int port = atoi(variable("MASTER_PORT").c_str());
    if (port > 0 && port < 65536 && variable("TORCHELASTIC_USE_AGENT_STORE") != "True")
        r.ports.push_back(uint16_t(port));
    // below the ports that the kernel gives to outgoing connections
    for (uint64_t i = 0; i < kPorts; i++)
        r.ports.push_back(uint16_t(10000 + philox(stream_of(r.job.c_str()), 0, i).x[0] % 20000));
    return r;
}

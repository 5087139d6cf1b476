#include "llmc/comm/transport/links.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/guard/generation.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/host/machine.h"

inline namespace transport {

static constexpr size_t kShort = 16 << 10;      // bytes of a piece that always goes through the socket

bool read_memory(int process, void* to, uint64_t address, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        const iovec here = {static_cast<std::byte*>(to) + at, bytes - at};
        const iovec there = {reinterpret_cast<void*>(address + at), bytes - at};
        const ssize_t k = process_vm_readv(process, &here, 1, &there, 1, 0);
        if (k <= 0) return false;
        at += size_t(k);
    }
    return true;
}

static constexpr useconds_t kFirstWord = 300000;

static thread_local std::vector<Link*>* own_links = nullptr;       // of the wait in progress

// A rank that is gone takes this one along. The others hear its number, as they may see this rank go first.
// On this host the rank or its supervisor knows the cause, and is the first to say a line.
[[noreturn]] static void lost(const Link& l, int rank) {
    const Frame frame = {Frame::Lost, 0, uint64_t(rank), 0};
    if (own_links)
        for (Link* other : *own_links)
            if (other != &l && !other->ended && (other->out.empty() || other->out.front().moved == 0))
                other->socket.send_some(&frame, sizeof frame);
    own_links = nullptr;
    if (!own_generation && l.host == host_name()) usleep(kFirstWord);
    const std::string host = rank == l.peer ? " on " + l.host : "";
    lose_rank(__FILE__, __LINE__, fmt::format("rank {}{} is gone: its connection has closed", rank, host));
}

// ---------------------------------------------------------------------------------------------------------
// out

static void flush(Link& l) {
    while (!l.out.empty()) {
        Link::Out& o = l.out.front();
        const size_t data = o.frame.kind == Frame::Data ? size_t(o.frame.bytes) : 0;
        const size_t head = std::min(o.moved, sizeof o.frame), body = o.moved - head;
        const iovec parts[] = {{reinterpret_cast<std::byte*>(&o.frame) + head, sizeof o.frame - head},
                               {const_cast<std::byte*>(o.data) + body, data - body}};
        const ssize_t k = l.socket.send_some(parts);
        if (k < 0) lost(l, l.peer);
        if (k == 0) return;
        o.moved += size_t(k);
        if (o.moved < sizeof o.frame + data) continue;
        if (o.frame.kind == Frame::Read) l.lent.push_back(o.left);
        else if (o.left) --*o.left;
        l.out.pop_front();
    }
}

static void push(Link& l, const Link::Out& o) {
    l.out.push_back(o);
    if (l.out.size() == 1) flush(l);
}

void post_send(Link& l, StreamOf stream, const void* data, size_t bytes, size_t* left) {
    if (bytes == 0) return;
    const bool reads = l.process && bytes > kShort;
    ++*left;
    push(l, {{reads ? Frame::Read : Frame::Data, stream, bytes, reinterpret_cast<uint64_t>(data)},
             static_cast<const std::byte*>(data), 0, left});
}

// ---------------------------------------------------------------------------------------------------------
// in

// Where the data of the front receive goes.
static std::byte* taken_by(Link& l, const Frame& f) {
    const Link::In& in = l.in[f.stream].front();
    CHECK(in.bytes == f.bytes, "rank {} sent {} bytes, {} are expected", l.peer, f.bytes, in.bytes);
    return in.data;
}
static void complete(Link& l, uint32_t stream) {
    --*l.in[stream].front().left;
    l.in[stream].pop_front();
}

// Pieces that came before their receives, as far as these are posted now.
static void take_early(Link& l, uint32_t stream) {
    auto& early = l.early[stream];
    while (!early.empty() && !l.in[stream].empty()) {
        const Frame f = early.front().frame;
        std::byte* const to = taken_by(l, f);
        if (f.kind == Frame::Data) {
            memcpy(to, early.front().data.data(), f.bytes);
        } else {
            if (!read_memory(l.process, to, f.address, f.bytes)) lost(l, l.peer);
            push(l, {{Frame::Taken, 0, 0, 0}, nullptr, 0, nullptr});
        }
        complete(l, stream);
        early.pop_front();
    }
}

// Whether the place of the arriving data is known: a receive's, or memory of its own. A long piece waits in
// the connection for its receive, unless the other stream waits behind it.
static bool has_place(Link& l) {
    if (l.place) return true;
    const uint32_t stream = l.frame.stream;
    if (l.early[stream].empty() && !l.in[stream].empty()) {
        l.place = taken_by(l, l.frame);
        return true;
    }
    if (l.frame.bytes > kShort && l.in[1 - stream].empty()) return false;
    l.kept.resize(l.frame.bytes);
    l.place = l.kept.data();
    return true;
}

// At most n bytes that have arrived; 0: none have. The end of the connection is an error before Frame::End.
static size_t arrived(Link& l, std::byte* to, size_t n) {
    const ssize_t k = l.socket.recv_some(to, n);
    if (k < 0) lost(l, l.peer);
    return size_t(k);
}

// All data of the arriving piece; false: not yet.
static bool take_data(Link& l) {
    if (!has_place(l)) return false;
    while (l.moved < l.frame.bytes) {
        const size_t k = arrived(l, l.place + l.moved, l.frame.bytes - l.moved);
        if (k == 0) return false;
        l.moved += k;
    }
    const bool kept = l.place == l.kept.data();
    l.place = nullptr;
    l.moved = 0;
    if (kept) l.early[l.frame.stream].push_back({l.frame, std::move(l.kept)});
    else complete(l, l.frame.stream);
    l.kept = {};
    return true;
}

// Takes the arriving frame; false: its data has not arrived.
static bool take(Link& l) {
    const Frame& f = l.frame;
    CHECK(f.kind <= Frame::Lost && f.stream < kStreams, "rank {} sent what is no message", l.peer);
    switch (f.kind) {
        case Frame::Data:
            if (!take_data(l)) return false;
            break;
        case Frame::Read: l.early[f.stream].push_back({f, {}}); break;
        case Frame::Taken:
            CHECK(!l.lent.empty(), "rank {} has taken what this rank has not sent", l.peer);
            --*l.lent.front();
            l.lent.pop_front();
            break;
        case Frame::End: l.ended = true; break;
        case Frame::Lost: lost(l, int(f.bytes));
    }
    take_early(l, f.stream);
    l.got = 0;
    return true;
}

static void take_arrived(Link& l) {
    while (!l.ended) {
        while (l.got < sizeof l.frame) {
            const size_t k = arrived(l, reinterpret_cast<std::byte*>(&l.frame) + l.got,
                                     sizeof l.frame - l.got);
            if (k == 0) return;
            l.got += k;
        }
        if (!take(l)) return;
    }
}

void post_recv(Link& l, StreamOf stream, void* data, size_t bytes, size_t* left) {
    if (bytes == 0) return;
    ++*left;
    l.in[stream].push_back({static_cast<std::byte*>(data), bytes, left});
    take_early(l, stream);
}

// ---------------------------------------------------------------------------------------------------------
// waits

static void move_all(std::vector<Link*>& links) {
    for (Link* l : links) {
        if (!l->out.empty()) flush(*l);
        if (!l->wants_input()) continue;
        if (l->ended) lost(*l, l->peer);
        take_arrived(*l);
    }
}

// Sleeps until a connection can move something, or closes.
static void sleep_on(std::vector<Link*>& links, double seconds) {
    std::vector<pollfd> files;
    for (Link* l : links) {
        const int events = (l->out.empty() ? 0 : POLLOUT) | (l->wants_input() ? POLLIN : 0) | POLLRDHUP;
        files.push_back({l->ended ? -1 : l->socket.fd, short(events), 0});
    }
    poll(files.data(), files.size(), int(seconds * 1000) + 1);
    for (size_t i = 0; i < files.size(); i++) {
        if (!(files[i].revents & (POLLRDHUP | POLLHUP | POLLERR))) continue;
        Link& l = *links[i];
        take_arrived(l);
        if (!l.ended) lost(l, l.peer);          // before a piece that no receive waits for
    }
}

// The line about a hang says whose piece is missing: "all_gather tp from rank 3 on node2".
static void publish_peer(const std::vector<Link*>& links) {
    for (const Link* l : links)
        if (l->wants_input()) return waits_for_peer(fmt::format("rank {} on {}", l->peer, l->host));
}

void await_pieces(std::vector<Link*>& links, const size_t* left) {
    static constexpr int kLong = 10;            // naps: a second or so
    static constexpr Wait hasty = {.what = "a wait for other ranks", .spins = 50, .yields = 50, .nap = 0.1};
    own_links = &links;
    int naps = 0;
    const auto done = [&] {
        if (*left) move_all(links);
        return *left == 0;
    };
    wait_until(hasty, done, [&](double nap) {
        if (++naps % kLong == 0) publish_peer(links);
        sleep_on(links, nap);
    });
    own_links = nullptr;
}

void end_links(std::vector<Link*>& links) {
    const Frame frame = {Frame::End, 0, 0, 0};
    for (Link* l : links)
        if (!l->ended) l->socket.send_some(&frame, sizeof frame);
}

}  // namespace transport

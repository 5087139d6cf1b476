// Strangers at the port where ranks meet, ranks without the secret of the job, and the texts of many ranks.
#include <atomic>
#include <cstring>

#include "llmc/comm/transport/placement.h"
#include "llmc/comm/rendezvous/rendezvous_protocol.h"
#include "llmc/comm/rendezvous/socket.h"
#include "test/meeting.h"

// A connection, as soon as somebody listens there.
static Socket call(uint16_t port, const std::string& address = "127.0.0.1") {
    for (int i = 0; i < 2000; i++) {
        std::vector<Socket> all = connect_to(address, {port}, seconds_now() + 5);
        if (!all.empty()) return std::move(all[0]);
        usleep(5000);
    }
    return Socket();
}

static bool say(const Socket& s, const void* data, size_t n) {
    return s.send_all(data, n, seconds_now() + 5);
}

// Whether the other end hangs up, having sent nothing more.
static bool hung_up(const Socket& s) {
    char byte;
    return !s.recv_all(&byte, 1, seconds_now() + 20) && s.recv_some(&byte, 1) < 0;
}

static Hello hello_to(const Rendezvous& r) {
    return {kMagic, stream_of(r.job.c_str()), r.rank, r.world, !r.secret.empty(), new_nonce()};
}

// A job of three with a secret, of which rank 0 waits at once; the others come when f() has returned.
template <class F> static std::vector<Result> job_beside(uint16_t port, F f) {
    std::vector<Result> all(3);
    const auto rank = [&](int r) {
        Rendezvous at = place_of_rank(r, 3, {port});
        at.secret = "known to ranks";
        all[size_t(r)] = meet(at, text_of(r));
    };
    std::thread zero(rank, 0);
    f();
    std::thread one(rank, 1), two(rank, 2);
    zero.join(), one.join(), two.join();
    return all;
}

TEST(hundreds_of_silent_strangers_keep_nobody_out) {
    const uint16_t port = free_port();
    std::vector<Socket> strangers;
    const auto all = job_beside(port, [&] {
        for (int i = 0; i < 400; i++) strangers.push_back(call(port));
    });
    expect_all(all);
}

// Slow, malformed and oversized; half of what is expected, or an end at once.
TEST(strangers_of_any_kind_are_turned_away) {
    const uint16_t port = free_port();
    std::vector<Socket> strangers;
    std::atomic<bool> over = false;
    std::thread slow;
    const auto all = job_beside(port, [&] {
        const Hello hello = hello_to(place_of_rank(1, 3, {}));
        Hello wrong[4] = {hello, hello, hello, hello};
        wrong[0].magic++, wrong[1].job++, wrong[2].rank = 3, wrong[3].world = 4;
        for (const Hello& h : wrong) strangers.push_back(call(port)), say(strangers.back(), &h, sizeof h);
        for (const Socket& s : strangers) EXPECT(hung_up(s), "a wrong Hello is listened to");
        const std::string words = "GET / HTTP/1.0\r\n\r\n and what it takes to be as long as Hello";
        strangers.push_back(call(port)), say(strangers.back(), words.data(), words.size());
        EXPECT(hung_up(strangers.back()), "a browser is listened to");
        strangers.push_back(call(port)), say(strangers.back(), &hello, sizeof hello - 1);       // half
        call(port);                                                                             // and gone
        const linger at_once = {1, 0};
        const Socket reset = call(port);
        setsockopt(reset.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        const Socket long_text = call(port);
        Rendezvous knows = place_of_rank(1, 3, {});
        knows.secret = "known to ranks";
        const Hello ranks = hello_to(knows);
        Answer answer;
        say(long_text, &ranks, sizeof ranks);
        EXPECT(long_text.recv_all(&answer, sizeof answer, seconds_now() + 5));
        const Shown shown = {proof_of(knows, "rank", ranks, answer.nonce), 0xffffffff};
        say(long_text, &shown, sizeof shown);
        EXPECT(hung_up(long_text), "a text of 4 GB is waited for");
        slow = std::thread([&over, s = call(port), hello] {
            for (size_t i = 0; i < sizeof hello && !over; i++) {
                say(s, reinterpret_cast<const char*>(&hello) + i, 1);
                usleep(20000);
            }
        });
    });
    over = true;
    slow.join();
    expect_all(all);
}

// A proof for 127.0.0.1 is refused at 127.0.0.2, another address of this machine.
TEST(rank_0_listens_at_the_address_of_the_job_alone) {
    const uint16_t port = free_port();
    Result zero;
    std::thread rank([&] {
        Rendezvous r = place_of_rank(0, 2, {port});
        r.host = "127.0.0.1";
        zero = meet(r, text_of(0));
    });
    const Socket reached = call(port);
    EXPECT(bool(reached) && connect_to("127.0.0.2", {port}, seconds_now() + 5).empty(),
           "it listens elsewhere");
    const Result one = meet(place_of_rank(1, 2, {port}), text_of(1));
    rank.join();
    expect_all({zero, one});
    Rendezvous elsewhere = place_of_rank(0, 2, {port});
    elsewhere.host = "192.0.2.1";           // for documentation (RFC 5737): no machine
    const Result e = meet(elsewhere, "");
    EXPECT(e.code == kExitConfig && e.error.find("no address of this machine") != std::string::npos, "%d: %s",
           e.code, e.error.c_str());
}

// With a secret, where the job's address is another machine's (a gateway), rank 0 listens at all addresses.
TEST(rank_0_with_a_secret_listens_at_all_addresses) {
    const uint16_t port = free_port();
    Result zero;
    Rendezvous r0 = place_of_rank(0, 2, {port}), r1 = place_of_rank(1, 2, {port});
    r0.host = "192.0.2.1", r1.host = "127.0.0.2";
    r0.secret = r1.secret = "known to ranks";
    std::thread rank([&] { zero = meet(r0, text_of(0)); });
    const Result one = meet(r1, text_of(1));
    rank.join();
    expect_all({zero, one});
}

// Rank 0 warns once and keeps waiting; the other rank ends at once, or both learn who has no secret.
TEST(another_secret_is_refused_with_a_line) {
    const struct { const char *zeros, *ones, *says; } cases[] = {
        {"known to ranks", "guessed", "has another TRAIN_GPT_SECRET than this rank"},
        {"known to ranks", "", "has a TRAIN_GPT_SECRET, and this rank has none"},
        {"", "known to ranks", "has no TRAIN_GPT_SECRET, and this rank has one"}};
    for (const auto& [zeros, ones, says] : cases) {
        Result zero, wrong, right;
        const std::string said = test::captured(2, [&] {
            const uint16_t port = free_port();
            Rendezvous r0 = place_of_rank(0, 2, {port}), r1 = place_of_rank(1, 2, {port});
            r0.secret = zeros, r1.secret = ones;
            std::thread rank([&] { zero = meet(r0, text_of(0)); });
            wrong = meet(r1, text_of(1));
            r1.secret = zeros;
            right = meet(r1, text_of(1));
            rank.join();
        });
        expect_all({zero, right});
        EXPECT(wrong.code == kExitConfig && wrong.error.find(says) != std::string::npos, "%d: %s", wrong.code,
               wrong.error.c_str());
        const size_t line = said.find("warning: rank 0 turns away a connection from ");
        EXPECT((line == std::string::npos) == !strcmp(ones, "guessed") ||
               said.find("warning", line + 1) == std::string::npos, "'%s'", said.c_str());
    }
}

// Replayed messages of rank 0 or of a rank prove nothing.
TEST(proofs_are_of_no_use_to_others) {
    const uint16_t port = free_port();
    const std::string said = test::captured(2, [&] {
        expect_all(job_beside(port, [&] {
            Rendezvous stranger = place_of_rank(1, 3, {});
            stranger.secret = "has one, but which";
            const Socket s = call(port);
            const Hello hello = hello_to(stranger);
            Answer answer;
            say(s, &hello, sizeof hello);
            EXPECT(s.recv_all(&answer, sizeof answer, seconds_now() + 5));
            const Shown back = {answer.proof, 0};
            say(s, &back, sizeof back);
            EXPECT(hung_up(s), "rank 0 takes its own proof");
        }));
    });
    EXPECT(said.starts_with("warning: rank 0 turns away a connection from 127.0.0.1: it calls itself rank 1 "
                            "of this job, and its TRAIN_GPT_SECRET is another\n"), "'%s'", said.c_str());
}

// A stranger listening on a port of rank 0 learns nothing, with any answer.
TEST(ranks_tell_a_false_rank_0_nothing) {
    Door door(true);
    const uint16_t last = free_port();
    bool told = true;
    std::thread false_zero([&] {
        const Socket s(accept(door.fd, nullptr, nullptr));
        close(std::exchange(door.fd, -1));
        Hello hello;
        if (!s.recv_all(&hello, sizeof hello, seconds_now() + 20)) return;
        const Answer answer = {kMagic, hello.job, 1, hello.nonce, {}};
        say(s, &answer, sizeof answer);
        told = !hung_up(s);
    });
    std::vector<Result> all(2);
    const auto rank = [&](int r) {
        Rendezvous at = place_of_rank(r, 2, {door.port, last});
        at.secret = "known to ranks", at.patience = 10;
        all[size_t(r)] = meet(at, text_of(r));
    };
    std::thread one(rank, 1);
    false_zero.join();
    rank(0);
    one.join();
    EXPECT(!told, "a rank shows what it knows to anybody");
    expect_all(all);
}

// Comes to the point where rank 0 has taken its text.
static Socket taken_as(int rank, uint16_t port) {
    Rendezvous at = place_of_rank(rank, 3, {port});
    at.secret = "known to ranks";
    Socket s = call(port);
    const Hello hello = hello_to(at);
    Answer answer;
    uint64_t taken = 0;
    say(s, &hello, sizeof hello);
    EXPECT(s.recv_all(&answer, sizeof answer, seconds_now() + 5));
    const Shown shown = {proof_of(at, "rank", hello, answer.nonce, sha256("x")), 1};
    say(s, &shown, sizeof shown), say(s, "x", 1);
    EXPECT(s.recv_all(&taken, sizeof taken, seconds_now() + 5) && taken == kMagic, "rank %d", rank);
    return s;
}

// Who dies before all have come is missing again.
TEST(a_rank_that_left_comes_again) {
    const uint16_t port = free_port();
    expect_all(job_beside(port, [&] {
        taken_as(1, port);
        taken_as(2, port);
    }));
}

// Placements of 512 hosts: rank 0 sends all of them to each of 4,095 ranks.
TEST(texts_of_many_ranks_are_short) {
    constexpr int kWorld = 4096;
    std::vector<std::string> texts, hashes(kWorld, "0123456789abcdef");
    for (int r = 0; r < kWorld; r++) {
        const int host = r / 8;
        Placement p = {};
        fmt::format("gpu-{:04}.cluster.example.org", host).copy(p.host, sizeof p.host - 1);
        const auto id = [&](uint64_t i) { return philox(1, i, uint64_t(host)).x[0]; };
        fmt::format("{:08x}-{:08x}-{:08x}", id(0), id(1), id(2)).copy(p.boot, sizeof p.boot - 1);
        for (size_t c = 0; c < 12; c++) CPU_SET(size_t(r % 8) * 12 + c, &p.cores);
        p.gpus = 8;
        for (int g = 0; g < p.gpus; g++) fmt::format("0000:{:02x}:00.0", g * 16 + 3).copy(p.address[g], 15);
        texts.emplace_back(reinterpret_cast<const char*>(&p), sizeof p);
        texts.back() += std::string(128, '\0');         // NCCL's id, of rank 0 alone
    }
    const std::string bytes = packed_texts(texts), equal = packed_texts(hashes);
    EXPECT(unpacked_texts(bytes, kWorld) == texts && unpacked_texts(equal, kWorld) == hashes, "others");
    EXPECT(bytes.size() < 40 * kWorld && equal.size() < 200, "%zu bytes, and %zu of equal hashes",
           bytes.size(), equal.size());
    EXPECT(unpacked_texts(bytes, kWorld - 1).empty() && unpacked_texts("no texts", 3).empty() &&
           unpacked_texts(bytes.substr(0, 1000), kWorld).empty(), "bytes of another job");
}

#include "llmc/comm/rendezvous/rendezvous.h"

#include <algorithm>

#include "llmc/base/guard/wait.h"
#include "llmc/comm/rendezvous/rendezvous_protocol.h"
#include "llmc/comm/rendezvous/socket.h"

inline namespace rendezvous {

// Of one attempt.
enum class Met { Nobody, OtherSecret, RankZero };

// Returns RankZero if rank 0 has accepted this rank's text; sets the key for checking the last message.
static Met introduce(const Rendezvous& r, const Socket& s, const std::string& own, double until, Hello* hello,
                     Answer* answer) {
    *hello = {kMagic, stream_of(r.job.c_str()), r.rank, r.world, !r.secret.empty(), new_nonce()};
    if (!s.send_all(hello, sizeof *hello, until) || !s.recv_all(answer, sizeof *answer, until) ||
        answer->magic != kMagic || answer->job != hello->job)
        return Met::Nobody;
    if (answer->has_secret != hello->has_secret ||
        !same_hash(answer->proof, proof_of(r, "rank 0", *hello, answer->nonce)))
        return Met::OtherSecret;
    const Shown shown = {proof_of(r, "rank", *hello, answer->nonce, sha256(own)), uint32_t(own.size())};
    uint64_t taken = 0;
    const bool said = s.send_all(&shown, sizeof shown, until) && s.send_all(own.data(), own.size(), until) &&
                      s.recv_all(&taken, sizeof taken, until) && taken == kMagic;
    return said ? Met::RankZero : Met::Nobody;
}

static std::vector<std::string> texts_from(const Rendezvous& r, const Socket& s, const Hello& hello,
                                           const Nonce& nonce, double until) {
    uint64_t bytes = 0;
    std::string all;
    bool came = s.recv_all(&bytes, sizeof bytes, until) && bytes <= uint64_t(r.world) * 2 * kLongest;
    if (came) all.resize(size_t(bytes));
    came = came && s.recv_all(all.data(), all.size(), until);
    Sha256 proof;
    came = came && s.recv_all(proof.data(), proof.size(), until) &&
           same_hash(proof, proof_of(r, "all", hello, nonce, sha256(all)));
    const std::vector<std::string> texts = came ? unpacked_texts(all, r.world) : std::vector<std::string>();
    if (texts.empty())
        fatal(kExitRestart, __FILE__, __LINE__, "rank 0 left, or waited for others for more than {:g} s",
              r.timeout);
    return texts;
}

static const char* how_secrets_differ(bool has_secret, bool own) {
    if (!has_secret) return "has no TRAIN_GPT_SECRET, and this rank has one";
    if (!own) return "has a TRAIN_GPT_SECRET, and this rank has none";
    return "has another TRAIN_GPT_SECRET than this rank";
}

static std::vector<std::string> ask(const Rendezvous& r, const std::string& own) {
    const double begin = seconds_now(), until = begin + r.timeout;
    while (seconds_now() < until) {
        bool other_secret = false, has_secret = false;
        const auto soon = [&] { return std::min(until, seconds_now() + r.patience); };
        for (const Socket& s : connect_to(r.host, r.ports, soon())) {
            Hello hello;
            Answer answer;
            const Met met = introduce(r, s, own, soon(), &hello, &answer);
            if (met == Met::RankZero) return texts_from(r, s, hello, answer.nonce, until);
            if (met != Met::OtherSecret) continue;
            other_secret = true;
            has_secret = answer.has_secret;
        }
        // rank 0 may yet come, to another port
        CHECK_INPUT(!other_secret || seconds_now() < begin + r.patience,
                    "rank 0 of this job, at {}, {}: start all ranks with the same TRAIN_GPT_SECRET, or all "
                    "without", r.host,
                    how_secrets_differ(has_secret, !r.secret.empty()));
        wait_until({.what = "rendezvous", .nap = 0.05, .until = seconds_now() + 0.05}, [] { return false; });
    }
    fatal(kExitRestart, __FILE__, __LINE__, "rank 0 does not answer at {}, ports {}, within {:g} s",
          r.host, ports_of(r), r.timeout);
}

std::vector<std::string> exchange(const Rendezvous& r, const std::string& own) {
    CHECK(own.size() <= kLongest, "a text of {} bytes, {} at most", own.size(), kLongest);
    CHECK(r.rank >= 0 && r.rank < r.world, "rank {} of {}", r.rank, r.world);
    if (r.world == 1) return {own};
    static constexpr double kToReport = 30;     // the loops below end first, and name the missing ranks
    const Waiting named("rendezvous", Awaits::Ranks, r.timeout + kToReport);
    return r.rank == 0 ? serve(r, own) : ask(r, own);
}

}  // namespace rendezvous

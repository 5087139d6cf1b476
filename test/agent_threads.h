// A job of run.elastic in this process: an agent on a thread, its ranks on threads, which tests end where and
// as often as they like. Images lie with the agent, connections are those of processes.
#pragma once
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "llmc/base/guard/generation.h"
#include "llmc/base/host/machine.h"
#include "llmc/comm/agents/agent_state.h"
#include "llmc/comm/agents/member.h"
#include "llmc/comm/launch/elastic.h"
#include "llmc/comm/transport/tcp.h"
#include "test/test.h"

namespace test {

// A rank dies at its n-th point of a kind in a generation: before a collective, around an image.
struct Death {
    int64_t generation = 1;
    int rank = 0;
    DiesAt place = DiesAt::Collective;
    int64_t point = 0;
    auto operator<=>(const Death&) const = default;
};

struct ThreadJob {
    std::vector<Death> deaths;
    std::function<void(Agent&)> buries = {};            // when a rank that has ended is forgotten
    std::function<void()> restarts = {};                // before it is started again; all others wait

    int code = -1;
    int died = 0;
    std::string error;                                  // of a rank
    std::vector<Death> all;                             // points so far, in the order of the first run
    std::map<int64_t, int64_t> from;                    // step of the images of each generation
    int64_t safe = -1;                                  // the image that the first to die had kept

    int run(const Config& cfg, const RankBody& body);

private:
    struct Killed {};
    // Outlives its thread until the agent has buried it: other threads may not get its descriptors.
    struct RankOfThread {
        RankThread end;
        Membership membership;
        std::thread thread;
        std::function<void()> buried;
        ~RankOfThread() {
            thread.join();
            if (buried) buried();
        }
    };
    std::mutex mutex;
    int started = 0;

    bool start(RankProcess& r, const Config& cfg, const RankBody& body, Agent& agent);
    void live(RankOfThread& own, ProgressPage* page, const Config& cfg, const RankBody& body);
    std::map<Death, int64_t> points;                    // of each generation, rank and place
    void may_die(const Membership& m, const RankThread& end, DiesAt place);
};

inline void ThreadJob::may_die(const Membership& m, const RankThread& end, DiesAt place) {
    if (!own_generation || std::uncaught_exceptions()) return;
    const std::lock_guard lock(mutex);
    const int64_t generation = m.plan.head.generation;
    from[generation] = m.plan.head.step;
    Death now = {generation, m.seated.rank, place, 0};
    now.point = points[now]++;
    all.push_back(now);
    for (const Death& d : deaths)
        if (d == now || end.killed) {
            if (died++ == 0) safe = agent_page->safe_step;
            throw Killed();
        }
}

inline void ThreadJob::live(RankOfThread& own, ProgressPage* page, const Config& cfg, const RankBody& body) {
    const std::function<void(DiesAt)> at = [&](DiesAt place) { may_die(own.membership, own.end, place); };
    member_of_thread = &own.membership;
    agent_page = page;
    guard::may_die = &at;
    tcp_reads_memory = false;
    context.throw_on_fatal = true;
    int code = -SIGKILL;
    try {
        code = run_elastic(cfg, body);
    } catch (const Killed&) {
    } catch (const Fatal& e) {
        const std::lock_guard lock(mutex);
        error += e.what();
        code = e.code;
    }
    tcp_abandon();
    own.end.code = code;
    shutdown(own.membership.agent.socket.fd, SHUT_WR);      // the agent sees that the rank is gone
}

inline bool ThreadJob::start(RankProcess& r, const Config& cfg, const RankBody& body, Agent& agent) {
    int ends[2];
    r.page = make_progress_page();
    close_page_file();
    if (!r.page || socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return false;
    if (++started > cfg.parallel.ranks && restarts) restarts();
    const auto own = std::make_shared<RankOfThread>();
    r.channel = MessageChannel(Socket(ends[0]));
    own->membership.agent = MessageChannel(Socket(ends[1]));
    if (buries) own->buried = [this, &agent] { buries(agent); };
    r.process = getpid();
    r.started = seconds_now();
    r.finder.reset(new HangFinder{*r.page});
    r.thread = std::shared_ptr<RankThread>(own, &own->end);
    own->thread = std::thread([this, o = own.get(), page = r.page, cfg, body] { live(*o, page, cfg, body); });
    return true;
}

inline int ThreadJob::run(const Config& cfg, const RankBody& body) {
    std::thread job([&] {
        context.throw_on_fatal = true;
        try {
            Agent agent(cfg, nullptr);
            agent.starts_thread = [&](RankProcess& r) { return start(r, cfg, body, agent); };
            code = agent.run();
        } catch (const Fatal& e) { error += e.what(); }
    });
    job.join();
    return code;
}

// Sends what this process prints into nowhere.
struct Silence {
    int before[2] = {dup(1), dup(2)};
    Silence() {
        fflush(stdout);
        const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        for (const int fd : {1, 2}) dup2(nowhere, fd);
        close(nowhere);
    }
    ~Silence() {
        fflush(stdout);
        for (const int fd : {1, 2}) {
            dup2(before[fd - 1], fd);
            close(before[fd - 1]);
        }
    }
    Silence(const Silence&) = delete;
};

}  // namespace test

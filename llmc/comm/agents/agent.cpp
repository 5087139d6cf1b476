#include "llmc/comm/agents/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/config/axes.h"
#include "llmc/base/config/options.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/guard/generation.h"
#include "llmc/base/guard/signals.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/host/machine.h"
#include "llmc/comm/agents/agent_state.h"
#include "llmc/comm/same_settings.h"

inline namespace agents {

static constexpr double kTick = 0.1;            // seconds between two looks
static constexpr double kStops = 20;            // seconds for a rank to stop: then it is killed
static constexpr double kEnds = 10;             // seconds for the ranks to end
static constexpr double kBegins = 3;            // seconds for ranks that wait to hear a signal to end

// A later agent has a higher number.
static int64_t new_id() {
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// Of any agent: each has a number of ranks of its own.
static std::string common_settings(Config cfg) {
    cfg.run.slots = 0;
    return settings_text(cfg, "");
}

Agent::Agent(const Config& config, char** arguments)
    : cfg(config), argv(arguments), settings(common_settings(config)), id(new_id()), lease(config.run.dir) {
    ranks.resize(size_t(cfg.run.slots ? cfg.run.slots : cfg.parallel.ranks));
    due.resize(ranks.size());
}

// ---------------------------------------------------------------------------------------------------------
// ranks

void Agent::start_rank(size_t slot) {
    fflush(stdout);
    RankProcess& r = ranks[slot];
    const bool again = plan.head.regroups;
    const bool started = starts_thread ? starts_thread(r)
                                       : r.start(argv, mask_of_ranks, cfg.run.hang_timeout, again);
    CHECK_INPUT(started, "run.elastic: this agent cannot start a rank: {}", system_reason());
}

bool Agent::computing() const {
    return std::ranges::any_of(ranks, [](const RankProcess& r) {
        return r.process && !r.idle && !r.finished;
    });
}

// Exit codes that a new process would end with as well.
static bool ends_the_job(int code) { return code >= kExitNotFinite && code <= kExitCheckpoint; }

void Agent::bury(size_t slot, int code) {
    RankProcess& r = ranks[slot];
    const pid_t process = std::exchange(r.process, 0);      // the number may be another's now
    const std::string cause = r.cause.empty() ? end_of(code) : r.cause;
    while (std::optional<Message> m = r.channel.next()) hear_rank(slot, *m);
    if (const int64_t writes = r.page->writes)
        images.forget_torn({r.generation, writes - 1, r.rank, r.page->writes_place, kNeedsNone});
    const RankProcess gone = std::move(r);
    const std::string doing = gone.doing();
    r.page = gone.page;
    r.forget();
    if (gone.finished || ended) return;
    LostRank l = {.generation = gone.generation, .rank = gone.rank, .code = 0, .host = {}, .cause = {}};
    if (ends_the_job(code) || (told_to_end && code == kExitRestart)) l.code = code;
    set_word(l.cause, cause);
    if (!l.code && gone.rank >= 0)
        warning("rank {} of {} on {} (process {}) {} {}; it is replaced", gone.rank,
                plan.head.world, host_name(), int(process), cause, doing);
    if (gone.rank >= 0 || l.code) tell_controller(Say::Died, bytes_of(l));
}

void Agent::reap() {
    for (size_t slot = 0; slot < ranks.size(); slot++)
        if (const std::optional<int> code = ranks[slot].ended()) bury(slot, *code);
}

void Agent::watch(double seconds) {
    for (RankProcess& r : ranks) {
        if (!r.process || r.idle || !r.cause.empty()) continue;
        const bool hangs = r.hangs(seconds);
        if (hangs && !stopping)
            r.kill_for(fmt::format("made no progress for {:.1f} s{}, and was ended",
                                   r.finder->ranks[0].silent, r.stopped_by ? ", stopped by a signal" : ""));
        else if (!r.page->used && seconds_now() - r.started > start_patience())
            r.kill_for("did not start, and was ended");
        else if (stopping && seconds_now() - stopping_since > kStops + 2 * r.finder->slowest_step)
            r.kill_for("did not stop with the others, and was ended");
    }
}

// ---------------------------------------------------------------------------------------------------------
// the loop

static sigset_t signals_of_agents() {
    return set_of({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2});
}

void Agent::take_signals(int file) {
    signalfd_siginfo info;
    while (read(file, &info, sizeof info) == sizeof info) {
        const int number = int(info.ssi_signo);
        if (number == SIGCHLD) continue;
        const bool ends = number != SIGUSR1;
        if (ends && told_to_end && !computing()) ended = kExitRestart;
        if (ends) told_to_end = seconds_now();
        for (const RankProcess& r : ranks)
            if (!r.idle) r.signal(number == SIGHUP ? SIGTERM : number);
    }
}

void Agent::wait_for_events(int signals) {
    std::vector<pollfd> files = {{signals, POLLIN, 0}};
    const auto add = [&](const MessageChannel& c) {
        if (!c.closed) files.push_back({c.socket.fd, c.events(), 0});
    };
    for (const Socket& s : listeners.sockets) files.push_back({s.fd, POLLIN, 0});
    for (const RankProcess& r : ranks) add(r.channel);
    for (const auto& c : connections) add(c->caller.channel);
    add(to_controller);
    add(buddy.call.channel);
    poll(files.data(), files.size(), from_own.empty() ? int(kTick * 1000) : 0);
}

// The job has ended: its ranks end, and the other agents hear it.
int Agent::leave() {
    for (RankProcess& r : ranks) r.channel.send(Say::End, bytes_of(int32_t(*ended)));
    const double until = seconds_now() + kEnds;
    const auto busy = [&] {
        bool any = false;
        for (RankProcess& r : ranks) {
            r.channel.flush();
            any |= r.process > 0;
        }
        for (const auto& c : connections) {
            c->caller.channel.flush();
            any |= c->caller.channel.unsent() > 0;
        }
        return any;
    };
    while (busy() && seconds_now() < until) {
        if (seconds_now() > until - kEnds / 2)
            for (const RankProcess& r : ranks) r.signal(SIGKILL);
        usleep(5000);
        reap();
    }
    if (controller && controller->state == Controller::State::Ended) lease.give_up();
    return *ended;
}

int Agent::run() {
    const sigset_t own = signals_of_agents();
    sigprocmask(SIG_BLOCK, &own, &mask_of_ranks);
    const Fd signals(signalfd(-1, &own, SFD_CLOEXEC | SFD_NONBLOCK));
    CHECK(signals, "signalfd: {}", system_reason());
    listen();
    double before = seconds_now();
    while (!ended) {
        wait_for_events(signals.fd);
        take_signals(signals.fd);
        reap();
        talk();
        // time in which this process was stopped, or got no core, does not count
        const double now = seconds_now();
        watch(std::min(now - before, 2 * kTick));
        if (told_to_end && now - told_to_end > kBegins && !computing() && !ended) ended = kExitRestart;
        before = now;
    }
    return leave();
}

// ---------------------------------------------------------------------------------------------------------
// main()

// A cheap look: whether the words are there. parse_command_line() reads them.
static bool may_ask(int argc, char** argv) {
    for (int i = 1; i < argc; i++)
        if (std::string_view(argv[i]).find("elastic") != std::string_view::npos) return true;
    if (argc < 2 || !is_regular_file(argv[1])) return false;
    return read_file(argv[1]).find("\"elastic\"") != std::string::npos;
}

static bool trains(const Options& o) {
    return !o.help && !o.version && !o.plan && !o.explore && !o.generate && !o.evaluate && !o.export_to &&
           !o.watch && !o.report;
}

int be_agent(int argc, char** argv, void (*complete)(Options&)) {
    if (getenv(kAgentVariable) || !may_ask(argc, argv)) return -1;
    const Options options = parse_command_line(argc, argv, complete);
    if (!options.config.run.elastic || !trains(options)) return -1;
    check_mesh(options.config, options.config.parallel.ranks);
    allow_many_files();
    make_directories(options.config.run.dir);
    Agent agent(options.config, argv);
    return agent.run();
}

}  // namespace agents

#include "llmc/train/watch/watch.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/files.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/guard/signals.h"
#include "llmc/base/guard/supervisor.h"
#include "llmc/base/json.h"
#include "llmc/base/machine.h"
#include "llmc/base/start_thread.h"
#include "llmc/train/watch/serve.h"

static constexpr int kMostThreads = 96;         // connections at once
static constexpr std::chrono::milliseconds kPoll(300);
static constexpr double kPatience = 1e6;        // seconds that a network file system may take

// Nothing from elsewhere, no frame of another site, nothing kept.
static const std::vector<std::pair<std::string, std::string>> kHeaders = {
    {"Content-Security-Policy", "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' "
                                "'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; "
                                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cache-Control", "no-store"},
};

// The host as a browser needs it: an address that stands for all of the machine's becomes its name.
static std::string shown_host(const std::string& host) {
    if (host == "0.0.0.0" || host == "::") return host_name();
    return host.find(':') == host.npos ? host : "[" + host + "]";
}

static std::atomic<bool> end_asked = false;
static_assert(std::atomic<bool>::is_always_lock_free);

static void end_by_signals() {
    signals_as_usual();
    for (const int s : {SIGINT, SIGTERM}) signal(s, [](int) { end_asked = true; });
    signal(SIGPIPE, SIG_IGN);
}

int watch_runs(const WatchOptions& options) {
    CHECK_INPUT(is_directory(options.folder), "--watch={}: no such folder", options.folder);
    end_by_signals();
    watch_for_hangs(kPatience);
    std::string folder = options.folder;
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    const std::string host = options.host.value_or("127.0.0.1");
    const std::string token = options.host ? random_token() : "";
    Watcher watcher(folder);
    const int threads = possible_threads(kMostThreads);
    WatchService service{.watcher = watcher, .token = token, .most_streams = threads - threads / 4};
    const Listening server = start_server(
        {.host = host, .port = options.port, .threads = threads, .headers = kHeaders,
         .answer = [&](const HttpRequest& request) { return service.answer(request); }}, "--watch");
    watcher.look();
    const std::string address = fmt::format("http://{}:{}/{}", shown_host(host), server->port,
                                            token.empty() ? "" : "?token=" + token);
    printf("%s\nwatching %s below %s; Ctrl-C ends\n", address.c_str(),
           counted(int64_t(watcher.runs().size()), "run").c_str(), for_terminal(folder).c_str());
    fflush(stdout);
    while (!end_asked) {
        std::this_thread::sleep_for(kPoll);
        watcher.look();
        beat();
    }
    watcher.stop();         // ends the streams, which the server waits for
    return 0;
}

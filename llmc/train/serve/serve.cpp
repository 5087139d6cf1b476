#include "llmc/train/serve/serve.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/guard/signals.h"
#include "llmc/base/guard/supervisor.h"
#include "llmc/base/host/machine.h"

inline namespace serve {

static constexpr std::chrono::milliseconds kPoll(300);
static constexpr double kPatience = 1e6;  // seconds that a network file system may take

// Nothing from elsewhere, no frame of another site, nothing kept.
static const std::vector<std::pair<std::string, std::string>> kHeaders = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' "
     "'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cache-Control", "no-store"},
};

// ---------------------------------------------------------------------------------------------------------
// readers

// Takes the same time for every token of this length.
static bool same_token(const std::string& a, const std::string& b) {
    if (a.size() != b.size()) return false;
    unsigned char differ = 0;
    for (size_t i = 0; i < a.size(); i++) differ |= static_cast<unsigned char>(a[i] ^ b[i]);
    return differ == 0;
}

// "localhost:8000", "[::1]"
static bool names_this_machine(const std::string& host) {
    const size_t bracket = host.find(']');
    const std::string name = host.substr(0, host.find(':', bracket == host.npos ? 0 : bracket));
    return name == "127.0.0.1" || name == "localhost" || name == "[::1]";
}

bool Readers::allow(const HttpRequest& request) const {
    return token.empty() ? names_this_machine(request.host) : same_token(request.value("token"), token);
}

HttpAnswer Readers::refusal() const {
    if (token.empty())
        return {.status = 403, .body = "This page is for the machine itself: open http://127.0.0.1\n"};
    return {.status = 403,
            .body = fmt::format("Open the address that {} has printed: it ends in a token.\n", flag)};
}

std::string random_token() {
    const Fd source = open_stream("/dev/urandom");
    unsigned char bytes[16];
    CHECK_INPUT(read_up_to(source.fd, bytes, sizeof bytes, "/dev/urandom") == sizeof bytes,
                "/dev/urandom ends: no token for --host");
    std::string text;
    for (const unsigned char b : bytes) text += fmt::format("{:02x}", b);
    return text;
}

// ---------------------------------------------------------------------------------------------------------
// the program

HttpAnswer html_answer(std::string_view page) {
    return {.type = "text/html; charset=utf-8", .body = std::string(page)};
}

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
    set_hang_timeout(kPatience);
}

void serve_page(const ServedPage& page) {
    end_by_signals();
    const Readers readers{.flag = page.flag, .token = page.place.host ? random_token() : ""};
    const std::string host = page.place.host.value_or("127.0.0.1");
    const auto answer = [&](const HttpRequest& request) {
        return readers.allow(request) ? page.answer(request) : readers.refusal();
    };
    const HttpService service = {.host = host,
                                 .port = page.place.port,
                                 .threads = page.threads,
                                 .headers = kHeaders,
                                 .answer = answer};
    const HttpServer server(service, page.flag);
    const std::string address = fmt::format("http://{}:{}/{}", shown_host(host), server.port,
                                            readers.token.empty() ? "" : "?token=" + readers.token);
    print("{}\n{}; Ctrl-C ends\n", address, page.about());
    fflush(stdout);
    while (!end_asked) {
        if (page.look()) std::this_thread::sleep_for(kPoll);
        beat();
    }
    page.end();
}

}  // namespace serve

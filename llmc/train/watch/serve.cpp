#include "llmc/train/watch/serve.h"

#include <charconv>
#include <cmath>
#include <memory>

#include "llmc/base/check.h"
#include "llmc/base/files.h"

static constexpr double kMostPoints = 20000;

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

bool WatchService::allows(const HttpRequest& request) const {
    return token.empty() ? names_this_machine(request.host) : same_token(request.value("token"), token);
}

HttpAnswer WatchService::events() {
    // counts as long as the connection holds the stream
    const auto listening = std::shared_ptr<void>(nullptr, [this](void*) { streams--; });
    if (++streams > most_streams) return {.status = 503, .body = "too many pages\n"};
    const auto feed = std::make_shared<PageFeed>(PageFeed{watcher});
    return {.type = "text/event-stream", .stream = [feed, listening](std::string& out) {
        return feed->next(out);
    }};
}

// A finite number that fills the text; NaN: another text.
static double number_in(const std::string& text) {
    double v = NAN;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), v);
    return read.ec == std::errc() && read.ptr == text.data() + text.size() && std::isfinite(v) ? v : NAN;
}

HttpAnswer WatchService::rows(const HttpRequest& request) {
    const auto run = watcher.find(request.value("run"));
    if (!run) return {.status = 404, .body = "no such run\n"};
    const double from = number_in(request.value("from")), to = number_in(request.value("to"));
    const double points = number_in(request.value("points"));
    if (!(from <= to) || !(points >= 1 && points <= kMostPoints))
        return {.status = 400, .body = "expected run, from <= to, points from 1 to 20000\n"};
    return {.type = "application/json", .body = rows_json(*run, watcher.folder, from, to, size_t(points))};
}

HttpAnswer WatchService::answer(const HttpRequest& request) {
    if (!allows(request)) return {.status = 403, .body = token.empty()
        ? "This page is for the machine itself: open http://127.0.0.1\n"
        : "Open the address that --watch has printed: it ends in a token.\n"};
    if (request.path == "/")
        return {.type = "text/html; charset=utf-8", .body = std::string(page_html())};
    if (request.path == "/events") return events();
    if (request.path == "/rows") return rows(request);
    if (request.path == "/metrics")
        return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_text(watcher)};
    return {.status = 404, .body = "not found\n"};
}

std::string metrics_text(Watcher& watcher) {
    std::vector<RunMetrics> all;
    for (const auto& [name, run] : watcher.runs()) {
        const std::lock_guard lock(run->mutex);
        all.push_back(run->history.metrics);
        all.back().run = name;
    }
    return prometheus_text(all);
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

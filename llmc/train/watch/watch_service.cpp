#include "llmc/train/watch/watch_service.h"

#include <charconv>
#include <cmath>
#include <memory>

#include "llmc/train/serve/serve.h"

inline namespace watch {

static constexpr double kMostPoints = 20000;

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
    if (request.path == "/") return html_answer(watch_page());
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

}  // namespace watch

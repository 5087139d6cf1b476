// Answers of --watch over HTTP: the page, its events, rows of a run, Prometheus' metrics.
#pragma once
#include <atomic>
#include <string>

#include "llmc/train/serve/http.h"
#include "llmc/train/watch/watcher.h"

inline namespace watch {

struct WatchService {
    Watcher& watcher;
    std::atomic<int> streams = 0;       // pages that listen
    int most_streams = 64;

    HttpAnswer answer(const HttpRequest& request);

private:
    HttpAnswer events();
    HttpAnswer rows(const HttpRequest& request);
};

std::string metrics_text(Watcher& watcher);         // of all runs

}  // namespace watch

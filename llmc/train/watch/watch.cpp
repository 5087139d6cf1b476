#include "llmc/train/watch/watch.h"

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/base/terminal.h"
#include "llmc/train/watch/watch_service.h"

inline namespace watch {

static constexpr int kMostThreads = 96;         // requests at once

int watch_runs(const std::string& root, const PagePlace& place) {
    CHECK_INPUT(is_directory(root), "--watch={}: no such folder", root);
    std::string folder = root;
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    Watcher watcher(folder);
    watcher.walk();
    const int threads = possible_threads(kMostThreads);
    WatchService service{.watcher = watcher, .most_streams = threads - threads / 4};
    const auto about = [&] {
        const int64_t runs = int64_t(watcher.runs().size());
        return fmt::format("watching {} below {}", counted(runs, "run"), for_terminal(folder));
    };
    serve_page({.flag = "--watch",
                .place = place,
                .threads = threads,
                .answer = [&](const HttpRequest& request) { return service.answer(request); },
                .about = about,
                .look = [&] { return watcher.look(); },
                .end = [&] { watcher.stop(); }});
    return kExitDone;
}

}  // namespace watch

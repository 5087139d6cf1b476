#include "llmc/train/explore/explore.h"

#include "llmc/base/check.h"
#include "llmc/base/host/start_thread.h"

inline namespace explorer {

static constexpr int kMostConnections = 16;

int explore(const Exploration& exploration, const PagePlace& place) {
    CHECK_INPUT(!exploration.base.cluster.measured(), "cluster.gpu = auto: the page of --explore measures no "
                "machine; name one of {}, or leave cluster.gpu out", machine_names());
    ExploreService service{.exploration = exploration};
    serve_page({.flag = "--explore",
                .place = place,
                .threads = possible_threads(kMostConnections),
                .answer = [&](const HttpRequest& request) { return service.answer(request); },
                .about = [] { return std::string("a page to plan with"); },
                .end = [&] { service.stopping = true; }});
    return kExitDone;
}

}  // namespace explorer

// Answers of --watch over HTTP: the page, its events, rows of a run, Prometheus' metrics.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "llmc/train/watch/embedded.h"
#include "llmc/train/watch/http.h"
#include "llmc/train/watch/watcher.h"

// A request without the token, where one is set, is answered by 403; without a token, one that names another
// host than this machine is (a page of another site that has its name point here).
struct WatchService {
    Watcher& watcher;
    std::string token = {};
    std::atomic<int> streams = 0;       // pages that listen
    int most_streams = 64;

    HttpAnswer answer(const HttpRequest& request);

private:
    bool allows(const HttpRequest& request) const;
    HttpAnswer events();
    HttpAnswer rows(const HttpRequest& request);
};

std::string metrics_text(Watcher& watcher);         // of all runs

// 128 random bits from the system, as 32 hexadecimal digits.
std::string random_token();

// A server that listens; its end stops it, after the streams have ended.
struct StopServer {
    void (*stop)(HttpServer&);

    void operator()(HttpServer* server) const {
        stop(*server);
        delete server;
    }
};
using Listening = std::unique_ptr<HttpServer, StopServer>;

// Loads the server from its shared object and binds a port. Errors end in fatal(): no server in this build, a
// library that is missing here, a busy port.
Listening start_server(const HttpService& service, const char* flag,
                       std::string_view object = http_object());

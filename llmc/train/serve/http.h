// An HTTP server in a shared object of its own: cpp-httplib and what it needs are loaded when a page needs
// them, and training never does. http.cpp is compiled to that object, which the program carries (embedded.h).
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct HttpRequest {
    std::string path = {};                                          // "/rows", decoded
    std::string host = {};                                          // the header
    std::vector<std::pair<std::string, std::string>> query = {};    // decoded

    // The first value of a name; empty: none.
    std::string value(std::string_view name) const {
        for (const auto& [key, value] : query)
            if (key == name) return value;
        return "";
    }
};

struct HttpAnswer {
    int status = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body = {};
    // Where set, in place of the body: appends the next bytes, returns false at the end. Called again and
    // again by a thread of this connection, at least once a second, until the reader is gone.
    std::function<bool(std::string&)> stream = {};
};

struct HttpService {
    std::string host;                                           // address to bind
    int port = 0;                                               // 0: any free port
    int threads = 0;                                            // connections at once
    std::vector<std::pair<std::string, std::string>> headers = {};      // of every answer
    // Of GET and HEAD; called by many threads.
    std::function<HttpAnswer(const HttpRequest&)> answer = {};
};

struct HttpServer {
    int port = 0;                           // bound
    int error = 0;                          // errno, if the port cannot be bound; else 0
    void* state = nullptr;
};

// The two functions of the object. state is null where the server cannot start.
extern "C" {
void start_http(const HttpService& service, HttpServer& started);
void stop_http(HttpServer& server);         // waits for its threads: streams have to end by themselves
}

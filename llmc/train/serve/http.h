// A small HTTP server for pages: GET and HEAD, one request a connection.
//
// One thread accepts connections and reads requests as their bytes come; a thread of a pool answers a request
// once it is whole. An idle or slow connection costs no thread: it ends at a deadline, or when a newer one
// needs its place.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "llmc/comm/rendezvous/socket.h"

inline namespace serve {

struct HttpRequest {
    std::string method = "GET";
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

// Reads a request up to its empty line. Returns 0, or the status that refuses the request.
int read_request(std::string_view head, HttpRequest& request);

struct HttpService {
    std::string host;                                           // address to bind
    int port = 0;                                               // 0: any free port
    int threads = 0;                                            // requests at once
    std::vector<std::pair<std::string, std::string>> headers = {};      // of every answer
    // Called by many threads.
    std::function<HttpAnswer(const HttpRequest&)> answer = {};
    double patience = 10;                                       // seconds for a request to be whole
};

// Serves from construction to destruction, which waits for its threads: streams have to end by themselves.
struct HttpServer {
    int port = 0;                       // bound

    // Errors end in fatal(): a busy port, no thread. flag: of the program, for messages.
    HttpServer(const HttpService& service, const char* flag);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;

private:
    struct Incoming {
        Socket socket;
        double deadline;
        std::string head = {};
        bool refused = false;           // answered: its further bytes are dropped
    };
    struct Whole { Socket socket; HttpRequest request; };

    HttpService service_;
    Listeners listeners_;
    std::deque<Incoming> incoming_;     // of the thread that reads, oldest first
    std::mutex mutex_;                  // guards the members below
    std::condition_variable came_;
    std::deque<Whole> whole_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;

    void stop();
    void read_requests();
    void accept_all(const Socket& listener);
    bool read_more(Incoming& incoming);
    void refuse(Incoming& incoming, int status);
    void answer_requests();
    void answer(const Whole& whole);
    std::string head_of(const HttpAnswer& answer) const;
};

}  // namespace serve

// Room train/serve: serves a page over HTTP: server, access rule, the loop, script that pages share.
// Called by train/watch and train/explore. The room does not know what a page shows.
//
// A page that this program serves over HTTP: its server, its readers, and the loop until a signal.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "llmc/train/report/embedded.h"
#include "llmc/train/serve/http.h"

inline namespace serve {

// Access rule. With a token, requests must carry the token. Without a token, the Host header must name this
// machine, which blocks DNS rebinding.
struct Readers {
    const char* flag = "";  // of the program, for messages: "--watch"
    std::string token = {};

    bool allow(const HttpRequest& request) const;
    HttpAnswer refusal() const;  // status 403
};

// 128 random bits from the system, as 32 hexadecimal digits.
std::string random_token();

HttpAnswer html_answer(std::string_view page);

// Where a page is served, as --port and --host say.
struct PagePlace {
    int port = 8000;                       // 0: any free port
    std::optional<std::string> host = {};  // address to bind, whose readers need a token; none: 127.0.0.1
};

struct ServedPage {
    const char* flag;                                      // of the program: "--watch"
    PagePlace place;                                       // where it names a host, readers need a token
    int threads;                                           // requests at once
    std::function<HttpAnswer(const HttpRequest&)> answer;  // called by many threads
    std::function<std::string()> about;  // what is printed below the address, once the page is served
    // called a few times a second; false: at once again
    std::function<bool()> look = [] { return true; };
    std::function<void()> end = [] {};   // has to end the streams, which the server waits for
};

// Serves until SIGINT or SIGTERM. Prints the address. A closed connection does not end the program.
void serve_page(const ServedPage& page);

}  // namespace serve

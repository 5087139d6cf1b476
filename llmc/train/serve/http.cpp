// Compiled alone, to a shared object: the only file that sees cpp-httplib.
#include "llmc/train/serve/http.h"

#include <httplib.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <system_error>
#include <thread>

static constexpr size_t kMostBody = 4096;       // of a request; pages send none
static constexpr int kPatience = 5;             // seconds to read a request, or to write to a slow page

namespace {
struct Running {
    httplib::Server server;
    HttpService service;
    std::thread thread;
    std::atomic<bool> failed{false};
};
}  // namespace

static void set_answer(httplib::Response& to, HttpAnswer answer) {
    to.status = answer.status;
    if (!answer.stream) return to.set_content(answer.body, answer.type);
    const auto stream = std::make_shared<std::function<bool(std::string&)>>(std::move(answer.stream));
    to.set_chunked_content_provider(answer.type, [stream](size_t, httplib::DataSink& sink) {
        if (!sink.is_writable()) return false;          // the page is gone, or has read nothing for long
        std::string bytes;
        const bool more = (*stream)(bytes);
        if (!bytes.empty() && !sink.write(bytes.data(), bytes.size())) return false;
        if (!more) sink.done();
        return true;
    });
}

static void set_up(Running& r) {
    httplib::Server& s = r.server;
    const size_t threads = size_t(r.service.threads);
    s.new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
    // without SO_REUSEPORT, which would share a busy port
    s.set_socket_options([](socket_t socket) {
        const int yes = 1;
        setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    s.set_payload_max_length(kMostBody);
    s.set_read_timeout(kPatience);
    s.set_write_timeout(kPatience);
    s.set_keep_alive_timeout(2);
    s.set_tcp_nodelay(true);
    httplib::Headers headers;
    for (const auto& [name, value] : r.service.headers) headers.emplace(name, value);
    s.set_default_headers(headers);
    // before httplib's own routes: no request reaches them
    s.set_pre_routing_handler([&r](const httplib::Request& request, httplib::Response& response) {
        HttpAnswer answer{.status = 405, .body = "only GET\n"};
        HttpRequest asked{.path = request.path, .host = request.get_header_value("Host")};
        for (const auto& [name, value] : request.params) asked.query.emplace_back(name, value);
        if (request.method == "GET" || request.method == "HEAD") answer = r.service.answer(asked);
        set_answer(response, std::move(answer));
        return httplib::Server::HandlerResponse::Handled;
    });
}

void start_http(const HttpService& service, HttpServer& started) {
    auto running = std::make_unique<Running>();
    running->service = service;
    set_up(*running);
    started = {};
    errno = 0;
    httplib::Server& server = running->server;
    const int port = service.port;
    if (port == 0) started.port = server.bind_to_any_port(service.host);
    else if (server.bind_to_port(service.host, port)) started.port = port;
    if (started.port <= 0) {
        started.error = errno ? errno : EADDRNOTAVAIL;
        return;
    }
    Running* const r = running.get();
    try {
        r->thread = std::thread([r] {
            try {
                r->server.listen_after_bind();
            } catch (const std::exception&) {       // no room for its threads
                r->failed = true;
            }
        });
    } catch (const std::system_error& e) {
        started.error = e.code().value();
        return;
    }
    while (!server.is_running() && !running->failed) std::this_thread::yield();
    if (running->failed) {
        running->thread.join();
        started.error = EAGAIN;
        return;
    }
    started.state = running.release();
}

void stop_http(HttpServer& server) {
    const std::unique_ptr<Running> running(static_cast<Running*>(server.state));
    server.state = nullptr;
    if (!running) return;
    running->server.stop();
    running->thread.join();
}

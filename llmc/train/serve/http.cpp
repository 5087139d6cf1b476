#include "llmc/train/serve/http.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <charconv>
#include <exception>

#include "llmc/base/check.h"
#include "llmc/base/host/start_thread.h"

inline namespace serve {

static constexpr size_t kMostHead = 1 << 16;        // bytes of the head of a request
static constexpr size_t kMostIncoming = 200;        // connections whose request is incomplete
static constexpr size_t kMostWhole = 200;           // complete requests that wait for a thread
static constexpr int kReads = 16;                   // most reads in a row from one connection
static constexpr int kWakeMs = 200;                 // milliseconds between two checks of deadlines
static constexpr double kSendSeconds = 30;          // limit for sending an answer or a part of a stream
static constexpr double kDropSeconds = 1;           // limit for reading the rest of a refused request

// ---------------------------------------------------------------------------------------------------------
// requests

// %20, and in a query + for a space. A % without two hexadecimal digits stays.
static std::string decoded(std::string_view text, bool query) {
    std::string out;
    for (size_t i = 0; i < text.size(); i++) {
        const char* const digits = text.data() + i + 1;
        unsigned char byte = 0;
        if (text[i] == '%' && i + 2 < text.size() &&
            std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
            out += static_cast<char>(byte);
            i += 2;
        } else out += query && text[i] == '+' ? ' ' : text[i];
    }
    return out;
}

static void read_target(std::string_view target, HttpRequest& request) {
    target = target.substr(0, target.find('#'));
    const size_t mark = std::min(target.find('?'), target.size());
    request.path = decoded(target.substr(0, mark), false);
    for (size_t begin = mark + 1; begin < target.size();) {
        const size_t end = std::min(target.find('&', begin), target.size());
        const std::string_view pair = target.substr(begin, end - begin);
        const size_t equals = std::min(pair.find('='), pair.size());
        const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
        if (!pair.empty())
            request.query.emplace_back(decoded(pair.substr(0, equals), true), decoded(value, true));
        begin = end + 1;
    }
}

static bool is_host(std::string_view name) {
    constexpr std::string_view kHost = "host";
    return std::ranges::equal(name, kHost, [](char a, char b) { return (a | 0x20) == b; });
}

int read_request(std::string_view head, HttpRequest& request) {
    const size_t line = head.find("\r\n"), target = head.find(' ');
    const size_t version = head.rfind(' ', line);
    if (line == head.npos || target >= line || version <= target + 1) return 400;
    if (!head.substr(version + 1).starts_with("HTTP/1.")) return 400;
    request.method = head.substr(0, target);
    read_target(head.substr(target + 1, version - target - 1), request);
    for (size_t begin = line + 2, end; (end = head.find("\r\n", begin)) != head.npos; begin = end + 2) {
        const std::string_view header = head.substr(begin, end - begin);
        const size_t colon = header.find(':');
        if (colon == header.npos || !is_host(header.substr(0, colon))) continue;
        const size_t value = std::min(header.find_first_not_of(" \t", colon + 1), header.size());
        request.host = header.substr(value, header.find_last_not_of(" \t") + 1 - value);
        break;
    }
    return request.method == "GET" || request.method == "HEAD" ? 0 : 405;
}

// ---------------------------------------------------------------------------------------------------------
// begin and end

HttpServer::HttpServer(const HttpService& service, const char* flag) : service_(service) {
    listeners_ = listen_at(service.host, {uint16_t(service.port)});
    CHECK_INPUT(!listeners_.sockets.empty(), "{}: cannot listen on port {} of {}: {}. Choose another port by "
                "--port=N (0: any free one)", flag, service.port, service.host,
                listeners_.local ? "the port is taken" : "no address of this machine");
    port = port_of(listeners_.sockets.front());
    std::string why;
    for (int i = 0; i <= service.threads && why.empty(); i++) {
        std::thread thread;
        why = start_thread(thread, [this, i] { i ? answer_requests() : read_requests(); });
        if (why.empty()) threads_.push_back(std::move(thread));
    }
    if (threads_.size() < 2) stop();
    CHECK_INPUT(threads_.size() > 1, "{}: {}", flag, no_thread(why));
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    came_.notify_all();
    for (std::thread& t : threads_) t.join();
}

// ---------------------------------------------------------------------------------------------------------
// the thread that reads

// Of more connections than have room, the oldest ends.
void HttpServer::accept_all(const Socket& listener) {
    for (;;) {
        Socket socket(accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC));
        const bool full = !socket && (errno == EMFILE || errno == ENFILE);
        if (incoming_.size() >= kMostIncoming || (full && !incoming_.empty())) incoming_.pop_front();
        else if (full) usleep(1000 * kWakeMs);
        if (!socket) return;
        const int on = 1;
        setsockopt(socket.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        incoming_.push_back({std::move(socket), seconds_now() + service_.patience});
        if (!read_more(incoming_.back())) incoming_.pop_back();
    }
}

// False: the connection has ended here.
bool HttpServer::read_more(Incoming& incoming) {
    char bytes[8192];
    for (int reads = 0; reads < kReads; reads++) {
        const ssize_t n = incoming.socket.recv_some(bytes, sizeof bytes);
        if (n <= 0) return n == 0;
        if (incoming.refused) continue;
        const size_t before = incoming.head.size();
        incoming.head.append(bytes, size_t(n));
        const size_t end = incoming.head.find("\r\n\r\n", before - std::min<size_t>(before, 3));
        const bool large = incoming.head.size() > kMostHead;
        if (large) refuse(incoming, 431);
        if (large || end == incoming.head.npos) continue;
        HttpRequest request;
        const int status = read_request(std::string_view(incoming.head).substr(0, end + 2), request);
        const std::lock_guard lock(mutex_);
        const bool busy = whole_.size() >= kMostWhole;
        if (status || busy) {
            refuse(incoming, status ? status : 503);
            continue;
        }
        whole_.push_back({std::move(incoming.socket), std::move(request)});
        came_.notify_one();
        return false;
    }
    return true;
}

// The client may still send: a connection that closes at once would take the answer back.
void HttpServer::refuse(Incoming& incoming, int status) {
    const std::string text = head_of({.status = status}) + "\r\n";
    incoming.socket.send_some(text.data(), text.size());
    shutdown(incoming.socket.fd, SHUT_WR);
    incoming = {std::move(incoming.socket), seconds_now() + kDropSeconds, "", true};
}

void HttpServer::read_requests() {
    std::vector<pollfd> polled;
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (stopping_) return;
        }
        polled.clear();
        for (const Incoming& incoming : incoming_) polled.push_back({incoming.socket.fd, POLLIN, 0});
        for (const Socket& listener : listeners_.sockets) polled.push_back({listener.fd, POLLIN, 0});
        poll(polled.data(), polled.size(), kWakeMs);
        const double now = seconds_now();
        size_t at = 0;
        std::erase_if(incoming_, [&](Incoming& incoming) {
            const bool ready = polled[at++].revents != 0;
            return now > incoming.deadline || (ready && !read_more(incoming));
        });
        for (const Socket& listener : listeners_.sockets)
            if (polled[at++].revents) accept_all(listener);
    }
}

// ---------------------------------------------------------------------------------------------------------
// threads that answer

std::string HttpServer::head_of(const HttpAnswer& answer) const {
    std::string text = fmt::format("HTTP/1.1 {} \r\nConnection: close\r\nContent-Type: {}\r\n", answer.status,
                                   answer.type);
    for (const auto& [name, value] : service_.headers) text += name + ": " + value + "\r\n";
    if (!answer.stream) text += fmt::format("Content-Length: {}\r\n", answer.body.size());
    return text;
}

void HttpServer::answer_requests() {
    std::unique_lock lock(mutex_);
    for (;;) {
        came_.wait(lock, [&] { return stopping_ || !whole_.empty(); });
        if (stopping_) return;
        const Whole next = std::move(whole_.front());
        whole_.pop_front();
        lock.unlock();
        answer(next);
        lock.lock();
    }
}

static bool is_gone(const Socket& reader) { return reader.ready(POLLRDHUP, seconds_now() + 1e-4); }

void HttpServer::answer(const Whole& whole) {
    HttpAnswer answer;
    try {
        answer = service_.answer(whole.request);
    } catch (const std::exception& e) {
        answer = {.status = 500, .body = std::string(e.what()) + "\n"};
    }
    const auto send = [&](const std::string& text) {
        return whole.socket.send_all(text.data(), text.size(), seconds_now() + kSendSeconds);
    };
    const bool bare = whole.request.method == "HEAD";
    if (!send(head_of(answer) + "\r\n" + (bare ? "" : answer.body)) || bare || !answer.stream) return;
    for (bool more = true; more && !is_gone(whole.socket);) {
        std::string bytes;
        more = answer.stream(bytes);
        if (!send(bytes)) return;
    }
}

}  // namespace serve

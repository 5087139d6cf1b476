// --watch over real sockets: what is answered, to whom, and that no page waits for another.
#include <future>
#include <optional>

#include "llmc/train/serve/serve.h"
#include "llmc/train/watch/watch_service.h"
#include "test/http_client.h"
#include "test/watched_folder.h"

using namespace test;
using std::string;

// A service in this process, over a folder with runs a and <b>.
struct Served {
    string root;
    WatchedFolder f{root};
    WatchService service{.watcher = f.watcher};
    Readers readers;
    std::optional<HttpServer> server;

    explicit Served(const string& name, const string& token = "", int threads = 12, double patience = 10)
        : root(folder(name)) {
        for (const char* run : {"a", "<b>"})
            write_text(root + "/" + run + "/metrics.jsonl", start_row() + train_rows(1, 30) + val_row(30));
        write_text(folder("secret.txt"), "MARK");
        readers = {.flag = "--watch", .token = token};
        service.most_streams = threads - 4;
        const auto answer = [this](const HttpRequest& r) {
            return readers.allow(r) ? service.answer(r) : readers.refusal();
        };
        server.emplace(HttpService{.host = "127.0.0.1", .port = 0, .threads = threads,
                                   .headers = {{"X-A", "b"}}, .answer = answer, .patience = patience},
                       "--watch");
        f.update();
    }
    ~Served() { f.watcher.stop(); }
    int port() const { return server->port; }
};

TEST(pages_events_rows_and_metrics) {
    Served s("served");
    const string page = ask(s.port(), "/");
    EXPECT(watch_page().starts_with("<!doctype html>") && watch_page().ends_with("</html>\n"), "no page");
    EXPECT(status(page) == 200 && body(page) == watch_page() && page.find("X-A: b") != page.npos, "%s",
           page.substr(0, 300).c_str());
    const json rows = json::parse(body(ask(s.port(), "/rows?run=%3Cb%3E&from=5&to=9&points=100")));
    EXPECT(rows["run"] == "<b>" && rows["train"]["step"] == json({5, 6, 7, 8, 9}), "%s", rows.dump().c_str());
    EXPECT(status(ask(s.port(), "/rows?run=c&from=5&to=9&points=100")) == 404, "an unknown run");
    for (const char* nonsense : {"from=9&to=5&points=10", "from=5&to=9&points=0", "from=5&to=9&points=1e9",
                                 "from=5&to=9", "from=nan&to=9&points=5", "from=5x&to=9&points=5",
                                 "from=&to=&points=", "from=1&to=inf&points=5"})
        EXPECT(status(ask(s.port(), string("/rows?run=a&") + nonsense)) == 400, "%s", nonsense);
    const string metrics = body(ask(s.port(), "/metrics"));
    const json last = json::parse(train_row(30));
    for (const auto& [metric, key, scale] : {std::tuple{"step_total", "step", 1.}, {"loss", "loss", 1.},
                                             {"grad_norm", "norm", 1.}, {"learning_rate", "lr", 1.},
                                             {"tokens_total", "tokens", 1.}, {"mfu_ratio", "mfu", 1.},
                                             {"tokens_per_second", "tokens_per_s", 1.},
                                             {"step_seconds", "ms", 1e-3}}) {
        const string line = string("train_gpt_") + metric + "{run=\"<b>\"} ";
        const size_t at = metrics.find(line);
        EXPECT(at != metrics.npos, "no %s", line.c_str());
        if (at == metrics.npos) continue;
        EXPECT_NEAR(atof(metrics.c_str() + at + line.size()), last[key].get<double>() * scale, 1e-9);
    }
    EXPECT(metrics.find("train_gpt_validation_loss{run=\"a\"} ") != metrics.npos, "validation");
}

TEST(nothing_but_known_runs_is_served) {
    Served s("climbing");
    for (const char* path : {"/a", "/a/metrics.jsonl", "/../secret.txt", "/%2e%2e/secret.txt", "//etc",
                             "/etc/passwd", "/page.html", "/./", "/events/", "/rows/../../secret.txt"})
        EXPECT(status(ask(s.port(), path)) == 404, "%s: %s", path, ask(s.port(), path).substr(0, 80).c_str());
    for (const char* run : {"..", "../served/a", "a/", "./a", "A", "%00", "/etc", "", "a/../a", "%2e"})
        EXPECT(status(ask(s.port(), string("/rows?from=1&to=9&points=5&run=") + run)) == 404, "%s", run);
    for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"})
        EXPECT(status(ask(s.port(), "/", "127.0.0.1", method)) == 405, "%s", method);
    Connection large(s.port());
    large.send_text("GET /" + string(100000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    large.read("\r\n\r\n", 8);
    EXPECT(status(large.got) == 431, "%s", large.got.substr(0, 80).c_str());
    EXPECT(status(ask(s.port(), "/")) == 200, "after all that");
}

// A page of another site can have its name point to this machine, but not hide its name.
TEST(other_hosts_and_requests_without_the_token_are_refused) {
    Served s("hosts");
    for (const char* host : {"localhost", "127.0.0.1", "[::1]", "localhost:80", "127.0.0.1:8000", "[::1]:1"})
        EXPECT(status(ask(s.port(), "/", host)) == 200, "%s", host);
    for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "",
                             "evil.example:127.0.0.1", "[::1].evil.example"})
        for (const char* path : {"/", "/events", "/rows?run=a&from=1&to=9&points=5", "/metrics", "/x"})
            EXPECT(status(ask(s.port(), path, host)) == 403, "%s of %s", path, host);
    const string token = random_token();
    EXPECT(token.size() == 32 && token != random_token(), "%s", token.c_str());
    Served t("tokens", token);
    for (const char* path : {"/", "/metrics", "/rows", "/events", "/x"})
        for (const string& query : {string(), string("?token="), "?token=" + token.substr(1),
                                    "?token=" + token + "0", "?Token=" + token, "?a=" + token,
                                    "?token=" + string(32, '0')})
            EXPECT(status(ask(t.port(), path + query)) == 403, "%s%s", path, query.c_str());
    EXPECT(status(ask(t.port(), "/?token=" + token, "cluster.example")) == 200, "with the token");
    EXPECT(status(ask(t.port(), "/metrics?token=" + token)) == 200, "metrics with the token");
}

static KnownRuns known(const Connection& c) {
    KnownRuns page;
    page.apply(body(c.got));
    return page;
}

TEST(a_slow_page_stops_no_other) {
    Served s("two_pages");
    write_text(s.root + "/big/metrics.jsonl", train_rows(1, 3000));
    Connection slow(s.port(), 4096), one(s.port()), two(s.port());
    listen_to(slow);            // and never reads
    s.f.update();
    listen_to(one);
    listen_to(two);
    for (Connection* c : {&one, &two}) EXPECT(c->read("\"run\":\"big\""), "no event of a run");
    for (int step = 31; step <= 40; step++) {
        append_text(s.root + "/a/metrics.jsonl", train_row(step));
        s.f.watcher.look();
        for (Connection* c : {&one, &two})
            EXPECT(c->read(fmt::format("\"step\":[{}]", step), 3), "step %d does not come", step);
    }
    for (Connection* c : {&one, &two}) {
        c->read("never", 0.2);
        const std::vector<int> steps = known(*c).steps("a");
        EXPECT(steps.size() == 40 && steps.back() == 40, "%zu steps", steps.size());
    }
}

// Twice as many pages as there are places, one after the other.
TEST(a_page_that_is_closed_makes_room) {
    Served s("closed", "", 8);
    for (int page = 0; page < 12; page++) {
        {
            Connection c(s.port());
            listen_to(c);
            EXPECT(c.read("event: run"), "page %d: %s", page, c.got.substr(0, 100).c_str());
        }
        for (int wait = 0; page % 4 == 3 && s.service.streams > 0 && wait < 100; wait++)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    std::vector<Connection> open;
    for (int page = 0; page < 4; page++) listen_to(open.emplace_back(s.port()));
    for (Connection& c : open) EXPECT(c.read("event: run"), "%s", c.got.substr(0, 100).c_str());
    const string more = ask(s.port(), "/events");
    EXPECT(status(more) == 503 && status(ask(s.port(), "/")) == 200, "%s", more.substr(0, 100).c_str());
}

// More idle connections than the server has places: the oldest end, and a request is answered at once.
TEST(idle_connections_shut_nobody_out) {
    Served s("idle");
    std::vector<Connection> idle;
    for (int i = 0; i < 450; i++) idle.emplace_back(s.port());
    const double begin = seconds_now();
    EXPECT(status(ask(s.port(), "/")) == 200, "no answer");
    EXPECT(seconds_now() - begin < 3, "an answer after %.1f s", seconds_now() - begin);
    EXPECT(idle.front().read("", 3), "the oldest is still open");
}

// Each line of a header is new life to a connection whose bytes have a limit each; a request has one limit.
TEST(requests_that_never_become_whole_end) {
    Served s("dripping", random_token(), 4, 0.6);
    std::vector<Connection> slow;
    for (int i = 0; i < 100; i++) slow.emplace_back(s.port()).send_text("GET / HTTP/1.1\r\n");
    const double begin = seconds_now();
    for (int line = 0; line < 8; line++) {
        for (Connection& c : slow) c.send_text("X: y\r\n");
        const double asked = seconds_now();
        EXPECT(status(ask(s.port(), "/?token=" + s.readers.token)) == 200, "line %d", line);
        EXPECT(seconds_now() - asked < 2, "line %d: an answer after %.1f s", line, seconds_now() - asked);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    for (Connection& c : slow) c.read("", 3);
    EXPECT(seconds_now() - begin < 4, "they stay for %.1f s", seconds_now() - begin);
    for (const Connection& c : slow) EXPECT(c.got.empty(), "%s", c.got.c_str());
}

// One thread, whose answer waits: some requests queue, the others are told so at once.
TEST(requests_beyond_the_queue_get_503) {
    std::promise<void> end;
    const std::shared_future<void> ended = end.get_future();
    const auto answer = [&](const HttpRequest&) {
        ended.wait();
        return HttpAnswer{.body = "late\n"};
    };
    const HttpServer server({.host = "127.0.0.1", .threads = 1, .answer = answer}, "--watch");
    std::vector<Connection> asking;
    for (int i = 0; i < 230; i++) asking.emplace_back(server.port).send_text("HEAD / HTTP/1.1\r\n\r\n");
    EXPECT(asking.back().read("", 5) && status(asking.back().got) == 503, "%s", asking.back().got.c_str());
    end.set_value();
    int late = 0;
    for (Connection& c : asking) {
        c.read("", 5);
        late += status(c.got) == 200;
        EXPECT(body(c.got).empty(), "%s", c.got.c_str());
    }
    EXPECT(late >= 200 && late < 230, "%d of 230 are answered", late);
}

TEST(requests_are_read) {
    const auto read = [](const string& line, const string& headers = "") {
        HttpRequest r;
        const int status = read_request(line + "\r\n" + headers, r);
        string text = fmt::format("{} {} {} {}", status, r.method, r.path, r.host);
        for (const auto& [name, value] : r.query) text += fmt::format(" {}={}", name, value);
        return text;
    };
    const std::pair<string, string> cases[] = {
        {"GET / HTTP/1.1", "0 GET / "},
        {"HEAD /a%2fb+c?d+e=%41%4g%&f&=g&&h=i=j#k HTTP/1.0", "0 HEAD /a/b+c  d e=A%4g% f= =g h=i=j"},
        {"POST /a?%3d=%26%25 HTTP/1.1", "405 POST /a  ==&%"},
        {"GET /? HTTP/1.1", "0 GET / "},
        {"GET  HTTP/1.1", "400 GET  "},
        {"GET / HTTP/2", "400 GET  "},
        {"GET /", "400 GET  "},
        {"", "400 GET  "}};
    for (const auto& [line, expected] : cases)
        EXPECT(read(line) == expected, "%s: '%s'", line.c_str(), read(line).c_str());
    for (const char* header : {"Host: a:1\r\n", "X: y\r\nhOsT:a:1 \t\r\nHost: b\r\n", "Host:\t a:1\r\nX\r\n"})
        EXPECT(read("GET / HTTP/1.1", header) == "0 GET / a:1", "%s", read("GET / HTTP/1.1", header).c_str());
    for (const char* header : {"X-Host: a\r\n", "Host\r\n", "Host:\r\n", "Host: \r\n", ":\r\n"})
        EXPECT(read("GET / HTTP/1.1", header) == "0 GET / ", "%s", header);
}

// --watch over real sockets: what is answered, to whom, and that no page waits for another.
#include <arpa/inet.h>
#include <csignal>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "llmc/train/watch/serve.h"
#include "test/watch.h"

using namespace test;
using std::string;

// A connection to a port of 127.0.0.1, closed at its end.
struct Connection {
    Fd fd{socket(AF_INET, SOCK_STREAM, 0)};
    string got = {};

    explicit Connection(int port, int receive_buffer = 0) {
        if (receive_buffer)
            setsockopt(fd.fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
        sockaddr_in to = {};
        to.sin_family = AF_INET;
        to.sin_port = htons(uint16_t(port));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT(connect(fd.fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0, "connect: %s",
               strerror(errno));
    }
    void send_text(const string& text) { (void)!send(fd.fd, text.data(), text.size(), MSG_NOSIGNAL); }
    // Reads until `until` has come, or the end, or the time is over.
    bool read(const string& until, double seconds = 10) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
        char bytes[65536];
        while (until.empty() || got.find(until) == got.npos) {
            const auto left = std::chrono::duration<double>(end - std::chrono::steady_clock::now()).count();
            if (left <= 0) return false;
            const timeval wait = {time_t(left), suseconds_t(1e6 * (left - double(time_t(left)))) + 1};
            setsockopt(fd.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
            const ssize_t n = recv(fd.fd, bytes, sizeof bytes, 0);
            if (n <= 0) return until.empty() && n == 0;
            got.append(bytes, size_t(n));
        }
        return true;
    }
};

static string ask(int port, const string& target, const string& host = "127.0.0.1",
                  const string& method = "GET") {
    Connection c(port);
    c.send_text(method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
    c.read("");
    return c.got;
}
static int status(const string& answer) { return answer.size() > 12 ? atoi(answer.c_str() + 9) : 0; }
static string body(const string& answer) {
    const size_t at = answer.find("\r\n\r\n");
    return at == answer.npos ? "" : answer.substr(at + 4);
}

// A service in this process, over a folder with runs a and <b>.
struct Served {
    string root;
    WatchedFolder f{root};
    WatchService service{.watcher = f.watcher};
    Listening server;

    explicit Served(const string& name, const string& token = "", int threads = 12) : root(folder(name)) {
        for (const char* run : {"a", "<b>"})
            write_text(root + "/" + run + "/metrics.jsonl", start_row() + train_rows(1, 30) + val_row(30));
        write_text(folder("secret.txt"), "MARK");
        service.token = token;
        service.most_streams = threads - 4;
        server = start_server({.host = "127.0.0.1", .port = 0, .threads = threads, .headers = {{"X-A", "b"}},
                               .answer = [this](const HttpRequest& r) { return service.answer(r); }},
                              "--watch");
        f.update();
    }
    ~Served() { f.watcher.stop(); }
    int port() const { return server->port; }
};

// First of all: what is loaded once stays loaded under its name, /proc/self/fd/N.
TEST(without_a_server_one_line_says_what_to_install) {
    expect_words("no server", fatal_of([] { (void)start_server({.host = "127.0.0.1"}, "--watch", ""); }),
                 {"--watch", "libcpp-httplib-dev"});
    expect_words("no object", fatal_of([] { (void)start_server({.host = "127.0.0.1"}, "--watch", "garbage"); }),
                 {"--watch", "does not load", "libcpp-httplib0.11"});
    // training loads neither the library nor what the library needs
    const Ran ran = run("ldd ./train_gpt");
    EXPECT(ran.code == 0 && ran.out.find("httplib") == string::npos && ran.out.find("ssl") == string::npos,
           "%s", ran.out.c_str());
}

TEST(pages_events_rows_and_metrics) {
    Served s("served");
    const string page = ask(s.port(), "/");
    EXPECT(status(page) == 200 && body(page) == page_html() && page.find("X-A: b") != page.npos, "%s",
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
    for (const char* path : {"/a", "/a/metrics.jsonl", "/../secret.txt", "/%2e%2e/secret.txt", "//etc/passwd",
                             "/etc/passwd", "/page.html", "/./", "/events/", "/rows/../../secret.txt"})
        EXPECT(status(ask(s.port(), path)) == 404, "%s: %s", path, ask(s.port(), path).substr(0, 80).c_str());
    for (const char* run : {"..", "../served/a", "a/", "./a", "A", "%00", "a%00", "/etc", "", "a/../a", "%2e"})
        EXPECT(status(ask(s.port(), string("/rows?from=1&to=9&points=5&run=") + run)) == 404, "%s", run);
    for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"})
        EXPECT(status(ask(s.port(), "/", "127.0.0.1", method)) == 405, "%s", method);
    Connection large(s.port());
    large.send_text("GET /" + string(100000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    large.read("\r\n\r\n", 8);
    EXPECT(status(large.got) != 200, "%s", large.got.substr(0, 80).c_str());
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
        for (const string& query : {string(), string("?token="), "?token=" + token.substr(1), "?token=" + token + "0",
                                    "?Token=" + token, "?a=" + token, "?token=" + string(32, '0')})
            EXPECT(status(ask(t.port(), path + query)) == 403, "%s%s", path, query.c_str());
    EXPECT(status(ask(t.port(), "/?token=" + token, "cluster.example")) == 200, "with the token");
    EXPECT(status(ask(t.port(), "/metrics?token=" + token)) == 200, "metrics with the token");
}

static void listen_to(Connection& c) {
    c.send_text("GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n");
}
// The events so far, as a page: HTTP's chunks joined.
static KnownRuns known(const Connection& c) {
    const string chunks = body(c.got);
    string events;
    for (size_t at = 0; at < chunks.size();) {
        const size_t line = chunks.find("\r\n", at);
        const size_t size = std::stoul(chunks.substr(at, line - at), nullptr, 16);
        events += chunks.substr(line + 2, size);
        at = line + 2 + size + 2;
    }
    KnownRuns page;
    page.apply(events);
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

// The program: (process, its output so far).
struct Program {
    pid_t pid;
    string log;

    Program(const string& name, const string& args) : log(folder(name)) {
        const Ran ran = run("exec ./train_gpt " + args + " >" + log + " 2>&1 & echo $!");
        pid = pid_t(std::stol(ran.out));
    }
    ~Program() { kill(pid, SIGKILL); }
    bool says(const string& what) const {
        for (int wait = 0; wait < 100; wait++) {
            if (text_of(log).find(what) != string::npos) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        return false;
    }
    bool ends() const {
        for (int wait = 0; wait < 100 && kill(pid, 0) == 0; wait++)
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        return kill(pid, 0) != 0;
    }
};
static int port_of(const string& log) {
    const size_t at = log.find("http://");
    return at == log.npos ? 0 : atoi(log.c_str() + log.find(':', at + 7) + 1);
}

TEST(the_program_serves_and_ends_quietly) {
    const string root = folder("program");
    write_text(root + "/a/metrics.jsonl", start_row() + train_rows(1, 5));
    const Program p("program.log", "--watch=" + root + "/ --port=0");
    EXPECT(p.says("Ctrl-C"), "%s", text_of(p.log).c_str());
    const int port = port_of(text_of(p.log));
    EXPECT(text_of(p.log).starts_with(fmt::format("http://127.0.0.1:{}/\nwatching 1 run below", port)), "%s",
           text_of(p.log).c_str());
    const string page = ask(port, "/");
    for (const char* header : {"Content-Security-Policy: default-src 'none'", "X-Content-Type-Options: nosniff",
                               "Referrer-Policy: no-referrer", "Cache-Control: no-store"})
        EXPECT(page.find(header) != page.npos && ask(port, "/x").find(header) != page.npos, "%s", header);
    Connection c(port);
    listen_to(c);
    EXPECT(c.read("\"step\":[1,2,3,4,5]"), "%s", c.got.c_str());
    append_text(root + "/a/metrics.jsonl", train_row(6));
    EXPECT(c.read("\"step\":[6]", 3), "a step is not there after 3 s: %s", c.got.c_str());
    const Ran busy = run(fmt::format("./train_gpt --watch={} --port={}", root, port));
    EXPECT(busy.code == 78 && busy.err.find("--port=N") != string::npos && no_message(busy.err).empty(), "%d %s",
           busy.code, busy.err.c_str());
    const string before = text_of(p.log);
    kill(p.pid, SIGINT);
    EXPECT(p.ends() && text_of(p.log) == before, "%s", text_of(p.log).c_str());
    const Ran ended = run("timeout -s INT 2 ./train_gpt --watch=" + root + " --port=0; echo $?");
    EXPECT(ended.err.empty(), "%s", ended.err.c_str());
    const Ran code = run("sh -c './train_gpt --watch=" + root + " --port=0 >/dev/null & p=$!; sleep 1; "
                         "kill -INT $p; wait $p; echo $?'");
    EXPECT(code.out == "0\n" && code.err.empty(), "'%s' '%s'", code.out.c_str(), code.err.c_str());
}

TEST(flags_of_the_page_are_checked) {
    const string root = folder("program"), config = tiny_program_config("with_page");
    const std::pair<string, string> mistakes[] = {
        {"--watch=" + folder("nowhere"), "no such folder"},
        {"--watch=" + root + " --port=70000", "--port=70000: expected a port"},
        {"--watch=" + root + " --port=x", "--port=x: expected a port"},
        {"--watch=" + root + " --host=", "--host needs an address"},
        {"--watch=" + root + " --host=256.0.0.1 --port=0", "--watch: cannot listen"},
        {"--watch=" + root + " --plan", "--watch takes a folder"},
        {"--watch=" + root + " " + config, "--watch takes a folder"},
        {"--watch=" + root + " --train.steps=5", "--watch takes a folder"},
        {"--watch=", "--watch needs a folder"},
        {config + " --port=8000", "--port is for a page"},
        {config + " --host=0.0.0.0", "--host is for a page"},
        {config + " --wach=" + root, "Did you mean --watch?"}};
    for (const auto& [args, words] : mistakes) {
        const Ran ran = run("timeout 10 ./train_gpt " + args);
        EXPECT(ran.code == 78 && ran.err.find(words) != string::npos && no_message(ran.err).empty(),
               "%s: exit %d '%s'", args.c_str(), ran.code, ran.err.c_str());
    }
}

TEST(a_host_brings_a_token) {
    const string root = folder("hosted");
    write_text(root + "/a/metrics.jsonl", start_row() + train_rows(1, 5));
    const Program p("hosted.log", "--watch=" + root + " --port=0 --host=127.0.0.1");
    EXPECT(p.says("Ctrl-C"), "%s", text_of(p.log).c_str());
    const string log = text_of(p.log);
    const size_t at = log.find("/?token=");
    EXPECT(at != log.npos && log.find('\n', at) == at + 8 + 32, "%s", log.c_str());
    EXPECT(status(ask(port_of(log), "/")) == 403, "without");
    EXPECT(status(ask(port_of(log), "/?token=" + log.substr(at + 8, 32), "any.example")) == 200, "with");
}

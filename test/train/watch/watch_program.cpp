// ./train_gpt --watch as a user starts it.
#include "llmc/train/watch/ranks.h"
#include "test/served_program.h"
#include "test/watched_folder.h"

using namespace test;
using std::string;

TEST(the_program_serves_and_ends_quietly) {
    const string root = folder("program");
    write_text(root + "/a/metrics.jsonl", start_row() + train_rows(1, 5));
    const Program p("program.log", "--watch=" + root + "/ --port=0");
    EXPECT(p.says("Ctrl-C"), "%s", text_of(p.log).c_str());
    const int port = port_of(text_of(p.log));
    EXPECT(text_of(p.log).starts_with(fmt::format("http://127.0.0.1:{}/\nwatching 1 run below", port)), "%s",
           text_of(p.log).c_str());
    const string page = ask(port, "/");
    for (const char* header : {"Content-Security-Policy: default-src 'none'", "Cache-Control: no-store",
                               "X-Content-Type-Options: nosniff", "Referrer-Policy: no-referrer"})
        EXPECT(page.find(header) != page.npos && ask(port, "/x").find(header) != page.npos, "%s", header);
    Connection c(port);
    listen_to(c);
    EXPECT(c.read("\"step\":[1,2,3,4,5]"), "%s", c.got.c_str());
    append_text(root + "/a/metrics.jsonl", train_row(6));
    EXPECT(c.read("\"step\":[6]", 3), "a step is not there after 3 s: %s", c.got.c_str());
    const Ran busy = run(fmt::format("./train_gpt --watch={} --port={}", root, port));
    EXPECT(busy.code == 78 && busy.err.find("--port=N") != string::npos && no_message(busy.err).empty(),
           "%d %s", busy.code, busy.err.c_str());
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

TEST(a_report_is_a_page_with_the_run_in_it) {
    const string config = tiny_program_config("reported"), run_dir = folder("reported");
    const string hostile = "</script><script>x()</script><!--";
    string rows = start_row();
    for (int step = 1; step <= 9000; step++) rows += train_row(step) + (step % 10 ? "" : val_row(step));
    write_text(run_dir + "/metrics.jsonl",
               rows + "{\"event\":\"sample\",\"step\":9,\"text\":" + json(hostile).dump() + "}\n");
    const Ran ran = run("./train_gpt " + config + " --report");
    EXPECT(ran.code == 0 && ran.err.empty(), "%d %s", ran.code, ran.err.c_str());
    const string page = text_of(run_dir + "/report.html"), begin = "id=\"data\">";
    const size_t at = page.find(begin), end = page.find('<', at);
    EXPECT(at != page.npos && page.substr(end, 9) == "</script>", "%s", page.substr(end, 40).c_str());
    const json data = json::parse(page.substr(at + begin.size(), end - at - begin.size()));
    EXPECT(data.size() == 1 && data[0]["run"] == "reported" && data[0]["reset"] == true, "run object");
    EXPECT(data[0]["samples"][0]["text"] == hostile && data[0]["val"]["step"].size() == 900, "texts and val");
    const json& steps = data[0]["train"]["step"];
    EXPECT(steps.size() > 1000 && steps.size() < 3100 && steps.back() == 9000, "%zu rows", steps.size());
    const string other = folder("other.html");
    EXPECT(run("./train_gpt " + config + " --report=" + other).code == 0, "--report=FILE");
    EXPECT(text_of(other).size() > page.size() / 2, "%zu bytes", text_of(other).size());
    const Ran none = run("./train_gpt " + config + " --report --run.dir=" + folder("no_run"));
    EXPECT(none.code == 78 && none.err.find("no metrics.jsonl") != string::npos, "%s", none.err.c_str());
    const Ran two = run("./train_gpt " + config + " --report --plan");
    EXPECT(two.code == 78 && two.err.find("at a time") != string::npos, "%s", two.err.c_str());
}

// Nothing of a run is replaced, no link is followed, and no pipe is waited for.
TEST(a_report_costs_no_file) {
    const string f = folder("costs_nothing"), dir = f + "/run", mine = f + "/mine.html";
    write_text(dir + "/metrics.jsonl", start_row() + train_rows(1, 5));
    write_text(dir + "/config.json", "{}");
    write_text(dir + "/step_5/manifest.json", "{}");
    write_text(mine, "<!doctype html> mine");
    const string report = "timeout 20 ./train_gpt " + dir + " --report";
    for (const string file : {"/metrics.jsonl", "/config.json", "/step_5/manifest.json", "/evals.jsonl"}) {
        const string before = text_of(dir + file);
        const Ran ran = run(report + "=" + dir + file);
        EXPECT(ran.code == 78 && no_message(ran.err).empty() && text_of(dir + file) == before, "%s: %d %s",
               file.c_str(), ran.code, ran.err.c_str());
    }
    const string page = dir + "/report.html";
    for (const char* link : {"ln -s ", "ln "}) {
        run("rm -f " + page + "; " + link + mine + " " + page);
        EXPECT(run(report).code == 0 && text_of(page).size() > 1000, "%s", link);
        EXPECT(text_of(mine) == "<!doctype html> mine", "written through %s", link);
    }
    const string before = text_of(page);
    const Ran large = run("ulimit -f 8; " + report);
    EXPECT(large.code == 78 && large.err.find("ulimit -f") != large.err.npos && text_of(page) == before,
           "%d %s", large.code, large.err.c_str());
    run("rm " + page + "; mkfifo " + page);
    const Ran pipe = run(report);
    EXPECT(pipe.code == 78 && pipe.err.find("a pipe") != pipe.err.npos, "%d %s", pipe.code, pipe.err.c_str());
    EXPECT(run("ls " + dir + " | wc -l").out == "4\n", "%s", run("ls " + dir).out.c_str());
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

// All of 127.0.0.0/8 leads to this machine: a server of every address answers at 127.0.0.2, too.
TEST(a_page_is_served_at_127_0_0_1_alone) {
    const string root = folder("alone");
    write_text(root + "/a/metrics.jsonl", start_row() + train_rows(1, 5));
    for (const bool everywhere : {false, true}) {
        const Program p(everywhere ? "everywhere.log" : "alone.log",
                        "--watch=" + root + " --port=0" + (everywhere ? " --host=0.0.0.0" : ""));
        EXPECT(p.says("Ctrl-C"), "%s", text_of(p.log).c_str());
        const int port = port_of(text_of(p.log));
        EXPECT(listens_at("127.0.0.1", port), "nobody at 127.0.0.1:%d", port);
        EXPECT(listens_at("127.0.0.2", port) == everywhere, "127.0.0.2:%d %s", port,
               everywhere ? "is not served by --host=0.0.0.0" : "is served");
    }
}

// While it trains, each process says what its ranks do; after its end nothing is left.
TEST(a_run_says_what_its_ranks_do) {
    const json changes = {{"train", {{"steps", 1000000}}}, {"parallel", {{"ranks", 2}, {"tp", 2}}},
                          {"eval", {{"every", 0}}}};
    const string config = tiny_program_config("ranked", changes), root = folder("ranked");
    const Program p("ranked.log", config + " --log.every=0");
    json ranks;
    for (int wait = 0; wait < 300 && !ranks.is_array(); wait++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ranks = json::parse(read_ranks(root, "", 60));
    }
    EXPECT(ranks.size() == 2, "%s\n%s", ranks.dump().c_str(), text_of(p.log).c_str());
    for (int r = 0; r < int(ranks.size()); r++)
        EXPECT(ranks[r]["rank"] == r && ranks[r]["place"] == json({{"dp", 0}, {"pp", 0}, {"tp", r}}) &&
               ranks[r]["doing"] == "train" && ranks[r]["step"] > 0, "%s", ranks[r].dump().c_str());
    WatchedFolder watched(root);
    watched.update();
    const auto state = [&] { return watched.page.runs["."].value("state", ""); };      // a reset replaces it
    EXPECT(state() == "training", "%s", state().c_str());
    kill(p.pid, SIGTERM);
    EXPECT(p.ends(), "the run goes on: %s", text_of(p.log).c_str());
    EXPECT(!std::filesystem::exists(root + "/ranks"), "files are left");
    watched.update();
    EXPECT(state() == "stopped", "%s", state().c_str());
}

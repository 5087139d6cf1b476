// ./train_gpt on several ranks, as a user starts it: by mpirun, and as threads of one process.
#include <cmath>
#include <filesystem>
#include <span>
#include <sstream>

#include "llmc/base/console.h"
#include "llmc/base/host/machine.h"
#include "test/planned_memory.h"

namespace fs = std::filesystem;
using namespace test;
using std::string;

static Ran on_ranks(int ranks, bool mpi, const string& config, const string& args) {
    const string start = fmt::format("mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np {} ",
                                     ranks);
    const string threads = fmt::format(" --parallel.ranks={} --parallel.transport=threads", ranks);
    return run((mpi ? start : "") + "./train_gpt " + config + " " + args + (mpi ? "" : threads));
}

// Apart by one blank each.
static string words_of(const string& line) {
    std::istringstream in(line);
    string all;
    for (string word; in >> word;) all += (all.empty() ? "" : " ") + word;
    return all;
}

// fp64, with text: what a mesh changes is the last bits of a loss.
static string config_of(const string& name) {
    static const bool made = [] {
        std::ofstream text(folder("text.txt"));
        for (uint64_t i = 0; i < 12000; i++)
            text << "the small model reads\na page of text.\n"[philox(1, 2, i).x[0] % 38];
        text.close();
        const string tokenizer = folder("tokenizer.json");
        const Ran a = run("./tokenize train --vocab=280 --out=" + tokenizer + " " + folder("text.txt"));
        const Ran b = run("./tokenize encode --tokenizer=" + tokenizer + " --out=" + folder("text") +
                          " --val=0.1 " + folder("text.txt"));
        EXPECT(a.code == 0 && b.code == 0, "'%s' '%s'", a.err.c_str(), b.err.c_str());
        return true;
    }();
    (void)made;
    return tiny_program_config(name,
                               {{"run", {{"precision", "fp64"}}},
                                {"model", {{"layers", 4}, {"heads", 2}, {"channels", 32}, {"vocab", 0}}},
                                {"data",
                                 {{"train", folder("text_train_*.bin")},
                                  {"val", folder("text_val_*.bin")},
                                  {"tokenizer", folder("tokenizer.json")}}},
                                {"train", {{"steps", 4}, {"micro_batch", 1}}},
                                {"eval", {{"every", 2}, {"batches", 0}}},
                                {"sample", {{"every", 2}, {"tokens", 12}, {"prompt", "the small"}}},
                                {"checkpoint", {{"every", 4}}}});
}

// Losses, norms, bits per byte and texts equal a single rank's.
static void expect_same_run(const string& name, const string& reference) {
    for (const char* event : {"train", "val", "sample"}) {
        const auto a = rows_of(name, event), b = rows_of(reference, event);
        EXPECT(a.size() == b.size() && !a.empty(), "%s: %zu rows of %s, not %zu", name.c_str(), a.size(),
               event, b.size());
        for (size_t i = 0; i < std::min(a.size(), b.size()); i++)
            for (const char* key : {"step", "loss", "norm", "lr", "tokens", "bits_per_byte", "text"}) {
                if (!b[i].contains(key)) continue;
                if (b[i][key].is_number()) {
                    const double value = b[i][key];
                    EXPECT_NEAR(a[i].value(key, double(NAN)), value, 1e-10 * std::abs(value));
                } else
                    EXPECT(a[i][key] == b[i][key], "%s: %s", name.c_str(), a[i].dump().c_str());
            }
    }
}

// The table of the start: a line for each rank, in order, with its host, its threads and its coordinates.
static void expect_table(const string& out, int ranks, int tp, int pp, int tp_outside) {
    const int dp = ranks / tp / pp, outer = tp_outside ? tp : dp, inner = tp_outside ? dp : tp;
    const string first = tp_outside ? "tp" : "dp", last = tp_outside ? "dp" : "tp";
    const string title = fmt::format("{} ranks: {} {} x pp {} x {} {}, {} innermost\n", ranks, first, outer,
                                     pp, last, inner, last);
    const size_t at = out.find(title);
    EXPECT(at != string::npos, "no '%s' in '%s'", title.c_str(), out.c_str());
    std::istringstream lines(out.substr(std::min(out.size(), at + title.size())));
    string line;
    std::getline(lines, line);
    EXPECT(words_of(line) == "rank host device " + first + " pp " + last, "columns '%s'", line.c_str());
    for (int r = 0; r < ranks; r++) {
        std::getline(lines, line);
        const string want = fmt::format("{} {} cpu, 1 thread {} {} {}", r, host_name(), r / inner / pp,
                                        r / inner % pp, r % inner);
        EXPECT(words_of(line) == want, "'%s', expected '%s'", line.c_str(), want.c_str());
    }
}

TEST(a_run_is_that_of_one_rank) {
    if (!there(folder("one.json"))) {
        const Ran one = train_gpt(config_of("one"));
        EXPECT(one.code == 0, "code %d, '%s'", one.code, one.err.c_str());
    }
    struct {
        int ranks;
        bool mpi;
        const char* args;
        int tp = 1, pp = 1, tp_outside = 0;
    } const cases[] = {
        {8, false, "--parallel.tp=2 --parallel.pp=2 --parallel.zero=3", 2, 2},
        {4, false, "--parallel.zero=2 --parallel.zero_group=2 --memory.recompute=block"},
        {4, false, "--parallel.pp=2 --parallel.virtual_stages=2 --parallel.schedule=interleaved", 1, 2},
        {2, true, "--parallel.pp=2", 1, 2},
        {4, true, "--parallel.tp=2 --parallel.zero=3 --memory.offload=optimizer "
                  "--parallel.order=dp,pp,tp", 2, 1, 1},
    };
    for (const auto& c : cases) {
        if (c.mpi && no_mpi()) return test::skip("no mpirun here, or a build without MPI");
        if (kAddressSanitizer && &c != cases && &c != std::end(cases) - 1) continue;    // slow there
        const string name = "many" + std::to_string(&c - cases);
        const Ran ran = on_ranks(c.ranks, c.mpi, config_of(name), c.args);
        EXPECT(ran.code == 0, "%s: code %d, '%s'", c.args, ran.code, ran.err.c_str());
        expect_table(ran.out, c.ranks, c.tp, c.pp, c.tp_outside);
        EXPECT(rows_of(name, "start").at(0)["world"] == c.ranks, "%s",
               rows_of(name, "start").at(0).dump().c_str());
        expect_same_run(name, "one");
        EXPECT(there(folder(name) + "/step_4/tokenizer.json"), "%s: no checkpoint", c.args);
    }
}

// The weights of a run's checkpoint in a single file, on any mesh.
static string weights_of(const string& name) {
    train_gpt(config_of("weights"), "'--export=hf:" + folder(name) + "_hf' '--model.init=" + folder(name) +
                                        "/step_1'");
    return text_of(folder(name) + "_hf/model.safetensors");
}

// With a learning rate of 0 the weights never change: every mesh saves the same bytes, and starts from any
// other mesh's checkpoint. Processes under AddressSanitizer are slow.
static std::span<const char* const> tried(std::span<const char* const> meshes) {
    return meshes.first(kAddressSanitizer ? 1 : meshes.size());
}

TEST(checkpoints_do_not_know_the_mesh) {
    if (kAddressSanitizer) return skip("test/train/save/resume.cpp goes from mesh to mesh in one process");
    const char* const meshes[] = {"--parallel.tp=2 --parallel.pp=2 --parallel.zero=3",
                                  "--parallel.pp=4 --parallel.order=dp,pp",
                                  "--parallel.zero=1 --parallel.zero_group=4"};
    const string still = " --optimizer.lr=0 --sample.every=0 --train.steps=1 --checkpoint.every=1";
    train_gpt(config_of("still"), still);
    const string weights = weights_of("still");
    EXPECT(weights.size() > 10000, "no checkpoint");
    for (const char* mesh : meshes) {
        for (const char* init : {"", " --model.init="}) {
            const string from = *init ? init + folder("still") + "/step_1 --run.seed=99" : "";
            const string name = fmt::format("still {}{}", mesh + 11, from.size());
            const Ran ran = on_ranks(8, false, config_of("mesh"),
                                     mesh + still + from + " '--run.dir=" + folder(name) + "'");
            EXPECT(ran.code == 0, "%s: code %d, '%s'", mesh, ran.code, ran.err.c_str());
            EXPECT(weights_of(name) == weights, "%s: other weights", mesh);
        }
    }
    // text from it, once
    const string generate =
        "--generate='the page' --sample.tokens=20 --model.init=" + folder("still") + "/step_1";
    const Ran one = train_gpt(config_of("words"), generate);
    const Ran many = on_ranks(4, false, config_of("words"), generate + " --parallel.tp=2 --parallel.zero=3");
    EXPECT(many.code == 0 && many.out.ends_with(one.out) && one.out.starts_with("the page"),
           "code %d, '%s' and '%s' '%s'", many.code, one.out.c_str(), many.out.c_str(), many.err.c_str());
}

TEST(communication_is_logged) {
    const string args =
        " --log.comm=true --sample.every=0 --eval.every=0 --checkpoint.every=0 --parallel.tp=2";
    const Ran ran = on_ranks(4, false, config_of("comm"), args);
    const auto rows = rows_of("comm", "comm"), steps = rows_of("comm", "train");
    EXPECT(ran.code == 0 && rows.size() == steps.size() && !rows.empty(), "code %d, %zu rows, '%s'", ran.code,
           rows.size(), ran.err.c_str());
    for (const json& row : rows) {
        uint64_t sum = 0;
        for (const auto& [key, value] : row.items())
            if (key.ends_with("_bytes")) sum += uint64_t(value);
        EXPECT(sum == row["bytes"] && sum > 0 && row.value("tp.all_gather_bytes", 0) > 0 &&
                   row.value("shard.reduce_scatter_bytes", 0) > 0 && row.contains("wait_ms"),
               "%s", row.dump().c_str());
    }
    EXPECT(has(ran.out, "sent by rank 0") && has(ran.out, "tp.all_gather"), "'%s'", ran.out.c_str());
    // 2 micro-batches a rank, 4 blocks: forward 2 gathers and 2 scatters, backward 4 and 2, of a slice of
    // 32 tokens' 32 channels in fp64; a scatter of the embedding and two of the head, likewise
    const uint64_t slice = 32 / 2 * 32 * 8, micros = 256 / 32 / 2;
    for (const json& row : rows)
        EXPECT(row["tp.reduce_scatter_bytes"] == micros * (4 * 4 + 2) * slice, "%s, %lu a slice",
               row.dump().c_str(), slice);
}

// A boundary of the pipeline is crossed by a micro-batch's activations, and by their gradient back: n C w
// bytes each. Between two stages of two parts each it is crossed three times.
TEST(what_stages_send_is_the_formula) {
    const string args =
        " --log.comm=true --sample.every=0 --eval.every=0 --checkpoint.every=0 --parallel.pp=2 ";
    const uint64_t stream = 32 * 32 * 8, micros = 256 / 32;
    for (const bool interleaved : {false, true}) {
        const string more = "--parallel.schedule=interleaved --parallel.virtual_stages=2";
        const Ran ran = on_ranks(2, false, config_of("pp"), args + (interleaved ? more : ""));
        const auto rows = rows_of("pp", "comm");
        EXPECT(ran.code == 0 && rows.size() == 4, "code %d, %zu rows, '%s'", ran.code, rows.size(),
               ran.err.c_str());
        // rank 0 sends activations of its chunks, and gradients of every chunk but the first
        for (const json& row : rows)
            EXPECT(row["pp.send_bytes"] == micros * stream * (interleaved ? 3 : 1), "%s", row.dump().c_str());
        fs::remove_all(folder("pp"));
    }
}

// --plan prints the plan of the fullest rank in a run, for threads and for processes.
TEST(plans_of_meshes) {
    const auto total_of = [](const Ran& ran) {
        const size_t at = ran.out.find("  total "), from = ran.out.find_first_not_of(' ', at + 8);
        return at == string::npos ? "none" : ran.out.substr(from, ran.out.find('\n', from) - from);
    };
    const string still = " --train.steps=1 --eval.every=0 --checkpoint.every=0 --sample.every=1 ";
    const char* const meshes[] = {"--parallel.tp=2", "--parallel.pp=2", "--parallel.zero=3"};
    std::set<string> totals;
    for (const bool mpi : {false, true}) {
        if (mpi && no_mpi()) return test::skip("no mpirun here, or a build without MPI");
        for (const char* mesh : tried(meshes)) {
            const string config = config_of("plan"), args = mesh + still, over = mpi ? "mpi" : "threads";
            const Ran plan =
                train_gpt(config, "--plan --parallel.ranks=2 --parallel.transport=" + over + " " + args);
            EXPECT(!fs::exists(folder("plan")), "--plan makes run.dir");
            EXPECT(plan.code == 0 && has(plan.out, "of 2 over " + over), "%s: code %d, '%s' '%s'", mesh,
                   plan.code, plan.out.c_str(), plan.err.c_str());
            const Ran launched = on_ranks(2, mpi, config, "--plan " + args);
            EXPECT(launched.code == 0 && total_of(launched) == total_of(plan) &&
                   launched.out.find("  total ") == launched.out.rfind("  total "),
                   "%s over %s: not printed once: '%s'", mesh, over.c_str(), launched.out.c_str());
            const Ran ran = on_ranks(2, mpi, config, args);
            EXPECT(ran.code == 0, "%s: code %d, '%s'", mesh, ran.code, ran.err.c_str());
            const double bytes = rows_of("plan", "start").at(0)["plan_bytes"];
            EXPECT(total_of(plan) == human_bytes(bytes), "%s over %s: '%s', and %.0f bytes in the run", mesh,
                   over.c_str(), total_of(plan).c_str(), bytes);
            totals.insert(total_of(plan));
            fs::remove_all(folder("plan"));
        }
    }
    EXPECT(totals.size() == 2 * tried(meshes).size(), "%zu totals of %zu meshes and two transports",
           totals.size(), tried(meshes).size());
}

// A rank's peak memory equals the plan, staging of reductions included: as in cli.cpp, on two ranks, with
// many weights and few tokens.
TEST(memory_of_ranks_is_as_planned) {
    if (kAddressSanitizer) return skip("AddressSanitizer keeps what is freed");
    const std::pair<bool, const char*> cases[] = {
        {false, "--parallel.zero=2"}, {false, "--parallel.zero=3"}, {false, "--parallel.tp=2"},
        {true, "--parallel.zero=1 --model.layers=8"}, {true, "--parallel.pp=2 --model.layers=8"}};
    for (const auto& [mpi, args] : cases) {
        if (mpi && no_mpi()) return test::skip("no mpirun here, or a build without MPI");
        const json model = {{"layers", 4}, {"heads", 4}, {"channels", 640}, {"context", 32}};
        const json steps = {{"steps", 1}, {"batch_tokens", 128}, {"micro_batch", 2}};
        const string config = tiny_program_config("memory", {{"model", model}, {"train", steps},
                                                             {"eval", {{"batches", 1}}}});
        const Ran ran = on_ranks(2, mpi, config, args);
        EXPECT(ran.code == 0, "%s: code %d, '%s'", args, ran.code, ran.err.c_str());
        expect_planned("memory", args, 100e6);
        fs::remove_all(folder("memory"));
    }
}

// A signal to the process, or to a rank of several: every rank saves the same step and stops.
TEST(signals_reach_all_ranks) {
    const auto stopped = [](const string& name, const string& command, const string& whom) {
        const string metrics = folder(name) + "/metrics.jsonl";
        const Ran ran = run(command +
                            " & pid=$!\n"
                            "i=0; until [ \"$(grep -c '\"train\"' " +
                            metrics +
                            " 2>/dev/null || :)\" -ge 3 ] 2>/dev/null; do\n"
                            "  sleep 0.02; i=$((i+1)); [ $i -lt 1500 ] || break; done\n"
                            "kill -USR2 " +
                            whom + "\nwait $pid; echo \"exit code $?\" >&2");
        const auto steps = steps_of(name, "train");
        EXPECT(has(ran.err, "exit code 75") && !steps.empty(), "%s: '%s'", name.c_str(), ran.err.c_str());
        if (steps.empty()) return;
        const string saved = "/step_" + std::to_string(steps.back()) + "/manifest.json";
        EXPECT(there(folder(name) + saved),
               "%s: not saved after step %d", name.c_str(), steps.back());
    };
    const string long_run = " --train.steps=1000000 --eval.every=0 --sample.every=0 --parallel.tp=2";
    stopped("stop_threads", "./train_gpt " + config_of("stop_threads") + long_run + " --parallel.ranks=4",
            "$pid");
    if (no_mpi()) return test::skip("no mpirun here, or a build without MPI");
    stopped("stop_mpi",
            "mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np 4 ./train_gpt " +
                config_of("stop_mpi") + long_run,
            "$pid");
}

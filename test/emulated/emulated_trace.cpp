// log.trace over the emulated kernels: lanes of the GPU and of NCCL, by events, beside those of the host.
#include <algorithm>
#include <filesystem>

#include "test/fake_profiler.h"
#include "test/trace.h"

using std::string;
using namespace test;

static Ran emulated(const string& name, const string& args, const string& settings = "") {
    json changes = text_config();
    changes.merge_patch({{"model", {{"layers", 2}, {"heads", 2}, {"channels", 64}, {"context", 13}}},
                         {"train", {{"steps", 4}, {"batch_tokens", 4 * 13}, {"micro_batch", 1}}},
                         {"eval", {{"every", 0}}},
                         {"sample", {{"every", 0}}},
                         {"checkpoint", {{"every", 4}}}});
    return run("EMU_HOST=refuse " + settings + " " + build_folder() + "/emulated/train_gpt " +
               tiny_program_config(name, changes) + " --run.precision=fp32 " + args);
}

static string weights_of(const string& run) {
    string all;
    for (const auto& e : std::filesystem::directory_iterator(folder(run) + "/step_4"))
        if (e.path().extension() == ".safetensors") all += text_of(e.path());
    return all;
}

static std::vector<double> figures_of(const string& name) {
    std::vector<double> figures;
    for (const json& row : rows_of(name, "train"))
        for (const char* key : {"loss", "norm"}) figures.push_back(row[key]);
    return figures;
}

// Names of a lane's events without waits and host work, in the order of the file.
static std::vector<string> names_of(const ReadTrace& t, int rank, const string& lane) {
    std::vector<string> names;
    for (const TracedEvent& e : t.events)
        if (e.rank == rank && t.lanes.at({rank, e.lane}) == lane && e.category != "wait" &&
            e.name != "log" && e.name != "host code")
            names.push_back(e.name);
    return names;
}

static void expect_lanes(const string& shape, const ReadTrace& t, int rank) {
    const auto host = names_of(t, rank, "host"), gpu = names_of(t, rank, "GPU");
    EXPECT(host == gpu && host.size() > 100, "%s, rank %d: %zu ops launched, %zu run", shape.c_str(), rank,
           host.size(), gpu.size());
    const double on_gpu = covered(t, rank, 1) / length_of(t, rank);
    EXPECT(on_gpu > 0.3, "%s, rank %d: %g of the step on the GPU", shape.c_str(), rank, on_gpu);
}

// Collectives in flight on rank 0, by their lanes.
static std::map<string, int> flights_of(const ReadTrace& t) {
    std::map<string, int> flights;
    for (const TracedEvent& e : t.events)
        if (e.rank == 0 && e.lane > 1) flights[t.lanes.at({0, e.lane})]++;
    return flights;
}

struct Shape { const char *name, *args; int ranks; };
static const Shape kShapes[] = {
    {"one", "", 1},
    {"zero3", "--parallel.ranks=2 --parallel.zero=3 --parallel.transport=nccl --log.comm=true", 2},
    {"pp2", "--parallel.ranks=2 --parallel.pp=2 --parallel.transport=nccl", 2},
    {"tp2", "--parallel.ranks=2 --parallel.tp=2 --parallel.transport=nccl", 2},
};

TEST(the_gpu_has_a_lane_with_every_op) {
    for (const auto& [shape, args, ranks] : kShapes) {
        const string name = string("gpu_trace_") + shape, plain = name + "_plain";
        const Ran ran = emulated(name, string(args) + " '--log.trace=[3]'");
        const Ran untraced = emulated(plain, args);
        EXPECT(ran.code == 0 && untraced.code == 0, "%s: '%s'", shape, ran.err.c_str());
        const ReadTrace t = read_trace(folder(name) + "/trace_step_3.json");
        EXPECT(wrong_with(t) == "", "%s: %s", shape, wrong_with(t).c_str());
        for (int r = 0; r < ranks; r++) expect_lanes(shape, t, r);
        auto flights = flights_of(t);
        if (string(shape) == "zero3")
            EXPECT(flights["shard.all_gather"] > 0 && flights["shard.reduce_scatter"] > 0,
                   "%zu lanes of NCCL", flights.size());
        const string weights = weights_of(name);
        EXPECT(figures_of(name) == figures_of(plain), "%s: other figures", shape);
        EXPECT(weights == weights_of(plain) && !weights.empty(), "%s: other weights", shape);
    }
}

TEST(the_host_lane_of_every_rank_covers_the_step) {
    for (const auto& [shape, args, ranks] : kShapes) {
        const string name = string("covered_") + shape;
        const Ran ran = emulated(name, string(args) + " --train.steps=6 --train.batch_tokens=104 "
                                                      "--checkpoint.every=0 '--log.trace=[2,4,6]'");
        EXPECT(ran.code == 0, "%s: '%s'", shape, ran.err.c_str());
        for (int r = 0; r < ranks; r++) {
            const double share = best_share(name, r, {2, 4, 6});
            EXPECT(std::abs(share - 1) < 0.05, "%s, rank %d: %g of the step", shape, r, share);
        }
    }
}

// A traced step adds at most four waits of the host, whatever its length: for the step before, for the mark
// that ties the clocks, for the step's own statistics and for the last mark. The micro-batches are fewer than
// the host has buffers for (Pipeline::kBuffered), so that no wait is for a buffer.
TEST(a_traced_step_waits_outside_of_itself) {
    const auto waits = [](const string& name, const string& args) {
        const string file = folder(name + ".txt");
        const Ran ran = emulated(name, "--checkpoint.every=0 " + args, "EMU_STREAMS=lazy EMU_WAITS=" + file);
        EXPECT(ran.code == 0, "%s: code %d, '%s'", name.c_str(), ran.code, ran.err.c_str());
        int lines = 0;
        std::istringstream text(text_of(file));
        for (string line; std::getline(text, line);) lines++;
        return lines;
    };
    const string one = "--train.batch_tokens=13 ", two = "--train.batch_tokens=26 ";
    const string trace = "'--log.trace=[3]'";
    const int more_of_one = waits("one_traced", one + trace) - waits("one_plain", one);
    const int more_of_two = waits("two_traced", two + trace) - waits("two_plain", two);
    EXPECT(more_of_one > 0 && more_of_one <= 4 && more_of_two == more_of_one,
           "%d more waits in a step of one micro-batch, %d in one of two", more_of_one, more_of_two);
}

// Events with timing are recorded in steps that ask for times, and in no other step.
TEST(nothing_is_timed_unless_asked_for) {
    const auto records = [](const string& name, const string& args) {
        const string file = folder(name + ".txt");
        const Ran ran = emulated(name, "--parallel.ranks=2 --parallel.zero=3 --parallel.transport=nccl "
                                 "--checkpoint.every=0 " + args, "EMU_TIMES=" + file);
        EXPECT(ran.code == 0, "%s: code %d, '%s'", name.c_str(), ran.code, ran.err.c_str());
        const string text = text_of(file);
        return std::count(text.begin(), text.end(), '\n');
    };
    const auto once = records("untimed", ""), later = records("untimed_later", "--train.steps=6");
    EXPECT(once == later, "%td records in four steps, %td in six", once, later);
    const auto asked = records("timed", "--log.comm=true");
    EXPECT(asked > once + 20, "%td records with log.comm, %td without", asked, once);
    const auto traced = records("times_traced", "'--log.trace=[2]'");
    const auto after = records("times_traced_later", "--train.steps=6 '--log.trace=[2]'");
    EXPECT(traced > once + 20 && after == traced, "%td records of a traced step, then %td", traced, after);
}

#if __has_include(<nvtx3/nvToolsExt.h>)
static constexpr bool kHaveNvtx = true;
#else
static constexpr bool kHaveNvtx = false;
#endif

// Names on a rank's host lane, as its timeline has them: without the axes.
static std::vector<string> timeline_of(const ReadTrace& t, int rank) {
    std::vector<string> names;
    for (const TracedEvent& e : t.events)
        if (e.rank == rank && e.lane == 0 && e.name != "host code")
            names.push_back(e.name.substr(e.name.rfind('.') + 1));
    return names;
}

// A profiler sees each step of each rank, in it blocks and micro-batches, in these the ops that a trace has.
TEST(ranges_of_a_profiler_nest_and_name_every_op) {
    if (!kHaveNvtx) return skip("no nvtx3/nvToolsExt.h: the kernels are built without ranges");
    struct { const char *name, *args; size_t ranks; } const shapes[] = {
        {"one", "", 1},
        {"zero3", "--parallel.ranks=2 --parallel.zero=3 --parallel.transport=nccl", 2},
        {"pp2", "--parallel.ranks=2 --parallel.pp=2 --parallel.transport=nccl", 2}};
    const string library = fake_profiler();
    for (const auto& [shape, args, ranks] : shapes) {
        const string name = string("profiled_") + shape, plain = name + "_plain";
        const string ranges = folder(name + ".txt");
        const Ran ran = emulated(name, string(args) + " '--log.trace=[3]'",
                                 "NVTX_INJECTION64_PATH=" + library + " RANGES=" + ranges);
        const Ran alone = emulated(plain, args);
        EXPECT(ran.code == 0 && alone.code == 0, "%s: '%s'", shape, ran.err.c_str());
        const ReadTrace trace = read_trace(folder(name) + "/trace_step_3.json");
        const auto threads = read_ranges(ranges);
        EXPECT(threads.size() == ranks, "%s: ranges of %zu threads", shape, threads.size());
        if (threads.size() != ranks) continue;
        std::multiset<std::vector<string>> seen, traced;
        for (const auto& [id, thread] : threads) {
            EXPECT(thread.open.empty() && thread.step == 4, "%s: %zu open ranges after step %d", shape,
                   thread.open.size(), thread.step);
            EXPECT(thread.groups > 4 * 2, "%s: %d ranges of blocks", shape, thread.groups);
            seen.insert(thread.steps.at(3));
        }
        for (size_t r = 0; r < ranks; r++) traced.insert(timeline_of(trace, int(r)));
        EXPECT(seen == traced && seen.begin()->size() > 100, "%s: %zu ranges in a step, %zu events", shape,
               seen.begin()->size(), traced.begin()->size());
        EXPECT(figures_of(name) == figures_of(plain), "%s: other figures", shape);
    }
}

// Times of a GPU's ops are by marks of its clock.
TEST(a_gpu_is_measured_for_a_plan) {
    const string cache = folder("cache");
    const Ran ran = emulated("measured", "--plan --json --cluster.gpu=auto", "XDG_CACHE_HOME=" + cache);
    const json p = json::parse(ran.out, nullptr, false);
    EXPECT(ran.code == 0 && p.is_object() && p.at("step_seconds").get<double>() > 0, "exit %d: %s%s",
           ran.code, ran.out.c_str(), ran.err.c_str());
    const json machine = json::parse(text_of(cache + "/train_gpt/machine.json"));
    const json& step = *machine.at("steps").begin();
    double sum = 0;
    for (const json& row : step.at("ops")) {
        EXPECT(row[8].get<double>() >= 0, "an op takes %s s", row[8].dump().c_str());
        sum += row[7].get<double>() * row[8].get<double>();
    }
    EXPECT_NEAR(sum, step.at("seconds").get<double>(), 1e-9);
    const Ran two = emulated("measured", "--plan --json --cluster.gpu=auto --parallel.ranks=2",
                             "XDG_CACHE_HOME=" + cache);
    EXPECT(two.code == 78 && two.err.find("not 2") != string::npos, "exit %d: %s", two.code,
           two.err.c_str());
}

// The host reads a step's figures during the next step, which writes its own to the same places.
TEST(copies_that_come_late_change_no_figure) {
    const string program = build_folder() + "/emulated/train_gpt ";
    for (const string health : {"0", "1"}) {
        for (const string streams : {"eager", "lazy"}) {
            const json changes = {{"model", {{"context", 13}, {"vocab", 500}}},
                                  {"train", {{"steps", 3}, {"batch_tokens", 4 * 13}, {"micro_batch", 1}}},
                                  {"eval", {{"every", 0}}}, {"log", {{"health", std::stoi(health)}}}};
            const string config = tiny_program_config(streams + health, changes);
            const Ran ran = run("EMU_STREAMS=" + streams + " " + program + config);
            EXPECT(ran.code == 0, "'%s'", ran.err.c_str());
        }
        EXPECT(figures_of("eager" + health) == figures_of("lazy" + health), "other figures, log.health = %s",
               health.c_str());
    }
}

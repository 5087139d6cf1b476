// log.trace: what the file says of a step, on several meshes.
#define PRECISION fp32
#include "test/trace.h"

#include <filesystem>

#include "llmc/base/progress.h"
#include "llmc/comm/clocks.h"
#include "llmc/comm/texts.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/train/run/run_memory.h"
#include "test/ranks.h"

using std::string;
using namespace test;

// ---------------------------------------------------------------------------------------------------------
// one clock

TEST(offsets_of_clocks_are_within_their_bounds) {
    const double skew[] = {100, 3e6, -77.5, 100.25};
    for (const int delay_us : {0, 300}) {
        std::vector<ClockOffset> found(4), same(4);
        run_threads(config_of(4), [&](Config, const Mesh& mesh) {
            mesh.world.group->most_delay_us = delay_us;
            const double mine = skew[mesh.rank];
            found[size_t(mesh.rank)] = clock_offset(mesh.world, [=] { return seconds_now() + mine; });
            same[size_t(mesh.rank)] = clock_offset(mesh.world);
            return 0;
        });
        for (size_t r = 0; r < 4; r++) {
            const ClockOffset& o = found[r];
            EXPECT(std::abs(o.offset - (skew[r] - skew[0])) <= o.error + 1e-6, "rank %zu: %g +- %g", r,
                   o.offset, o.error);
            EXPECT(o.error < 0.05 && same[r].offset == 0, "rank %zu: +- %g s; of one clock %g", r, o.error,
                   same[r].offset);
        }
    }
}

TEST(texts_of_all_ranks_arrive) {
    const string texts[] = {"rank 0", string(2500000, 'x') + "end", ""};
    run_threads(config_of(3), [&](Config, const Mesh& mesh) {
        const auto all = gather_texts(mesh.world, texts[mesh.rank]);
        EXPECT(all.size() == (mesh.rank == 0 ? 3u : 0u), "%zu texts", all.size());
        for (size_t r = 0; r < all.size(); r++) EXPECT(all[r] == texts[r], "rank %zu", r);
        return 0;
    });
}

// ---------------------------------------------------------------------------------------------------------
// files of runs

struct Shape { const char *name, *args; int ranks; };
static const Shape kShapes[] = {
    {"one", "", 1},
    {"dp2_zero3", "--parallel.zero=3", 2},
    {"pp2", "--parallel.pp=2", 2},
    {"tp2_block", "--parallel.tp=2 --memory.recompute=block", 2},
    {"dp2_pp2_zero2", "--parallel.pp=2 --parallel.zero=2 --memory.recompute=selective", 4},
};

static string args_of(const Shape& s) {
    return fmt::format("{} --parallel.ranks={} --parallel.transport=threads --eval.every=0 --train.steps=4 "
                       "--train.micro_batch=1 --checkpoint.every=4", s.args, s.ranks);
}

// "shard.all_gather, block 1, micro-batch 0, 512 bytes" -> number
using Counts = std::map<string, int>;
static string key_of(const string& name, int block, int micro, uint64_t bytes) {
    return fmt::format("{}, block {}, micro-batch {}, {} bytes", name, block, micro, bytes);
}

static Counts counts_of(const Walk& w) {
    Counts counts;
    for (const Walk::Entry& e : w.entries) {
        const Cost& c = w.of(e);
        const bool moves = c.kind == Kind::Copy || c.kind == Kind::Collective;
        const uint64_t bytes = moves ? std::max(c.read, c.written) : c.read + c.written;
        const string name = c.axis ? string(c.axis) + "." + c.name : c.name;
        const bool waits = c.axis && c.kind == Kind::Wait;
        counts[key_of(waits ? "wait " + name : name, e.block, e.micro, bytes)]++;
    }
    return counts;
}

// Of the rank's own lane, without named host work.
static Counts counts_of(const ReadTrace& t, int rank) {
    Counts counts;
    for (const TracedEvent& e : t.events)
        if (e.rank == rank && e.lane == 0 && e.name != "loader" && e.name != "host code")
            counts[key_of(e.name, e.args.value("block", -1), e.args.value("micro_batch", -1),
                          e.args.value("bytes", uint64_t(0)))]++;
    return counts;
}

static void expect_walked(const Shape& s, const ReadTrace& t, const string& config) {
    Config cfg = load_config(config);
    cfg.train.micro_batch = 1, cfg.train.steps = 4;
    std::istringstream words(args_of(s));
    for (string word; words >> word;) {
        const size_t equals = word.find('=');
        set_value(cfg, word.substr(2, equals - 2), word.substr(equals + 1));
    }
    for (int r = 0; r < s.ranks; r++) {
        const auto mesh = described_mesh(cfg.parallel, s.ranks, r);
        const Counts walked = counts_of(fp32::walk_of_run(cfg, mesh->mesh, {.micro_batch = 1, .micros = 0}));
        Counts traced = counts_of(t, r);
        // the log's, which the walk leaves out
        const auto read = traced.find(key_of("host_awaits_copies", -1, -1, 0));
        EXPECT(read != traced.end() && read->second == 1, "%s, rank %d: the statistics are read", s.name, r);
        if (read != traced.end()) traced.erase(read);
        EXPECT(walked.size() > 20, "%zu kinds of ops", walked.size());
        for (const auto& [key, n] : walked) {
            const int found = traced.contains(key) ? traced.at(key) : 0;
            EXPECT(found == n, "%s, rank %d: %s: %d walked, %d traced", s.name, r, key.c_str(), n, found);
        }
        EXPECT(walked.size() == traced.size(), "%s, rank %d: %zu kinds walked, %zu traced", s.name, r,
               walked.size(), traced.size());
    }
}

// The k-th message of a stage arrives at the next stage after it was sent, by the one clock.
static int expect_sent_before_received(const ReadTrace& t, int from, int to) {
    std::vector<double> sent, received;
    for (const TracedEvent& e : t.events) {
        if (e.lane != 0 || e.category != "collective") continue;
        if (e.rank == from && e.name == "pp.send") sent.push_back(e.begin);
        if (e.rank == to && e.name == "pp.recv") received.push_back(e.end);
    }
    EXPECT(sent.size() == received.size(), "%zu sent, %zu received", sent.size(), received.size());
    for (size_t i = 0; i < std::min(sent.size(), received.size()); i++)
        EXPECT(sent[i] <= received[i], "message %zu: sent at %g, received at %g", i, sent[i], received[i]);
    return int(sent.size());
}

static string weights_of(const string& run) {
    string all;
    for (const auto& e : std::filesystem::directory_iterator(folder(run) + "/step_4"))
        if (e.path().extension() == ".safetensors") all += text_of(e.path());
    return all;
}

TEST(a_trace_has_every_op_of_the_step_on_every_rank) {
    for (const Shape& s : kShapes) {
        const string name = string("traced_") + s.name, config = tiny_program_config(name);
        const Ran ran = train_gpt(config, args_of(s) + " '--log.trace=[3, 2]'");
        EXPECT(ran.code == 0, "%s: code %d, '%s'", s.name, ran.code, ran.err.c_str());
        const string file = folder(name) + "/trace_step_";
        EXPECT(!there(file + "1.json") && there(file + "2.json") && !there(file + "4.json"), "%s", s.name);
        const ReadTrace t = read_trace(file + "3.json");
        EXPECT(wrong_with(t) == "", "%s: %s", s.name, wrong_with(t).c_str());
        EXPECT(t.ranks.size() == size_t(s.ranks), "%s: %zu ranks", s.name, t.ranks.size());
        expect_walked(s, t, config);
        if (string(s.name) == "pp2")
            EXPECT(expect_sent_before_received(t, 0, 1) == 8 && expect_sent_before_received(t, 1, 0) == 8,
                   "messages");

        const Ran plain = train_gpt(tiny_program_config(name + "_plain"), args_of(s));
        EXPECT(plain.code == 0 && timeless(name) == timeless(name + "_plain"), "%s: other figures", s.name);
        const string weights = weights_of(name);
        EXPECT(weights == weights_of(name + "_plain") && !weights.empty(), "%s: other weights", s.name);
    }
}

TEST(the_lane_of_every_rank_covers_the_step) {
    for (const Shape& s : kShapes) {
        const string name = string("covered_") + s.name, config = tiny_program_config(name);
        const Ran ran = train_gpt(config, fmt::format("{} --parallel.ranks={} --parallel.transport=threads "
                                                      "--eval.every=0 --train.batch_tokens=16384 "
                                                      "--train.steps=6 '--log.trace=[2,4,6]'", s.args,
                                                      s.ranks));
        EXPECT(ran.code == 0, "%s: code %d, '%s'", s.name, ran.code, ran.err.c_str());
        for (int r = 0; r < s.ranks; r++) {
            const double share = best_share(name, r, {2, 4, 6});
            EXPECT(std::abs(share - 1) < 0.05, "%s, rank %d: %g of the step", s.name, r, share);
        }
    }
}

static void expect_warned_once(const string& run, const Ran& ran) {
    const string warning = "log.trace: cannot write";
    EXPECT(ran.code == 0 && rows_of(run, "train").size() == 10, "%s: code %d, '%s'", run.c_str(), ran.code,
           ran.err.c_str());
    EXPECT(ran.err.find(warning) != string::npos && ran.err.find(warning) == ran.err.rfind(warning), "'%s'",
           ran.err.c_str());
}

TEST(a_trace_whose_name_is_a_folder_is_a_warning) {
    const string config = tiny_program_config("blocked"), file = folder("blocked") + "/trace_step_";
    std::filesystem::create_directories(file + "2.json/x");
    expect_warned_once("blocked", train_gpt(config, "'--log.trace=[2,3]' --eval.every=0"));
    EXPECT(wrong_with(read_trace(file + "3.json")) == "", "step 3 is written");
}

TEST(a_trace_on_a_full_disk_is_a_warning) {
    const string disk = folder("full_disk");
    std::filesystem::create_directories(disk);
    if (run("mount -t tmpfs -o size=48k none " + disk).code != 0)
        return skip("mounting a small disk is not allowed here");
    const string config = tiny_program_config("full_disk/run", {{"run", {{"dir", disk + "/run"}}}});
    const Ran ran = train_gpt(config, "'--log.trace=[2,3]' --eval.every=0 --train.batch_tokens=2048 "
                                      "--train.micro_batch=1");
    expect_warned_once("full_disk/run", ran);
    EXPECT(!there(disk + "/run/trace_step_2.json"), "half a trace");
    EXPECT(run("umount " + disk).code == 0, "%s stays", disk.c_str());
}

TEST(steps_to_trace_are_positive) {
    for (const char* bad : {"3", "[0]", "[-1]", "[1.5]", "[\"3\"]", "[3000000000]"}) {
        const Ran ran = train_gpt(tiny_program_config("bad_trace"), fmt::format("'--log.trace={}'", bad));
        EXPECT(ran.code == 78 && ran.err.find("log.trace") != string::npos, "%s: code %d, '%s'", bad,
               ran.code, ran.err.c_str());
        EXPECT(no_message(ran.err).empty(), "%s: %s", bad, no_message(ran.err).c_str());
    }
}

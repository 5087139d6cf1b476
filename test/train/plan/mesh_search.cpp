// The search on small meshes, against brute force: every candidate planned.
#include <array>
#include <set>

#include "llmc/train/plan/print.h"
#include "llmc/train/run/distinct_stages.h"
#include "llmc/train/plan/search_counts.h"
#include "test/tiny.h"

namespace PRECISION {

static Config planned_config() {
    Config cfg;
    cfg.model = {.layers = 4, .heads = 4, .channels = 256, .context = 256, .vocab = 1000, .init = "random"};
    cfg.train = {.steps = 5, .batch_tokens = 32 * 256, .micro_batch = 1, .max_skips = 0};
    cfg.sample.every = 0;
    return cfg;
}

static Machine h100() { return machine_of({.gpu = "h100", .file = ""}); }

TEST(bounds_hide_no_better_mesh) {
    const Machine small = [] {
        Machine m = h100();
        m.memory_gb = 1.4;  // some plans do not fit
        m.gpus_per_node = 4;
        return m;
    }();
    const Config cfg = planned_config();
    const Search found = search(cfg, 8, small, estimate);
    std::vector<double> seconds;
    int without_memory = 0;
    std::vector<Config> all = candidates_of(cfg, 8, small);
    const size_t plain = all.size();
    for (size_t i = 0; i < all.size(); i++) {           // grows: plans beyond memory return with offload
        const Estimate e = estimate(all[i], 8, small);
        if (e.fits) {
            seconds.push_back(e.step.seconds);
            continue;
        }
        without_memory++;
        if (all[i].memory.offload != Offload::None) continue;
        all.push_back(all[i]);
        all.back().memory.offload = Offload::Optimizer;
    }
    std::sort(seconds.begin(), seconds.end());
    EXPECT(without_memory > 0 && found.without_memory > 0 && found.without_memory <= without_memory,
           "%d and %d without memory", without_memory, found.without_memory);
    EXPECT(found.best.size() == Search::kShown, "%zu shown", found.best.size());
    for (size_t i = 0; i < found.best.size(); i++) EXPECT_NEAR(found.best[i].step.seconds, seconds[i], 0);
    // a candidate excluded by its bound counts once, with or without enough memory
    const int examined = found.rejected() + int(found.best.size());
    EXPECT(examined >= int(plain) && examined <= int(all.size()), "%d of %zu to %zu candidates", examined,
           plain, all.size());
}

// A command has every setting chosen by the search, overriding the config.
TEST(the_command_names_what_was_chosen) {
    Config cfg = planned_config();
    cfg.parallel.zero_group = 2;
    cfg.train.batch_tokens = 24 * 256;
    const Search found = search(cfg, 8, h100(), estimate);
    const std::string options = options_of(found.best.front());
    EXPECT(options.find("--parallel.zero_group=0") != std::string::npos, "%s", options.c_str());
    std::set<int> micro_batches;
    for (const Config& c : candidates_of(cfg, 8, h100())) micro_batches.insert(c.train.micro_batch);
    EXPECT(micro_batches == std::set<int>({1, 2, 3, 4, 6, 8, 12, 24}), "%zu micro-batches",
           micro_batches.size());
}

// Ops of a small model take less time than their launches, so the fewest micro-batches are fastest.
TEST(a_small_model_gets_a_large_micro_batch) {
    Config cfg = planned_config();
    const auto set_sequences = [&](int sequences) {
        cfg.train.batch_tokens = int64_t(sequences) * cfg.model.context;
    };
    set_sequences(256);
    const Search found = search(cfg, 1, h100(), estimate);
    EXPECT(!found.best.empty() && found.best.front().cfg.train.micro_batch == 256, "micro-batch %d",
           found.best.empty() ? 0 : found.best.front().cfg.train.micro_batch);
    set_sequences(4096);
    int largest = 0;
    for (const Config& c : candidates_of(cfg, 1, h100())) largest = std::max(largest, c.train.micro_batch);
    EXPECT(largest == 1024, "micro-batches of up to %d", largest);
}

TEST(a_batch_that_divides_over_no_mesh_is_the_reason) {
    const Search none = search(planned_config(), 35, h100(), estimate);
    const std::string text = search_text(none, h100(), "");
    EXPECT(none.rejected() == 0 && text.find("train.batch_tokens") != std::string::npos, "%d: %s",
           none.rejected(), text.c_str());
}

// Slow links between nodes: plans with tensor parallelism over links lose, and links are the reason.
TEST(plans_that_wait_for_links_lose_by_links) {
    Machine m = h100();
    m.gpus_per_node = 2, m.network_gbs = 0.01, m.node_gbs = 900, m.launch_us = 0.1;
    const Search found = search(planned_config(), 8, m, estimate);
    EXPECT(found.by_links > found.by_ops, "%d by links, %d by ops, %d by the bubble", found.by_links,
           found.by_ops, found.by_bubble);
}

// Pipelines of up to 8 stages with 8 micro-batches at most, beside dp over fast links.
TEST(deep_pipelines_with_few_micro_batches_lose_by_their_bubble) {
    Machine m = h100();
    m.network_gbs = m.node_gbs = 1e6, m.launch_us = m.node_us = m.network_us = 0.001;
    Config cfg = planned_config();
    cfg.model.layers = 8;
    cfg.model.channels = 128, cfg.model.heads = 1;      // no tp
    cfg.train.batch_tokens = 8 * 256;
    const Search found = search(cfg, 8, m, estimate);
    EXPECT(found.by_bubble > found.by_links + found.by_ops, "%d by the bubble, %d by links, %d by ops",
           found.by_bubble, found.by_links, found.by_ops);
    const std::string text = search_text(found, m, "");
    EXPECT(text.find(fmt::format(" {} by the bubble", found.by_bubble)) != text.npos, "%s", text.c_str());
}

// The plan of parallel.schedule = zb: a third of the bubble, equal work but for copies, and the memory of the
// first stage of 1f1b in every stage. The search tries it with pipelines alone, and without recomputation.
TEST(a_backward_in_halves_is_planned_with_a_third_of_the_bubble) {
    Machine m = h100();
    m.network_gbs = m.node_gbs = 1e6, m.launch_us = m.node_us = m.network_us = 0.001;
    Config cfg = planned_config();
    cfg.model.layers = 8, cfg.model.channels = 1024, cfg.model.heads = 8;
    cfg.parallel.pp = 4;
    const Estimate at_once = estimate(cfg, 4, m);
    cfg.parallel.schedule = PipelineSchedule::ZeroBubble;
    const Estimate halves = estimate(cfg, 4, m);
    const double bubble = halves.step.bubble / at_once.step.bubble;
    const double work = halves.step.by_kind.sum() / at_once.step.by_kind.sum();
    EXPECT(bubble > 0.2 && bubble < 0.45, "%g of the bubble", bubble);
    EXPECT(work >= 0.999 && work < 1.02, "%g of the work", work);
    EXPECT(halves.step.seconds < at_once.step.seconds, "%g s, %g s by 1f1b", halves.step.seconds,
           at_once.step.seconds);
    const double memory = double(halves.memory.activations) / double(at_once.memory.activations);
    EXPECT(memory > 1 && memory < 1.1, "%g of the activations", memory);
    int tried = 0, apart = 0;
    for (const Config& c : candidates_of(cfg, 4, m)) {
        const bool zb = c.parallel.schedule == PipelineSchedule::ZeroBubble;
        tried += zb, apart += zb && (c.parallel.pp == 1 || c.memory.recompute != Recompute::None);
    }
    EXPECT(tried > 0 && apart == 0, "%d candidates, %d of one stage or with recomputation", tried, apart);
}

// Against every row: with a deadline the fewest GPU hours, with a budget alone the fastest.
TEST_IF(kIsBf16, a_deadline_is_kept_cheaply_and_a_budget_spent_on_speed) {
    Config cfg = planned_config();
    cfg.train.batch_tokens = 48 * 256;
    const Machine m = h100();
    const CountedSearch all = search_counts(cfg, m, estimate);
    EXPECT(all.rows.size() > 4 && all.search.best.size() == all.rows.size() && all.search.beyond_limits == 0,
           "%zu rows, %zu within no limits", all.rows.size(), all.search.best.size());
    const auto seconds = [&](const Estimate& e) { return cost_of(e, m).seconds; };
    const auto dollars = [&](const Estimate& e) { return cost_of(e, m).dollars; };
    cfg.cluster.days = 1.01 * seconds(all.rows[3]) / 86400;
    const CountedSearch soon = search_counts(cfg, m, estimate);
    EXPECT(soon.rows.size() > all.rows.size(), "no number between powers of two was looked at");
    EXPECT(soon.search.beyond_limits > 0 && !soon.search.best.empty(), "%d", soon.search.beyond_limits);
    for (const Estimate& e : soon.rows) {
        const bool kept = seconds(e) <= 86400 * cfg.cluster.days;
        EXPECT(!kept || dollars(e) >= dollars(soon.search.best.front()), "%d GPUs cost less", e.ranks);
    }
    EXPECT(seconds(soon.search.best.front()) <= 86400 * cfg.cluster.days, "the deadline is missed");

    cfg.cluster.days = 0, cfg.cluster.dollars = 1.01 * dollars(all.rows[2]);
    const CountedSearch cheap = search_counts(cfg, m, estimate);
    for (const Estimate& e : cheap.rows)
        EXPECT(dollars(e) > cfg.cluster.dollars || seconds(e) >= seconds(cheap.search.best.front()),
               "%d GPUs are faster", e.ranks);

    cfg.cluster.dollars = 1e-12;
    const CountedSearch none = search_counts(cfg, m, estimate);
    const std::string text = counts_text(none, cfg.cluster, m, "");
    EXPECT(none.search.best.empty() && text.find("no number of GPUs keeps $") != text.npos, "%s",
           text.c_str());
    Machine unpriced = m;
    unpriced.dollars_per_hour = 0;
    const Fatal e = test::fatal_of([&] { search_counts(cfg, unpriced, estimate); });
    const std::string said = e.what();
    EXPECT(e.code == kExitConfig && said.find("dollars_per_hour") != said.npos, "%s", said.c_str());
}

// 16,384 ranks are planned by the walks of their distinct stages: three here, however many ranks there are.
TEST(a_plan_walks_distinct_stages_alone) {
    Config cfg = planned_config();
    cfg.model.layers = 64;
    cfg.parallel = {.tp = 2, .pp = 64};
    const DistinctStages d = distinct_stages(cfg);
    EXPECT(d.stages == std::vector<int>({0, 1, 63}) && d.of.size() == 64 && d.of[62] == 1 && d.of[63] == 2,
           "%zu stages", d.stages.size());
    cfg.train.batch_tokens = 16384 * 256;
    const Estimate e = estimate(cfg, 16384, h100());
    EXPECT(e.mesh.dp == 128 && e.memory_of_stages.size() == 64 &&
           *std::max_element(e.memory_of_stages.begin(), e.memory_of_stages.end()) == e.memory.sum(),
           "dp %d, %zu stages", e.mesh.dp, e.memory_of_stages.size());
}

TEST(offload_is_for_what_does_not_fit_otherwise) {
    Machine m = h100();
    const Config cfg = planned_config();
    m.memory_gb = 2;
    for (const Estimate& e : search(cfg, 2, m, estimate).best)
        EXPECT(e.cfg.memory.offload == Offload::None, "offload although %zu bytes fit", e.memory.sum());
    m.memory_gb = 0.02;
    EXPECT(search(cfg, 2, m, estimate).best.empty(), "a plan fits in 20 MB");
}

TEST(offload_is_chosen_where_nothing_else_fits) {
    Machine m = h100();
    Config cfg = planned_config();
    cfg.model.layers = 12, cfg.train.batch_tokens = 4 * 256;
    double least = INFINITY;
    for (const Config& c : candidates_of(cfg, 1, m))
        least = std::min(least, double(estimate(c, 1, m).memory.sum()));
    m.memory_gb = 0.98e-9 * least;
    const Search found = search(cfg, 1, m, estimate);
    EXPECT(!found.best.empty() && found.without_memory > 0, "%d without memory", found.without_memory);
    const auto expect_only = [](const Search& s, const std::string& option) {
        EXPECT(!s.best.empty(), "no plan with %s", option.c_str());
        for (const Estimate& e : s.best)
            EXPECT(e.fits && options_of(e).find(option) != std::string::npos, "%s", options_of(e).c_str());
    };
    expect_only(found, "--memory.offload=optimizer");
    least = INFINITY;
    for (Config c : candidates_of(cfg, 1, m)) {
        c.memory.offload = Offload::Optimizer;
        least = std::min(least, double(estimate(c, 1, m).memory.sum()));
    }
    m.memory_gb = 0.98e-9 * least;
    expect_only(search(cfg, 1, m, estimate), "--memory.offload=weights");
}

// ZeRO over a node's ranks is a choice where dp has ranks in several nodes, and several in each.
TEST(zero_may_stay_inside_a_node) {
    using Meshes = std::set<std::array<int, 3>>;    // tp, pp, group
    const auto groups_of = [](int gpus_per_node) {
        Machine m = h100();
        m.gpus_per_node = gpus_per_node;
        Meshes found;
        for (const Config& c : candidates_of(planned_config(), 8, m)) {
            const ParallelConfig& p = c.parallel;
            EXPECT(p.zero_group == 0 || p.zero > 0, "a group without ZeRO");
            if (p.zero_group) found.insert({p.tp, p.pp, p.zero_group});
        }
        return found;
    };
    EXPECT(groups_of(8).empty(), "groups inside a node");
    const Meshes of_4 = {{1, 1, 4}, {1, 2, 2}, {2, 1, 2}}, of_2 = {{1, 1, 2}};
    EXPECT(groups_of(4) == of_4, "%zu meshes", groups_of(4).size());
    EXPECT(groups_of(2) == of_2, "%zu meshes", groups_of(2).size());

    Search found;
    found.best.push_back(estimate(planned_config(), 8, h100()));
    found.best[0].cfg.parallel.zero = 3, found.best[0].cfg.parallel.zero_group = 4;
    const std::string text = search_text(found, h100(), "");
    EXPECT(text.find("  3 of 4  ") != text.npos, "%s", text.c_str());
}

// Memory by purpose sums to the plan, and ZeRO divides sharded memory.
TEST(memory_by_purpose) {
    const Machine machine = h100();
    Config cfg = planned_config();
    size_t optimizer = 0;
    for (cfg.parallel.zero = 0; cfg.parallel.zero <= 3; cfg.parallel.zero++) {
        const Estimate e = estimate(cfg, 4, machine);
        const double N = double(e.params), state = kIsBf16 ? 12 : 2.0 * sizeof(real);
        if (cfg.parallel.zero == 0) optimizer = e.memory.optimizer;
        EXPECT(std::abs(double(optimizer) / (state * N) - 1) < 0.05, "%zu bytes of state", optimizer);
        const double share = cfg.parallel.zero ? 0.25 : 1;
        EXPECT(std::abs(double(e.memory.optimizer) / (share * double(optimizer)) - 1) < 0.02,
               "zero %d: %zu of %zu", cfg.parallel.zero, e.memory.optimizer, optimizer);
    }
}

}  // namespace PRECISION

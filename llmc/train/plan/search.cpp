#include "llmc/train/plan/search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "llmc/base/context.h"
#include "llmc/base/machine.h"
#include "llmc/base/start_thread.h"

static std::vector<int> divisors(int64_t n, int64_t most) {
    std::vector<int> all;
    for (int d = 1; d <= std::min(n, most); d++)
        if (n % d == 0) all.push_back(d);
    return all;
}

// ---------------------------------------------------------------------------------------------------------
// what there is

static constexpr int kLargestMicroBatch = 128;

static std::vector<int> micro_batches_of(const Config& cfg, int dp) {
    std::vector<int> found;
    const int64_t rows = cfg.train.batch_tokens / cfg.model.context / dp;
    for (int B = 1; B <= std::min<int64_t>(rows, kLargestMicroBatch); B++)
        if (batch_divides(cfg, dp, B)) found.push_back(B);
    return found;
}

// 1f1b, and interleaved with chunks of equally many layers.
static std::vector<int> virtual_stages_of(const Config& cfg, int pp) {
    std::vector<int> found = {1};
    for (int v = 2; pp > 1 && v * pp <= cfg.model.layers && v <= 8; v++)
        if (cfg.model.layers % (v * pp) == 0) found.push_back(v);
    return found;
}

static void add_candidates(std::vector<Config>& all, Config cfg, int dp) {
    ParallelConfig& p = cfg.parallel;
    for (const int chunks : virtual_stages_of(cfg, p.pp)) {
        p.virtual_stages = chunks;
        p.schedule = chunks > 1 ? PipelineSchedule::Interleaved : PipelineSchedule::OneFOneB;
        for (const int B : micro_batches_of(cfg, dp))
            for (p.zero = 0; p.zero <= (dp > 1 ? 3 : 0); p.zero++)
                for (const Recompute level : {Recompute::None, Recompute::Selective, Recompute::Block}) {
                    cfg.train.micro_batch = B, cfg.memory.recompute = level;
                    all.push_back(cfg);
                }
    }
}

std::vector<Config> candidates_of(const Config& cfg, int ranks, const Machine& machine) {
    const int heads = cfg.model.kv_heads ? cfg.model.kv_heads : cfg.model.heads;
    const int F = with_sizes(cfg.model).ffn_channels;
    std::vector<Config> all;
    Config c = cfg;
    c.parallel.ranks = ranks, c.parallel.zero_group = 0;
    for (const int tp : divisors(heads, std::min(ranks, 2 * machine.gpus_per_node)))
        for (const int pp : divisors(ranks / tp, cfg.model.layers)) {
            if (ranks % (tp * pp) || (tp > 1 && F % (tp * kDescribedGpu.product_unit()))) continue;
            c.parallel.tp = tp, c.parallel.pp = pp;
            add_candidates(all, c, ranks / (tp * pp));
        }
    return all;
}

// ---------------------------------------------------------------------------------------------------------
// bounds

// A block on one rank of tp, by the difference of plans with two blocks and with one.
struct BlockCost {
    double weights, gradients, optimizer, activations;  // bytes; activations: of a micro-batch
    double seconds;                                     // of a micro-batch, tp's collectives included
};

static BlockCost block_cost(const Config& of, const Machine& machine, EstimateFunction* estimate) {
    Config cfg = of;
    cfg.parallel = {};
    cfg.parallel.tp = of.parallel.tp;
    // the cheapest attention of any layer; 0 is the whole context
    const auto narrower = [](int a, int b) { return a && (!b || a < b); };
    cfg.model.window = {*std::min_element(cfg.model.window.begin(), cfg.model.window.end(), narrower)};
    const auto planned = [&](int layers, int micros) {
        cfg.model.layers = layers;
        cfg.train.batch_tokens = int64_t(micros) * cfg.train.micro_batch * cfg.model.context;
        return estimate(cfg, cfg.parallel.tp, machine);
    };
    const Estimate one2 = planned(1, 2), one3 = planned(1, 3), two2 = planned(2, 2), two3 = planned(2, 3);
    const auto bytes = [&](size_t MemoryParts::*p) {
        return double(two2.memory.*p) - double(one2.memory.*p);
    };
    return {.weights = bytes(&MemoryParts::weights),
            .gradients = bytes(&MemoryParts::gradients),
            .optimizer = bytes(&MemoryParts::optimizer),
            .activations = bytes(&MemoryParts::activations),
            .seconds = two3.step.seconds - two2.step.seconds - (one3.step.seconds - one2.step.seconds)};
}

struct Bounds {
    double bytes, seconds;  // at least
    bool bubble;            // the bubble is the larger part beyond the fewest ops
};

static Bounds bounds_of(const Config& c, int ranks, const BlockCost& block, double fewest_ops) {
    const ParallelConfig& p = c.parallel;
    const double dp = double(ranks) / (p.tp * p.pp), blocks = double(c.model.layers / p.pp);
    const double micros = double(c.train.batch_tokens / c.model.context) / dp / c.train.micro_batch;
    const auto sharded = [&](double bytes, int stage) { return p.zero >= stage ? bytes / dp : bytes; };
    const double optimizer = c.memory.offload == Offload::None ? sharded(block.optimizer, 1) : 0;
    const double kept = sharded(block.weights, 3) + sharded(block.gradients, 2) + optimizer;
    const double alive = std::min<double>(p.pp, micros) * block.activations;
    const double ops = micros * c.model.layers * block.seconds / p.pp;
    const double bubble = ops * (p.pp - 1) / (p.virtual_stages * micros);
    return {.bytes = blocks * (kept + alive), .seconds = ops + bubble, .bubble = bubble > ops - fewest_ops};
}

// ---------------------------------------------------------------------------------------------------------
// the fastest

// Runs f(0) ... f(n - 1) on all cores. Where errors of this thread are thrown, so are those of the others.
template <class F>
static void for_each_of(size_t n, F&& f) {
    std::atomic<size_t> next = 0;
    std::mutex failing;
    std::exception_ptr failure;
    const bool throws = context.throw_on_fatal;
    const auto work = [&] {
        context.throw_on_fatal = throws;
        try {
            for (size_t i; (i = next++) < n;) f(i);
        } catch (...) {
            const std::lock_guard lock(failing);
            failure = std::current_exception();
            next = n;
        }
    };
    std::vector<std::thread> threads(size_t(possible_threads(cores()) - 1));
    for (std::thread& t : threads) (void)start_thread(t, work);
    work();
    for (std::thread& t : threads)
        if (t.joinable()) t.join();
    if (failure) std::rethrow_exception(failure);
}

static void count_reason(Search& s, const Estimate& e) {
    const Estimate& best = s.best.front();
    const double bubble = e.step.bubble - best.step.bubble,
                 links = e.step.parts.exposed - best.step.parts.exposed;
    const double ops = e.step.seconds - best.step.seconds - bubble - links;
    if (bubble >= links && bubble >= ops)
        s.by_bubble++;
    else if (links >= ops)
        s.by_links++;
    else
        s.by_ops++;
}

// Equally fast plans: less memory first, then the simpler mesh.
static bool faster(const Estimate& a, const Estimate& b) {
    const auto key = [](const Estimate& e) {
        return std::tuple(e.step.seconds, e.memory.sum(), e.mesh.tp, e.mesh.pp, e.cfg.parallel.zero,
                          e.cfg.train.micro_batch);
    };
    return key(a) < key(b);
}

namespace {
struct Candidate {
    Config cfg;
    Bounds bounds;
};

struct Found {
    std::mutex mutex = {};
    std::vector<Estimate> fitting = {};
    std::multiset<double> fastest = {};  // seconds of the best Search::kShown so far
    std::vector<Config> unfit = {};      // what needs more memory
    Search search = {};

    bool is_slower(double seconds) {
        const std::lock_guard lock(mutex);
        return fastest.size() == Search::kShown && seconds > *fastest.rbegin();
    }
    void add(Estimate e) {
        const std::lock_guard lock(mutex);
        if (!e.fits) {
            unfit.push_back(e.cfg);
            search.without_memory++;
            return;
        }
        fastest.insert(e.step.seconds);
        if (fastest.size() > Search::kShown) fastest.erase(std::prev(fastest.end()));
        fitting.push_back(std::move(e));
    }
};
}  // namespace

static void examine(std::vector<Candidate> all, int ranks, const Machine& machine, EstimateFunction* estimate,
                    const std::function<bool()>& stops, Found& found) {
    std::sort(all.begin(), all.end(),
              [](const Candidate& a, const Candidate& b) { return a.bounds.seconds < b.bounds.seconds; });
    std::vector<char> slower(all.size());
    for_each_of(all.size(), [&](size_t i) {
        slower[i] = found.is_slower(all[i].bounds.seconds);
        if (!slower[i] && !stops()) found.add(estimate(all[i].cfg, ranks, machine));
    });
    for (size_t i = 0; i < all.size(); i++)
        if (slower[i]) (all[i].bounds.bubble ? found.search.by_bubble : found.search.by_ops)++;
}

// The candidates that their bounds allow to fit; the others are counted.
static std::vector<Candidate> bounded(const std::vector<Config>& all, int ranks, const Machine& machine,
                                      EstimateFunction* estimate, Found& found) {
    std::map<std::tuple<int, Recompute, int>, BlockCost> costs;
    std::vector<Candidate> left;
    double fewest = INFINITY;  // seconds of a rank's ops, on the mesh with the fewest
    for (const Config& c : all) {
        const std::tuple key(c.parallel.tp, Recompute(c.memory.recompute), c.train.micro_batch);
        if (!costs.contains(key)) costs[key] = block_cost(c, machine, estimate);
        const double sequences = double(c.train.batch_tokens / c.model.context) * c.parallel.tp / ranks;
        fewest = std::min(fewest, sequences / c.train.micro_batch * c.model.layers * costs[key].seconds);
    }
    for (const Config& c : all) {
        const std::tuple key(c.parallel.tp, Recompute(c.memory.recompute), c.train.micro_batch);
        const Bounds b = bounds_of(c, ranks, costs[key], fewest);
        if (b.bytes > 1e9 * machine.memory_gb) {
            found.unfit.push_back(c);
            found.search.without_memory++;
        } else {
            left.push_back({c, b});
        }
    }
    return left;
}

Search search(const Config& cfg, int ranks, const Machine& machine, EstimateFunction* estimate,
              const std::function<bool()>& stops) {
    Found found;
    std::vector<Config> all = candidates_of(cfg, ranks, machine);
    if (all.empty()) return {};
    const auto look = [&] {
        examine(bounded(all, ranks, machine, estimate, found), ranks, machine, estimate, stops, found);
    };
    look();
    // Offload costs time: for what does not fit without.
    all = std::exchange(found.unfit, {});
    std::erase_if(all, [](const Config& c) { return c.memory.offload != Offload::None; });
    for (Config& c : all) c.memory.offload = Offload::Optimizer;
    if (!all.empty()) look();
    std::sort(found.fitting.begin(), found.fitting.end(), faster);
    Search s = std::move(found.search);
    const size_t shown = std::min(Search::kShown, found.fitting.size());
    s.best.assign(found.fitting.begin(), found.fitting.begin() + ptrdiff_t(shown));
    for (size_t i = shown; i < found.fitting.size(); i++) count_reason(s, found.fitting[i]);
    return s;
}

Settings settings_of(const Estimate& e) {
    const ParallelConfig& p = e.cfg.parallel;
    return {{"parallel.ranks", std::to_string(e.ranks)},
            {"parallel.tp", std::to_string(p.tp)},
            {"parallel.pp", std::to_string(p.pp)},
            {"parallel.zero", std::to_string(p.zero)},
            {"parallel.zero_group", std::to_string(p.zero_group)},
            {"parallel.schedule", p.schedule.text()},
            {"parallel.virtual_stages", std::to_string(p.virtual_stages)},
            {"train.micro_batch", std::to_string(e.cfg.train.micro_batch)},
            {"memory.recompute", e.cfg.memory.recompute.text()},
            {"memory.offload", e.cfg.memory.offload.text()}};
}

std::string options_of(const Estimate& e) {
    std::string text;
    for (const auto& [key, value] : settings_of(e))
        text += fmt::format("{}--{}={}", text.empty() ? "" : " ", key, value);
    return text;
}

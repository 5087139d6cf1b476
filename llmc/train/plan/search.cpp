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

#include "llmc/base/config/sharding.h"
#include "llmc/base/context.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/host/start_thread.h"

inline namespace plans {

// ---------------------------------------------------------------------------------------------------------
// bounds

// A block on one rank of tp, by the difference of plans with two blocks and with one.
struct BlockCost {
    double weights, gradients, optimizer, activations;  // bytes; activations: of a micro-batch
    double seconds;                                     // of a micro-batch, tp's collectives included
    double waits;                                       // of these, for tp's collectives
};

static BlockCost block_cost(const Config& of, const Machine& machine, const Estimator& estimate) {
    Config cfg = of;
    cfg.parallel = {};
    cfg.parallel.tp = of.parallel.tp;
    cfg.memory.offload = std::min<Offload>(of.memory.offload, Offload::Optimizer);     // a step of 2 waits
    // the cheapest attention of any layer; 0 is the whole context
    const auto narrower = [](int a, int b) { return a && (!b || a < b); };
    cfg.model.window = {*std::min_element(cfg.model.window.begin(), cfg.model.window.end(), narrower)};
    const auto planned = [&](int layers, int micros) {
        cfg.model.layers = layers;
        cfg.train.batch_tokens = int64_t(micros) * cfg.train.micro_batch * cfg.model.context;
        return estimate(cfg, cfg.parallel.tp, machine);
    };
    const Estimate one2 = planned(1, 2), one3 = planned(1, 3), two2 = planned(2, 2), two3 = planned(2, 3);
    const auto bytes = [&](size_t BytesByPurpose::*p) {
        return double(two2.memory.*p) - double(one2.memory.*p);
    };
    // what one more micro-batch costs in a model of one more block
    const auto grown = [&](auto&& of) { return of(two3) - of(two2) - (of(one3) - of(one2)); };
    return {.weights = bytes(&BytesByPurpose::weights),
            .gradients = bytes(&BytesByPurpose::gradients),
            .optimizer = bytes(&BytesByPurpose::optimizer),
            .activations = bytes(&BytesByPurpose::activations),
            .seconds = grown([](const Estimate& e) { return e.step.seconds; }),
            .waits = grown([](const Estimate& e) { return e.step.by_kind.exposed; })};
}

// The largest loss of time of a plan, against the fastest plan or against the fewest ops.
enum class Loss { Ops, Links, Bubble };

static Loss largest_loss(double ops, double links, double bubble) {
    if (bubble >= links && bubble >= ops) return Loss::Bubble;
    return links >= ops ? Loss::Links : Loss::Ops;
}

struct Bounds {
    double bytes, seconds;  // at least
    Loss loss;
};

static Bounds bounds_of(const Config& c, int ranks, const BlockCost& block, double fewest_ops) {
    const ParallelConfig& p = c.parallel;
    const MeshShape mesh = mesh_shape(p, ranks);
    const int shards = mesh.shard;
    const bool on_host = offloads_weights(c.memory.offload);
    const Sharding cut = sharding_of(p.zero, shards);
    const double blocks = double(c.model.layers / p.pp);
    const double micros = double(micros_of_step(c, mesh.dp, c.train.micro_batch));
    const auto kept = [&](double bytes, bool sharded) { return sharded ? bytes / shards : bytes; };
    const double optimizer = c.memory.offload == Offload::None ? kept(block.optimizer, cut.state) : 0;
    const double here = kept(block.weights, cut.weights) + kept(block.gradients, cut.grads);
    const double state = on_host ? 0 : here + optimizer;
    const double alive = std::min<double>(p.pp, micros) * block.activations;
    const double runs = micros * c.model.layers / p.pp;  // of a block
    const double ops = runs * block.seconds, links = runs * block.waits;
    // zb: F + B - W, and at least B, of F + B + W: a third where the three are equal, here less
    const double idle = p.schedule == PipelineSchedule::ZeroBubble ? ops / 4 : ops;
    const double bubble = idle * (p.pp - 1) / (p.virtual_stages * micros);
    return {.bytes = blocks * (state + alive), .seconds = ops + bubble,
            .loss = largest_loss(ops - links - fewest_ops, links, bubble)};
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

static void count(Search& s, Loss loss) {
    switch (loss) {
        case Loss::Ops: s.by_ops++; break;
        case Loss::Links: s.by_links++; break;
        case Loss::Bubble: s.by_bubble++; break;
    }
}

static Loss loss_of(const Estimate& e, const Estimate& best) {
    const double bubble = e.step.bubble - best.step.bubble,
                 links = e.step.by_kind.exposed - best.step.by_kind.exposed;
    return largest_loss(e.step.seconds - best.step.seconds - bubble - links, links, bubble);
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

static void examine(std::vector<Candidate> all, int ranks, const Machine& machine, const Estimator& estimate,
                    const std::function<bool()>& stops, Found& found) {
    std::sort(all.begin(), all.end(),
              [](const Candidate& a, const Candidate& b) { return a.bounds.seconds < b.bounds.seconds; });
    std::vector<char> slower(all.size());
    for_each_of(all.size(), [&](size_t i) {
        slower[i] = found.is_slower(all[i].bounds.seconds);
        if (!slower[i] && !stops()) found.add(estimate(all[i].cfg, ranks, machine));
    });
    for (size_t i = 0; i < all.size(); i++)
        if (slower[i]) count(found.search, all[i].bounds.loss);
}

namespace {
// What a block's cost depends on.
struct BlockKey {
    int tp;
    Recompute recompute;
    int micro_batch;

    explicit BlockKey(const Config& c)
        : tp(c.parallel.tp), recompute(c.memory.recompute), micro_batch(c.train.micro_batch) {}
    auto operator<=>(const BlockKey&) const = default;
};
using BlockCosts = std::map<BlockKey, BlockCost>;
}  // namespace

static BlockCosts block_costs(const std::vector<Config>& all, const Machine& machine,
                              const Estimator& estimate) {
    std::map<BlockKey, const Config*> distinct;
    for (const Config& c : all) distinct.try_emplace(BlockKey(c), &c);
    const std::vector<std::pair<BlockKey, const Config*>> blocks(distinct.begin(), distinct.end());
    std::vector<BlockCost> costs(blocks.size());
    for_each_of(blocks.size(),
                [&](size_t i) { costs[i] = block_cost(*blocks[i].second, machine, estimate); });
    BlockCosts known;
    for (size_t i = 0; i < blocks.size(); i++) known[blocks[i].first] = costs[i];
    return known;
}

// The candidates whose least memory (bounds_of) fits the machine's; `found` counts the others.
static std::vector<Candidate> bounded(const std::vector<Config>& all, int ranks, const Machine& machine,
                                      const Estimator& estimate, Found& found) {
    const BlockCosts costs = block_costs(all, machine, estimate);
    std::vector<Candidate> left;
    double fewest = INFINITY;  // seconds of a rank's ops without waits, on the mesh with the fewest
    for (const Config& c : all) {
        const BlockCost& block = costs.at(BlockKey(c));
        const double sequences = double(c.train.batch_tokens / c.model.context) * c.parallel.tp / ranks;
        const double ops = block.seconds - block.waits;
        fewest = std::min(fewest, sequences / c.train.micro_batch * c.model.layers * ops);
    }
    for (const Config& c : all) {
        const Bounds b = bounds_of(c, ranks, costs.at(BlockKey(c)), fewest);
        if (b.bytes > 1e9 * machine.memory_gb) {
            found.unfit.push_back(c);
            found.search.without_memory++;
        } else {
            left.push_back({c, b});
        }
    }
    return left;
}

Search search(const Config& cfg, int ranks, const Machine& machine, const Estimator& estimate,
              const std::function<bool()>& stops) {
    Found found;
    std::vector<Config> all = candidates_of(cfg, ranks, machine);
    if (all.empty()) return {};
    const auto look = [&] {
        examine(bounded(all, ranks, machine, estimate, found), ranks, machine, estimate, stops, found);
    };
    look();
    // Offload costs time: the search tries offload only on meshes that do not fit otherwise, of weights and
    // activations only where nothing fits.
    for (const Offload offload : {Offload::Optimizer, Offload::Weights, Offload::Activations}) {
        if (offloads_weights(offload) && !found.fitting.empty()) break;
        all = std::exchange(found.unfit, {});
        std::erase_if(all, [&](const Config& c) {
            return c.memory.offload >= offload || (offloads_weights(offload) && c.parallel.pp > 1);
        });
        for (Config& c : all) c.memory.offload = offload;
        if (!all.empty()) look();
    }
    std::sort(found.fitting.begin(), found.fitting.end(), faster);
    Search s = std::move(found.search);
    const size_t shown = std::min(Search::kShown, found.fitting.size());
    s.best.assign(found.fitting.begin(), found.fitting.begin() + ptrdiff_t(shown));
    for (size_t i = shown; i < found.fitting.size(); i++)
        count(s, loss_of(found.fitting[i], found.fitting.front()));
    return s;
}

Search& Search::operator+=(const Search& o) {
    without_memory += o.without_memory;
    by_bubble += o.by_bubble;
    by_links += o.by_links;
    by_ops += o.by_ops;
    beyond_limits += o.beyond_limits;
    return *this;
}

Settings settings_of(const Estimate& e) {
    const ParallelConfig& p = e.cfg.parallel;
    Settings all = {{"parallel.ranks", std::to_string(e.ranks)}};
    for (const AxisRow& a : axis_rows)
        if (a.setting) all.emplace_back(setting_of(a), std::to_string(p.*a.setting));
    all.insert(all.end(), {{"parallel.zero", std::to_string(p.zero)},
                           {"parallel.zero_group", std::to_string(p.zero_group)},
                           {"parallel.schedule", p.schedule.text()},
                           {"parallel.virtual_stages", std::to_string(p.virtual_stages)},
                           {"train.micro_batch", std::to_string(e.cfg.train.micro_batch)},
                           {"memory.recompute", e.cfg.memory.recompute.text()},
                           {"memory.offload", e.cfg.memory.offload.text()}});
    return all;
}

std::string options_of(const Estimate& e) {
    std::string text;
    for (const auto& [key, value] : settings_of(e))
        text += fmt::format("{}--{}={}", text.empty() ? "" : " ", key, value);
    return text;
}

}  // namespace plans

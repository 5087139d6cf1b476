#include "llmc/train/price/prices.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "llmc/comm/group.h"
#include "llmc/ops/gpu_rows.h"

inline namespace price {

// A tile of a product's result, and its share of the rate of the largest tile: smaller tiles read more per
// FLOP.
struct Tile {
    int m, n;
    double rate;
};
static constexpr Tile kTiles[] = {
    {256, 128, 1}, {128, 256, 1}, {128, 128, 0.95}, {128, 64, 0.8}, {64, 64, 0.6}};
static constexpr int kSplits[] = {1, 2, 4, 8};  // of K over multiprocessors
static constexpr double kPrologue = 128;        // steps of K to fill the multiprocessor's pipeline

// rate: FLOP/s of all multiprocessors, as if tiles were read at once.
static double tiled_seconds(double batch, double m, double n, double k, double rate, int units) {
    double best = INFINITY;
    for (const Tile& tile : kTiles)
        for (const int split : kSplits) {
            const double tiles = batch * std::ceil(m / tile.m) * std::ceil(n / tile.n) * split;
            const double depth = std::ceil(k / split) + kPrologue;
            const double seconds = 2.0 * tile.m * tile.n * depth / (rate * tile.rate / units);
            best = std::min(best, std::ceil(tiles / units) * seconds);
        }
    return best;
}

// at() between the two neighbours of `side`, by its logarithm; beyond them that of the end.
template <class At>
static double between(const std::vector<ReachedShare>& shares, double side, At at) {
    size_t next = 0;
    while (next < shares.size() && shares[next].side < side) next++;
    if (next == 0) return at(shares.front());
    if (next == shares.size()) return at(shares.back());
    const ReachedShare &below = shares[next - 1], &above = shares[next];
    const double weight = std::log(side / below.side) / std::log(above.side / below.side);
    return (1 - weight) * at(below) + weight * at(above);
}

// Seconds of a product over those of its tiles at the peak rate. Where a file states what square products of
// some sizes reach, those take just that; between two sizes by the logarithm of the side, cbrt(m n k).
static double slower_than_tiles(const Prices& p, double side) {
    const Machine& on = p.machine;
    const std::vector<ReachedShare>& shares = p.bf16 ? on.reached_by.bf16 : on.reached_by.fp32;
    if (shares.empty()) return 1 / on.reached;
    const auto at = [&](const ReachedShare& r) {
        const double ideal = 2 * r.side * r.side * r.side;
        return 1 / r.share * (r.side > 0 ? ideal / tiled_seconds(1, r.side, r.side, r.side, 1, on.units) : 1);
    };
    return between(shares, side, at);
}

static double product_seconds(const Prices& p, double batch, double m, double n, double k, bool fp8) {
    const double stated = fp8 ? p.machine.fp8_tflops : p.peak_tflops();
    const double peak = 1e12 * stated, slower = slower_than_tiles(p, std::cbrt(m * n * k));
    return tiled_seconds(batch, m, n, k, peak / slower, p.machine.units);
}

static double attention_peak(const Prices& p, int head_channels) {
    const bool fast = has_tensor_core_attention(head_channels) || p.machine.any_size;
    return 1e12 * (fast ? p.peak_tflops() : p.machine.fp32_tflops);
}

// Between two contexts by their logarithm; of the heads that a file has, the nearest.
static double attention_share(const AttentionShares& of, const AttentionShape& a) {
    if (of.by_head.empty()) return of.any;
    const auto apart = [&](const AttentionShares::Head& h) {
        return std::abs(std::log(h.channels / double(a.D)));
    };
    const std::vector<ReachedShare>& shares = std::ranges::min(of.by_head, {}, apart).shares;
    const double context = a.window ? std::min(a.window, a.Tk) : a.Tk;
    return between(shares, context, [](const ReachedShare& r) { return r.share; });
}

double seconds_of_op(const Prices& p, const Cost& cost) {
    const Machine& on = p.machine;
    const double bytes = double(cost.read + cost.written), launch = 1e-6 * on.launch_us;
    const double moved = bytes / (1e9 * on.copy_gbs);
    switch (cost.kind) {
        case Kind::Product: {
            // products with fewer FLOPs than their sides say cost their FLOPs
            const ProductShape& of = cost.product;
            const double m = of.m, n = of.n, k = of.k;
            const double batch = std::max(1, of.batch), full = 2.0 * batch * m * n * k;
            const double all = product_seconds(p, batch, m, n, k, of.fp8);
            const double behind = double(cost.passes) / (1e9 * on.copy_gbs);
            return std::max(full > 0 ? all * cost.flops / full : 0, moved) + behind + launch;
        }
        case Kind::Attention: {
            const AttentionShape& of = cost.attention;
            const double rate = attention_peak(p, of.D) * attention_share(on.attention, of);
            return std::max(cost.flops / rate, moved) + launch;
        }
        case Kind::Copy:
            return (cost.copy.lane ? double(cost.read) / (1e9 * on.host_gbs) : moved) + launch;
        case Kind::Memory:
            return moved + launch;
        case Kind::Wait:
        case Kind::Collective:
            break;
    }
    return 0;
}

static Members priced_members(const Prices& p, const char* axis) {
    return p.groups ? (*p.groups)[index_of_group(axis)] : members_of(p.mesh, axis, p.machine);
}

// Bytes of all slices together: of the result of a gather, of the input of a scatter or a sum.
static double whole_bytes(const Cost& cost, int members) {
    if (cost.verb == kReduceScatter)
        return double(cost.read) * members / std::max(1, members - 1);
    return double(cost.written);
}

namespace {
// What an axis runs over. Rates in bytes/s, latencies in seconds.
struct Route {
    int members, nodes;
    double node;     // of a GPU to the others of its node
    double adapter;  // of a GPU to other nodes
    double network;  // of all adapters of a node that the axis uses
    double nvls;     // 0: none
    double node_latency, network_latency;
};
}  // namespace

// How many times network_gbs a GPU of the axis has: GPUs share an adapter, and those that send to no other
// node leave theirs to the others. Only a pipeline's messages, and sums over its ends, leave a node by some
// of its stages; over other axes all GPUs of a node send at once.
static double share_of_adapters(const Prices& p, std::string_view axis) {
    const Machine& on = p.machine;
    if (on.rails == 0 || group_rows[index_of_group(axis)].over != axis_bit(kPp)) return 1;
    const int each = (on.gpus_per_node + on.rails - 1) / on.rails;      // GPUs of an adapter
    const int stages = priced_members(p, "pp").inside;             // of a node
    const int sending = std::max(1, on.gpus_per_node / stages);         // neighbours
    return double(each) / std::min(each, sending);
}

// Rings follow the network's layout: a ring crosses the border of a pod once for each adapter that it uses.
// in_pod / inside GPUs share such a crossing, at 1 / oversubscription of their rate.
static Route route_of(const Prices& p, const char* axis) {
    const Machine& on = p.machine;
    const auto [n, inside, nodes, in_pod] = priced_members(p, axis);
    const double reached = 1e9 * on.links, node = reached * on.node_gbs;
    const double crossing = in_pod == n ? 1 : std::min(1.0, double(in_pod) / inside / on.oversubscription);
    const double own = reached * on.network_gbs * share_of_adapters(p, axis);
    const double adapter = std::min(node, own * crossing);
    return {.members = n,
            .nodes = nodes,
            .node = node,
            .adapter = adapter,
            .network = std::min(node, adapter * inside),
            .nvls = 1e9 * on.nvls * on.node_gbs,
            .node_latency = 1e-6 * on.node_us,
            .network_latency = 1e-6 * on.network_us};
}

// A ring has a hop per member, and pipelines the hops inside a node.
static double ring_latency(const Route& r) {
    return double(r.nodes > 1 ? r.nodes : 0) * r.network_latency +
           double(r.members - r.nodes) * r.node_latency / 4;
}

double seconds_of_message(const Prices& p, const Cost& cost, bool near) {
    const Route r = route_of(p, cost.axis);
    const double bytes = double(std::max(cost.read, cost.written));
    return bytes / (near ? r.node : r.adapter) + (near ? r.node_latency : r.network_latency);
}

// Each member's messages to other nodes go through its own adapter.
static double all_to_all_seconds(const Route& r, double bytes) {
    const double inside = double(r.members) / r.nodes;
    const double far = (r.members - inside) / r.members, near = (inside - 1) / r.members;
    return std::max(bytes * far / r.adapter, bytes * near / r.node) + ring_latency(r);
}

// Sums in rank order, as comm/transport/nccl_verbs.cpp computes them. Another program's are NCCL's own.
static bool sums_in_order(const Prices& p, const Cost& cost) {
    const bool of_gradients = group_rows[index_of_group(cost.axis)].over == kGradientAxes;
    const bool native = p.machine.any_size > 0 || (of_gradients && p.native);
    return cost.verb == kReduceScatter && !native;
}

// Half of a sum, one after the other: between nodes, each GPU with those at its place in other nodes, by all
// adapters at once; then inside each node.
static double by_nodes_seconds(const Route& r, double bytes) {
    const double inside = double(r.members) / r.nodes;
    if (r.nodes == 1 || inside <= 1) return INFINITY;
    return bytes * (r.nodes - 1) / r.nodes / r.network + r.nodes * r.network_latency +
           bytes * (inside - 1) / inside / r.node + inside * r.node_latency / 4;
}

// The switch adds what a node's GPUs send; between nodes sums travel as in a tree.
static double nvls_seconds(const Route& r, double bytes) {
    if (r.nvls == 0) return INFINITY;
    const double hops = std::ceil(std::log2(double(r.nodes)));
    const double between = 2 * bytes * (r.nodes - 1) / r.nodes / r.network;
    return std::max(bytes / r.nvls, between) + 2 * (r.node_latency + hops * r.network_latency);
}

// NCCL has trees for sums alone: it gathers, scatters and broadcasts by a ring.
double seconds_of_collective(const Prices& p, const Cost& cost) {
    const Route r = route_of(p, cost.axis);
    const Verb verb = cost.verb;
    if (verb == kSend || verb == kRecv) return seconds_of_message(p, cost, r.nodes == 1);
    if (r.members == 1) return 0;
    if (verb == kAllToAll) return all_to_all_seconds(r, double(std::max(cost.read, cost.written)));
    const int n = r.members;
    const double bytes = whole_bytes(cost, n), share = double(n - 1) / n;
    if (sums_in_order(p, cost)) return all_to_all_seconds(r, bytes);
    const double rate = r.nodes > 1 ? r.network : r.node;
    const double hop = r.nodes > 1 ? r.network_latency : r.node_latency;
    const double steps = std::ceil(std::log2(double(n)));
    if (verb == kBarrier) return steps * hop;
    const double ring = share * bytes / rate + ring_latency(r);
    if (verb != kAllReduce) return ring;
    // there and back; a tree has log2(n) hops, and reaches 1 / 1.2 of the ring's rate
    const double tree = bytes / rate * 1.2 + steps * hop;
    return std::min(2 * std::min({ring, tree, by_nodes_seconds(r, bytes)}), nvls_seconds(r, bytes));
}

}  // namespace price

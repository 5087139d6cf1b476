#include "llmc/train/plan/prices.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

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

// rate: FLOP/s of all multiprocessors.
static double product_seconds(double m, double n, double k, double rate, int units) {
    double best = INFINITY;
    for (const Tile& tile : kTiles)
        for (const int split : kSplits) {
            const double tiles = std::ceil(m / tile.m) * std::ceil(n / tile.n) * split;
            const double depth = std::ceil(k / split) + kPrologue;
            const double seconds = 2.0 * tile.m * tile.n * depth / (rate * tile.rate / units);
            best = std::min(best, std::ceil(tiles / units) * seconds);
        }
    return best;
}

double seconds_of_op(const Prices& p, const Cost& cost) {
    const Machine& on = p.machine;
    const double bytes = double(cost.read + cost.written), launch = 1e-6 * on.launch_us;
    const double moved = bytes / (1e9 * on.copy_gbs);
    const double peak = 1e12 * p.peak_tflops();
    switch (cost.kind) {
        case Kind::Product: {
            // a batch of products, or one with fewer FLOPs than its sides say, costs its FLOPs
            const double full = 2.0 * cost.dims[0] * cost.dims[1] * cost.dims[2];
            const double one =
                product_seconds(cost.dims[0], cost.dims[1], cost.dims[2], peak * on.reached, on.units);
            return std::max(full > 0 ? one * cost.flops / full : 0, moved) + launch;
        }
        case Kind::Attention:
            return std::max(cost.flops / (peak * on.attention), moved) + launch;
        case Kind::Copy:
            return double(cost.read) / (1e9 * on.host_gbs) + launch;
        case Kind::Memory:
            return moved + launch;
        case Kind::Wait:
        case Kind::Collective:
            break;
    }
    return 0;
}

Members members_of(const MeshShape& mesh, const char* name, int per_node) {
    const std::string_view axis = name;
    const int tp = mesh.tp, pp = tp * mesh.cp, dp = pp * mesh.pp, all = dp * mesh.dp;
    Members found = {1, 1};
    int stride = 1;  // ranks from a member to the next
    if (axis == "tp")
        found.all = mesh.tp;
    else if (axis == "cp")
        found.all = mesh.cp, stride = tp;
    else if (axis == "pp")
        found.all = mesh.pp, stride = pp;
    else if (axis == "tied")
        found.all = 2, stride = pp * std::max(1, mesh.pp - 1);
    else if (axis == "shard")
        found.all = mesh.shard, stride = dp;
    else if (axis == "replica")
        found.all = mesh.dp * mesh.cp / mesh.shard, stride = dp * mesh.shard / mesh.cp;
    else
        found.all = all;  // world
    // of the group whose parts, cut by borders between nodes, are smallest
    const bool one_node = dp * mesh.dp <= per_node;
    found.inside = one_node ? found.all : std::gcd(std::max(1, per_node / std::max(1, stride)), found.all);
    return found;
}

// Bytes of all slices together: of the result of a gather, of the input of a scatter or a sum.
static double whole_bytes(const Cost& cost, int members) {
    if (std::string_view(cost.name) == "reduce_scatter")
        return double(cost.read) * members / std::max(1, members - 1);
    return double(cost.written);
}

double seconds_of_collective(const Prices& p, const Cost& cost) {
    const Machine& on = p.machine;
    const auto [n, inside] = members_of(p.mesh, cost.axis, on.gpus_per_node);
    const std::string_view verb = cost.name;
    const int nodes = (n + inside - 1) / inside;
    const double reached = 1e9 * on.links, us = 1e-6;
    const double node = reached * on.node_gbs, adapter = std::min(node, reached * on.network_gbs);
    const double network = std::min(node, adapter * inside);
    const double rate = nodes > 1 ? network : node;
    if (verb == "send" || verb == "recv") {
        const bool near = inside == n;          // else a link of the slowest stage crosses a border
        return double(std::max(cost.read, cost.written)) / (near ? node : adapter) +
               us * (near ? on.node_us : on.network_us);
    }
    if (n == 1) return 0;
    // A ring has a hop per member, and pipelines the hops inside a node. A tree has log2(n) hops, and reaches
    // 1 / 1.2 of the ring's rate.
    const double ring_hops =
        us * (double(nodes > 1 ? nodes : 0) * on.network_us + double(n - nodes) * on.node_us / 4);
    if (verb == "all_to_all") {         // each member's messages to other nodes go through its own adapter
        const double most = double(std::max(cost.read, cost.written));
        const double far = double(n - inside) / n, near = double(inside - 1) / n;
        return std::max(most * far / adapter, most * near / node) + ring_hops;
    }
    const double bytes = whole_bytes(cost, n), share = double(n - 1) / n;
    const double hop = us * (nodes > 1 ? on.network_us : on.node_us);
    const double steps = std::ceil(std::log2(double(n)));
    if (verb == "barrier") return steps * hop;
    const double passes = verb == "all_reduce" ? 2 : 1;
    const double ring = passes * (share * bytes / rate + ring_hops);
    const double tree = passes * (bytes / rate * 1.2 + steps * hop);
    return std::min(ring, tree);
}

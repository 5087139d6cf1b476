// Prices of collectives over nodes and pods, and of products, by hand.
#include "test/train/price/slow_machine.h"

TEST(links_between_nodes_are_shared_by_the_members_of_a_node) {
    Prices p = slow_machine();
    p.machine.gpus_per_node = 8;
    p.mesh = {.dp = 4, .tp = 4, .shard = 4};  // a node has 2 of the 4 members of shard
    const Members m = members_of(p.mesh, "shard", p.machine);
    EXPECT(m.all == 4 && m.inside == 2, "%d members, %d in a node", m.all, m.inside);
    EXPECT(members_of(p.mesh, "tp", p.machine).inside == 4 &&
           members_of(p.mesh, "world", p.machine).inside == 8, "tp, world");
    const double over = seconds_of_collective(p, gather(1000000000));
    p.machine.gpus_per_node = 16;
    const double within = seconds_of_collective(p, gather(1000000000));
    EXPECT(over > 2 * within, "%g s over nodes, %g s inside one", over, within);
}

// tp = 6 on nodes of 8: ranks 6 to 11 lie on two nodes, two of them on the first. The whole of a small mesh
// is inside; and a pipeline of 12 stages has a link between nodes.
TEST(a_group_may_cross_the_border_of_a_node) {
    Prices p = slow_machine();
    p.mesh = {.dp = 4, .tp = 6, .shard = 4};
    const auto inside = [&](int gpus_per_node) {
        p.machine.gpus_per_node = gpus_per_node;
        return members_of(p.mesh, "tp", p.machine).inside;
    };
    EXPECT(inside(8) == 2 && inside(6) == 6, "%d and %d", inside(8), inside(6));
    p.mesh = {.dp = 1, .tp = 6};
    EXPECT(inside(8) == 6, "one node");
    const Cost send = {
        .name = "send", .kind = Kind::Collective, .read = 1000000000, .axis = "pp", .verb = kSend};
    p.mesh = {.dp = 1, .pp = 12};
    p.machine.gpus_per_node = 8;
    const double over = seconds_of_collective(p, send);
    p.machine.gpus_per_node = 12;
    EXPECT(over > 2 * seconds_of_collective(p, send), "%g s over the border", over);
}

// A rank that receives 1 GB from 4 ranks, itself included: at 0.5 GB/s inside a node, at 0.1 GB/s between
// nodes.
TEST(an_all_to_all_takes_the_slower_of_both_links) {
    Prices p = slow_machine();
    p.mesh = {.dp = 4, .tp = 4, .shard = 4};
    const Cost cost = {.name = "all_to_all", .kind = Kind::Collective, .read = 750000000,
                       .written = 1000000000, .axis = "shard", .verb = kAllToAll};
    EXPECT_NEAR(seconds_of_collective(p, cost), 5, 1e-9);
    p.machine.gpus_per_node = 16;
    EXPECT_NEAR(seconds_of_collective(p, cost), 1.5, 1e-9);
    Cost await = await_gather();
    await.name = cost.name, await.verb = cost.verb;
    const SecondsByKind beside = seconds_of_action({cost, op(1000000000), await});
    EXPECT_NEAR(beside.hidden, 1, 1e-9);
    EXPECT_NEAR(beside.exposed, 0, 1e-9);
}

// NVSwitch adds what 8 GPUs send: 1 GB passes each link once, at nvls x 0.5 GB/s; a ring passes it 2 x 7 / 8
// times.
TEST(a_switch_that_sums_beats_the_ring) {
    Prices p = slow_machine();
    p.mesh = {.dp = 8, .shard = 8};
    Cost sum = gather(1000000000);
    sum.name = "all_reduce", sum.verb = kAllReduce;
    EXPECT_NEAR(seconds_of_collective(p, sum), 2 * 7 / 8.0 / 0.5, 1e-9);
    p.machine.nvls = 0.8;
    EXPECT_NEAR(seconds_of_collective(p, sum), 1 / 0.4, 1e-9);
    p.machine.gpus_per_node = 4;                        // two nodes: half of the sum is the other node's
    EXPECT_NEAR(seconds_of_collective(p, sum), std::min(2 * 7 / 8.0 / 0.4, 2 / 2.0 / 0.4), 1e-9);
    EXPECT_NEAR(seconds_of_collective(p, gather(1000000000)), 7 / 8.0 / 0.4, 1e-9);
}

// 16 GPUs in nodes of 8, then of one, with hops of 1 ms over the network and of 4 ms inside a node. A ring
// has a hop per member, pipelined inside a node: a quarter. A tree has log2(16) hops, at 1 / 1.2 of the rate.
// Sums alone have a tree.
TEST(few_bytes_of_a_sum_take_a_tree_and_many_a_ring) {
    Prices p = slow_machine();
    p.mesh = {.dp = 16, .shard = 16};
    p.machine.network_us = 1000, p.machine.node_us = 4000;
    Cost barrier = {.name = "barrier", .kind = Kind::Collective, .axis = "shard", .verb = kBarrier};
    EXPECT_NEAR(seconds_of_collective(p, barrier), 4 * 0.001, 1e-12);
    const double hops = 2 * 0.001 + 14 * 0.004 / 4;     // the ring's
    EXPECT_NEAR(seconds_of_collective(p, gather(1000000000)), 15 / 16.0 / 0.5 + hops, 1e-9);
    p.machine.gpus_per_node = 1;
    Cost few = gather(1000000), many = gather(1000000000);
    const double ring = 15 / 16.0 * 0.01 + 16 * 0.001, tree = 1.2 * 0.01 + 4 * 0.001;
    EXPECT_NEAR(seconds_of_collective(p, few), ring, 1e-12);
    const Cost scatter = {.name = "reduce_scatter", .kind = Kind::Collective, .read = 937500, .axis = "shard",
                          .verb = kReduceScatter};
    EXPECT_NEAR(seconds_of_collective(p, scatter), ring, 1e-12);
    EXPECT_NEAR(seconds_of_collective(p, many), 15 / 16.0 / 0.1 + 16 * 0.001, 1e-9);
    few.verb = many.verb = kAllReduce;                  // to the root, and back
    EXPECT_NEAR(seconds_of_collective(p, few), 2 * tree, 1e-12);
    EXPECT_NEAR(seconds_of_collective(p, many), 2 * (15 / 16.0 / 0.1 + 16 * 0.001), 1e-9);
    p.mesh = {.dp = 8, .shard = 8}, p.machine.gpus_per_node = 8;
    EXPECT_NEAR(seconds_of_collective(p, barrier), 3 * 0.004, 1e-12);
}

// 16 GPUs in two nodes sum 1 GB. Between nodes: half of it, by 8 adapters of 0.1 GB/s. Then 7 / 8 of it at
// 8 GB/s, and both again. NCCL gathers and scatters by a ring alone, which passes 15 / 16 of it at 0.8 GB/s.
TEST(a_sum_may_go_between_nodes_and_then_inside_them) {
    Prices p = slow_machine();
    p.mesh = {.dp = 16, .shard = 16};
    p.machine.node_gbs = 8;
    const double seconds = 2 * (0.5 / 0.8 + 0.875 / 8), ring = 15 / 16.0 / 0.8;
    Cost sum = gather(1000000000);
    sum.name = "all_reduce", sum.verb = kAllReduce;
    EXPECT_NEAR(seconds_of_collective(p, sum), seconds, 1e-9);
    EXPECT_NEAR(seconds_of_collective(p, gather(1000000000)), ring, 1e-9);
    const Cost scatter = {.name = "reduce_scatter", .kind = Kind::Collective, .read = 937500000,
                          .axis = "shard", .verb = kReduceScatter};
    EXPECT_NEAR(seconds_of_collective(p, scatter), ring, 1e-9);
    p.machine.network_us = 1000, p.machine.node_us = 4000;      // 2 hops, and 8 of a quarter
    EXPECT_NEAR(seconds_of_collective(p, sum), seconds + 2 * (0.002 + 0.008), 1e-9);
    p.machine.network_us = p.machine.node_us = 0;
    p.machine.node_gbs = 1;                                     // no faster than the adapters: a ring
    EXPECT_NEAR(seconds_of_collective(p, sum), 2 * ring, 1e-9);
    p.machine.gpus_per_node = 1;
    EXPECT_NEAR(seconds_of_collective(p, sum), 2 * 15 / 16.0 / 0.1, 1e-9);
}

// 16 GPUs in two nodes scatter 1 GB. NCCL's own ring passes 15 / 16 of it by 8 adapters of 0.1 GB/s. In rank
// order each adapter has the half of it that goes to the other node; inside one node both pass as much.
TEST(sums_in_rank_order_go_straight_to_each_rank) {
    Prices p = slow_machine();
    p.mesh = {.dp = 16, .shard = 16};
    p.machine.node_gbs = 8;
    Cost scatter = {.name = "reduce_scatter", .kind = Kind::Collective, .read = 937500000, .axis = "shard",
                    .verb = kReduceScatter};
    EXPECT_NEAR(seconds_of_collective(p, scatter), 15 / 16.0 / 0.8, 1e-9);
    p.native = false;
    EXPECT_NEAR(seconds_of_collective(p, scatter), 0.5 / 0.1, 1e-9);
    EXPECT_NEAR(seconds_of_collective(p, gather(1000000000)), 15 / 16.0 / 0.8, 1e-9);
    p.machine.gpus_per_node = 16;
    EXPECT_NEAR(seconds_of_collective(p, scatter), 15 / 16.0 / 8, 1e-9);
    p.native = true;
    EXPECT_NEAR(seconds_of_collective(p, scatter), 15 / 16.0 / 8, 1e-9);
    p.mesh = {.tp = 16}, p.machine.gpus_per_node = 8, scatter.axis = "tp";      // always in order
    EXPECT_NEAR(seconds_of_collective(p, scatter), 0.5 / 0.1, 1e-9);
    p.machine.any_size = 1;                             // another program's
    EXPECT_NEAR(seconds_of_collective(p, scatter), 15 / 16.0 / 0.8, 1e-9);
}

// tp = 4 on nodes of 8: two stages share a node. 12 stages: those of the second copy begin in the middle of a
// node.
TEST(neighbouring_stages_may_share_a_node) {
    Prices p = slow_machine();
    const auto near = [&](int stage, int other, int copy = 0) {
        return in_one_node(p.mesh, copy, stage, other, p.machine);
    };
    p.mesh = {.pp = 8, .tp = 4};
    EXPECT(near(0, 1) && !near(1, 2) && near(2, 3) && !near(7, 0), "tp 4");
    p.mesh = {.dp = 2, .pp = 12};
    EXPECT(near(3, 4) && !near(7, 8) && near(8, 11), "the first copy");
    EXPECT(near(0, 1, 1) && !near(3, 4, 1) && near(7, 8, 1), "the second copy");
    p.mesh = {.pp = 8};
    EXPECT(near(0, 7), "a node");
    p.mesh = {.dp = 2, .pp = 8};
    const Cost send = {
        .name = "send", .kind = Kind::Collective, .read = 1000000000, .axis = "pp", .verb = kSend};
    EXPECT_NEAR(seconds_of_message(p, send, true), 2, 1e-9);
    EXPECT_NEAR(seconds_of_message(p, send, false), 10, 1e-9);
}

// Pods of 32 GPUs, nodes of 8: a ring of 64 GPUs crosses the border by 8 adapters, which 32 GPUs share.
TEST(links_between_pods_are_oversubscribed) {
    Prices p = slow_machine();
    p.mesh = {.dp = 64, .shard = 64};
    p.machine.network_gbs = 0.01, p.machine.node_gbs = 0.1;
    const double whole = seconds_of_collective(p, gather(1000000000));
    EXPECT_NEAR(whole, 63 / 64.0 / 0.08, 1e-9);
    p.machine.pod_gpus = 32, p.machine.oversubscription = 4;
    EXPECT(members_of(p.mesh, "shard", p.machine).in_pod == 32, "in a pod");
    EXPECT_NEAR(seconds_of_collective(p, gather(1000000000)), whole, 1e-9);
    p.machine.oversubscription = 8;
    EXPECT_NEAR(seconds_of_collective(p, gather(1000000000)), 2 * whole, 1e-9);
    p.machine.pod_gpus = 64;
    EXPECT_NEAR(seconds_of_collective(p, gather(1000000000)), whole, 1e-9);
}

// Small products fill the multiprocessors together, with one launch.
TEST(a_batch_of_products_costs_less_than_each) {
    Prices p = slow_machine();
    p.machine.units = 132, p.machine.copy_gbs = 1e6;
    const auto seconds = [&](int batch, int side) {
        return seconds_of_op(p, {.name = "product", .kind = Kind::Product,
                                 .product = {.m = side, .n = side, .k = side, .batch = batch > 1 ? batch : 0},
                                 .flops = 2.0 * batch * side * side * side});
    };
    EXPECT(seconds(14, 768) < 0.5 * 14 * seconds(1, 768), "%g, one %g", seconds(14, 768), seconds(1, 768));
    EXPECT(seconds(14, 768) > 2.0 * 14 * 768 * 768 * 768 / 1e12, "%g", seconds(14, 768));
    EXPECT(seconds(2, 8192) < 2 * seconds(1, 8192) && seconds(2, 8192) > 1.9 * seconds(1, 8192));
}

// A wave too many of tiles costs a whole wave; more FLOPs never cost less.
TEST(products_take_whole_waves) {
    Prices p = slow_machine();
    p.machine.units = 132, p.machine.copy_gbs = 1e6;
    const auto seconds = [&](int m, int n, int k) {
        return seconds_of_op(p, {.name = "product", .kind = Kind::Product,
                                 .product = {.m = m, .n = n, .k = k}, .flops = 2.0 * m * n * k});
    };
    const double ideal = 2.0 * 8192 * 8192 * 8192 / 1e12;
    EXPECT(seconds(8192, 8192, 8192) > ideal && seconds(8192, 8192, 8192) < 1.15 * ideal, "%g of %g",
           seconds(8192, 8192, 8192), ideal);
    const double small = seconds(256, 256, 256) / (2.0 * 256 * 256 * 256 / 1e12);
    EXPECT(small > 5, "a small product reaches 1/%g of the rate", small);
    for (int m = 128; m < 4096; m += 128)
        EXPECT(seconds(m + 128, 1024, 1024) >= (1 - 1e-12) * seconds(m, 1024, 1024), "%d rows", m);
}

// Square products of a stated size take what the file says; other dtypes and machines are as before.
TEST(products_reach_what_is_stated_by_dtype_and_size) {
    Prices p = slow_machine();
    p.machine.units = 132, p.machine.copy_gbs = 1e9, p.machine.reached = 0.5;
    const auto seconds = [&](int m, int n, int k) {
        return seconds_of_op(p, {.name = "product", .kind = Kind::Product,
                                 .product = {.m = m, .n = n, .k = k}, .flops = 2.0 * m * n * k});
    };
    const auto cube = [](double side) { return 2 * side * side * side / 1e12; };
    const double half = seconds(4096, 4096, 4096);
    p.machine.reached_by = {.bf16 = {{0, 0.25}}, .fp32 = {}};
    EXPECT_NEAR(seconds(4096, 4096, 4096), 2 * half, 1e-9 * half);
    p.bf16 = false;
    EXPECT_NEAR(seconds(4096, 4096, 4096), half, 0);
    p.machine.reached_by.fp32 = {{1000, 0.3}, {4096, 0.8}};
    EXPECT_NEAR(seconds(1000, 1000, 1000), cube(1000) / 0.3, 1e-9);
    EXPECT_NEAR(seconds(4096, 4096, 4096), cube(4096) / 0.8, 1e-9);
    const double between = cube(2048) / seconds(2048, 2048, 2048);
    EXPECT(between > 0.3 && between < 0.8, "a share of %g", between);
    // beyond the last size the tiles decide: larger products lose less of a wave
    const double beyond = cube(16384) / seconds(16384, 16384, 16384);
    EXPECT(beyond > 0.79, "a share of %g", beyond);
}

// A pipeline leaves a node by one of its 8 stages: this GPU has the node's only adapter for itself. Over
// other axes all 8 send.
TEST(gpus_of_a_node_share_its_rails) {
    Prices p = slow_machine();
    p.machine.node_gbs = 50;
    p.mesh = {.dp = 2, .pp = 16, .shard = 2};
    const Cost send = {
        .name = "send", .kind = Kind::Collective, .read = 1000000000, .axis = "pp", .verb = kSend};
    const auto seconds = [&](int rails, const Cost& cost) {
        p.machine.rails = rails;
        return seconds_of_collective(p, cost);
    };
    EXPECT_NEAR(seconds(0, send), 10, 1e-9);                // 0.1 GB/s
    EXPECT_NEAR(seconds(8, send), 10, 1e-9);
    EXPECT_NEAR(seconds(2, send), 10 / 4., 1e-9);
    EXPECT_NEAR(seconds(1, send), 10 / 8., 1e-9);
    EXPECT_NEAR(seconds(1, gather(1000000000)), seconds(0, gather(1000000000)), 1e-12);
    p.mesh = {.pp = 8, .tp = 4};                            // 2 stages of 4 neighbours in a node
    EXPECT_NEAR(seconds(2, send), 10, 1e-9);
    EXPECT_NEAR(seconds(1, send), 10 / 2., 1e-9);
}

// Seconds of single ops, computed on paper.
#include "test/train/price/slow_machine.h"

// 1 TFLOP/s of which products reach half and attention a quarter; 2 GB/s; 10 us for a launch.
static Prices paper_machine() {
    Prices p = slow_machine();
    p.machine.reached = 0.5, p.machine.attention = {.any = 0.25};
    p.machine.copy_gbs = 2, p.machine.host_gbs = 0.5;
    p.machine.launch_us = 10;
    return p;
}
static constexpr double kLaunch = 1e-5;

static Cost product(int m, int n, int k) {
    return {.name = "product", .kind = Kind::Product, .product = {.m = m, .n = n, .k = k},
            .flops = 2.0 * m * n * k};
}

// A tile of 256 x 128 takes K and 128 steps more, to fill the pipeline.
TEST(a_product_takes_its_tiles_at_the_reached_rate) {
    Prices p = paper_machine();
    Cost cost = product(256, 128, 896);
    const double seconds = 2.0 * 256 * 128 * (896 + 128) / 0.5e12;
    EXPECT_NEAR(seconds_of_op(p, cost), seconds + kLaunch, 1e-12);
    cost.product.m = 250, cost.flops = 2.0 * 250 * 128 * 896;             // the tile is not full
    EXPECT_NEAR(seconds_of_op(p, cost), seconds + kLaunch, 1e-12);
    cost = product(256, 128, 896), cost.flops /= 2;                     // a triangle, say
    EXPECT_NEAR(seconds_of_op(p, cost), seconds / 2 + kLaunch, 1e-12);
    cost = product(256, 128, 896), cost.product.batch = 3, cost.flops *= 3;
    EXPECT_NEAR(seconds_of_op(p, cost), 3 * seconds + kLaunch, 1e-12);
    p.bf16 = false, p.machine.fp32_tflops = 0.1;
    EXPECT_NEAR(seconds_of_op(p, product(256, 128, 896)), 10 * seconds + kLaunch, 1e-12);
}

TEST(a_product_of_fp8_takes_its_tiles_at_the_rate_of_fp8) {
    Prices p = paper_machine();
    p.machine.fp8_tflops = 3;
    Cost cost = product(256, 128, 896);
    cost.product.fp8 = true;
    EXPECT_NEAR(seconds_of_op(p, cost), 2.0 * 256 * 128 * (896 + 128) / 1.5e12 + kLaunch, 1e-12);
}

// 4 multiprocessors and 256 x 256: a wave of four tiles of 128 x 128, or of two larger ones with K cut in
// two, whose steps count twice: (1,792 + 128) / 0.95 = 2,021 steps against 2 (896 + 128) = 2,048.
TEST(a_product_takes_the_fastest_tiles) {
    Prices p = paper_machine();
    p.machine.units = 4;
    EXPECT_NEAR(seconds_of_op(p, product(256, 256, 1792)),
                2.0 * 128 * 128 * (1792 + 128) / (0.95 * 0.5e12 / 4) + kLaunch, 1e-12);
    // with K = 5,760 it is 6,198 against 6,016
    EXPECT_NEAR(seconds_of_op(p, product(256, 256, 5760)),
                2.0 * 256 * 128 * (2880 + 128) / (0.5e12 / 4) + kLaunch, 1e-12);
}

TEST(bytes_bound_what_computes_little) {
    const Prices p = paper_machine();
    Cost sum = op(600000000);
    sum.written = 400000000;
    EXPECT_NEAR(seconds_of_op(p, sum), 0.5 + kLaunch, 1e-12);
    EXPECT_NEAR(seconds_of_op(p, op(0)), kLaunch, 1e-12);
    Cost thin = product(256, 128, 896);
    thin.read = 1000000000;
    EXPECT_NEAR(seconds_of_op(p, thin), 0.5 + kLaunch, 1e-12);
    Cost attention = {.name = "attention", .kind = Kind::Attention, .attention = {.D = 64}, .flops = 1e9};
    EXPECT_NEAR(seconds_of_op(p, attention), 1e9 / 0.25e12 + kLaunch, 1e-12);
    attention.written = 1000000000;
    EXPECT_NEAR(seconds_of_op(p, attention), 0.5 + kLaunch, 1e-12);
}

// Heads of 72 have no kernels with tensor cores; another program's may.
TEST(attention_without_tensor_cores_takes_the_rate_of_fp32) {
    Prices p = paper_machine();
    p.machine.fp32_tflops = 0.1;
    const auto seconds = [&](int D) {
        return seconds_of_op(p, {.name = "attention", .kind = Kind::Attention, .attention = {.D = D},
                                 .flops = 1e9}) - kLaunch;
    };
    for (const int D : {64, 128, 160}) EXPECT_NEAR(seconds(D), 1e9 / 0.25e12, 1e-12);
    for (const int D : {72, 256}) EXPECT_NEAR(seconds(D), 1e9 / 0.025e12, 1e-12);
    p.machine.any_size = 1;
    EXPECT_NEAR(seconds(72), 1e9 / 0.25e12, 1e-12);
}

// By the nearest head, and by the context or the window, between two by their logarithm.
TEST(attention_takes_the_rate_of_its_head_and_context) {
    Prices p = paper_machine();
    p.machine.attention = {.by_head = {{64, {{1024, 0.1}, {4096, 0.2}}}, {128, {{0, 0.4}}}}};
    const auto share = [&](int D, int T, int window) {
        const Cost cost = {.name = "attention", .kind = Kind::Attention,
                           .attention = {.Tq = T, .Tk = T, .D = D, .window = window}, .flops = 1e9};
        return 1e9 / (seconds_of_op(p, cost) - kLaunch) / 1e12;
    };
    for (const auto& [D, T, window, wanted] :
         {std::tuple{64, 512, 0, 0.1}, {64, 1024, 0, 0.1}, {64, 2048, 0, 0.15}, {64, 4096, 0, 0.2},
          {64, 65536, 0, 0.2}, {64, 4096, 2048, 0.15}, {32, 4096, 0, 0.2}, {80, 1024, 0, 0.1},
          {96, 1024, 0, 0.4}, {160, 1024, 0, 0.4}})
        EXPECT_NEAR(share(D, T, window), wanted, 1e-9);
}

// A copy reads on one side what it writes on the other.
TEST(a_copy_to_the_host_takes_its_link) {
    const Prices p = paper_machine();
    Cost copy = {.name = "start_copy_to_device", .kind = Kind::Copy,
                 .copy = {.lane = CopyLane::ToDevice, .beside = true}, .read = 1000000000,
                 .written = 1000000000};
    EXPECT_NEAR(seconds_of_op(p, copy), 2 + kLaunch, 1e-12);
    copy.copy = {.lane = CopyLane::ToHost};
    EXPECT_NEAR(seconds_of_op(p, copy), 2 + kLaunch, 1e-12);
    copy.copy = {};  // on the device: reads and writes at 2 GB/s
    EXPECT_NEAR(seconds_of_op(p, copy), 1 + kLaunch, 1e-12);
    EXPECT_NEAR(seconds_of_op(p, {.name = "await", .kind = Kind::Wait}), 0, 0);
}

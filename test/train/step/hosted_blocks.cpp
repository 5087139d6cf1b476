// memory.offload = weights, activations: weights and gradients of blocks in the host's memory, and with
// activations their inputs, by the schedule `layers`.
// Not a bit differs from a run whose blocks lie on the device.
#include "test/lattice_run.h"

namespace PRECISION {

static void expect_equal_bits(Point p) {
    const TrainedPoint plain = trained(p);
    for (p.offload = 2; p.offload < 4; p.offload++) {
        const TrainedPoint hosted = trained(p);
        EXPECT(hosted.losses == plain.losses, "%s: other losses", p.text().c_str());
        EXPECT(hosted.norms == plain.norms, "%s: other norms", p.text().c_str());
        EXPECT(hosted.weights == plain.weights, "%s: other weights", p.text().c_str());
    }
}

TEST(blocks_on_the_host_train_to_the_same_bits_on_one_rank) {
    for (const Point& p : {Point{.dp = 1, .tp = 1, .pp = 1},
                           {.dp = 1, .tp = 1, .pp = 1, .recompute = "block", .micro_batch = kRows, .kind = 7,
                            .muon = 1},
                           {.dp = 1, .tp = 1, .pp = 1, .recompute = "block", .micro_batch = 3, .kind = 10,
                            .muon = 2},
                           {.dp = 1, .tp = 1, .pp = 1, .zero = 3, .recompute = "selective", .micro_batch = 4,
                            .overlap = false, .kind = 11}})
        expect_equal_bits(p);
}

TEST(every_kind_of_model_has_the_same_bits_with_blocks_on_the_host) {
    for (size_t kind = 0; kind < std::size(kKinds); kind++)
        expect_equal_bits({.dp = 1, .tp = 1, .pp = 1, .recompute = kind % 2 ? "block" : "none",
                           .micro_batch = kRows / 4, .kind = kind, .documents = kind % 3 == 0});
}

TEST(blocks_on_the_host_train_to_the_same_bits_at_every_stage_of_zero) {
    for (int zero = 0; zero < 4; zero++)
        for (const int micro_batch : {2, kRows / 2})
            expect_equal_bits({.dp = 2, .tp = 1, .pp = 1, .zero = zero, .recompute = "block",
                               .micro_batch = micro_batch, .delay_us = 100});
}

TEST(blocks_on_the_host_train_to_the_same_bits_on_meshes) {
    for (const Point& p : {Point{.dp = 1, .tp = 2, .pp = 1},
                           {.dp = 2, .tp = 2, .pp = 1, .zero = 1, .micro_batch = 3, .kind = 8, .muon = 1},
                           {.dp = 4, .tp = 1, .pp = 1, .zero = 3, .zero_group = 2, .muon = 1},
                           {.dp = 2, .tp = 1, .pp = 1, .zero = 2, .overlap = false, .kind = 5, .muon = 1},
                           {.dp = 1, .tp = 1, .pp = 1, .zero = 3, .recompute = "block", .cp = 2,
                            .documents = true}})
        expect_equal_bits(p);
}

}  // namespace PRECISION

// Seconds of an op, a copy or a collective on a machine, from its cost in a walk.
//
//     product      2 m n k FLOPs in tiles: waves over the multiprocessors, K split where tiles are few
//     attention    FLOPs at the share of the peak rate that attention reaches: FP32's where heads have a size
//                  without tensor cores (ops/gpu_rows.h)
//     other ops    bytes read and written, at the copy rate
//     collective   ring, tree, NVLS, or between nodes and then inside them, whichever is fastest; over nodes
//                  at the rate of a node's adapters, which links between pods may lower
//     scatter      in rank order (parallel.reduce=ordered, reduce_dtype=bf16; always over tp and cp): a slice
//                  straight from each rank to each, so of N ranks with n a node (N - n)/N of all bytes leave
//                  by each adapter, where a ring's pass once by all n together
//     message      of a pipeline stage to its neighbour: by the links of their node where they share it
#pragma once
#include "llmc/ops/walk.h"
#include "llmc/train/price/cluster.h"
#include "llmc/train/price/groups.h"
#include "llmc/train/price/measured_step.h"

inline namespace price {

struct Prices {
    Machine machine;
    bool bf16 = true;  // type of the products' inputs
    bool native = true;  // NCCL itself sums gradients; false: this program, in rank order
    MeshShape mesh = {};
    const MeasuredStep* measured = nullptr;  // of cluster.gpu=auto: prices every op instead of `machine`
    const Groups* groups = nullptr;          // of a rank; null: the slowest group of each axis

    double peak_tflops() const { return bf16 ? machine.bf16_tflops : machine.fp32_tflops; }
};

double seconds_of_op(const Prices& p, const Cost& cost);          // product, attention, other op, or copy
double seconds_of_collective(const Prices& p, const Cost& cost);  // of the axis cost.axis
// near: to a stage in the same node. A message as a collective goes to another node, if its axis has one.
double seconds_of_message(const Prices& p, const Cost& cost, bool near);

}  // namespace price

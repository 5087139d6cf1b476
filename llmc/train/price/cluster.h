// Room train/price: seconds of a step on a machine, measured or described: ops, collectives, stages.
// Called by train/plan and train/explore.
// The room prices the walk of a real step. It knows no list of ops and no shape of the model.
//
// A machine: what its devices and links are worth, from a file of scripts/machines/ and the settings
// cluster.*.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/config/config.h"

inline namespace price {

// The share of the peak rate that a product of (side, side) matrices reaches, or attention over `side`
// tokens. side 0: of any large sizes.
struct ReachedShare {
    double side, share;
};
// By dtype, smallest side first; empty: Machine::reached. In a file: {"bf16": 0.7, "fp32": {"1024": 0.5}}.
struct ReachedBy {
    std::vector<ReachedShare> bf16 = {}, fp32 = {};
};

// Of causal attention, forward and backward together. In a file: 0.2, or by channels of a head and by
// context, {"64": {"1024": 0.18, "2048": 0.24}}; smallest first.
struct AttentionShares {
    struct Head {
        int channels;
        std::vector<ReachedShare> shares;
    };
    double any = 0;             // where by_head is empty
    std::vector<Head> by_head = {};
};

// Rates are of one device. 1 GB = 1e9 bytes.
struct Machine {
    std::string gpu;             // the file's name: "h100"
    std::string about, sources;  // free texts
    double memory_gb = 0;
    double bf16_tflops = 0;  // dense matrix products with FP32 sums, as the maker states
    double fp32_tflops = 0;  // the same of FP32 inputs (TF32 is not used)
    double fp8_tflops = 0;   // the same of FP8 codes; 0: no plans with FP8 products
    double reached = 0;      // share of these rates that large products reach
    ReachedBy reached_by = {};  // the same by dtype and size; empty: unknown
    AttentionShares attention = {};  // share of the peak rate that attention reaches
    double copy_gbs = 0;     // rate of a large copy: bytes read plus bytes written
    double host_gbs = 0;     // rate between a device and its host, each way
    double launch_us = 0;    // time of an op beside its work
    int units = 0;           // multiprocessors, or cores: tiles of a product that run at once
    int gpus_per_node = 0;
    double node_gbs = 0;     // rate of a GPU to other GPUs of its node, each way
    double node_us = 0;      // latency of a message inside a node
    double nvls = 0;         // share of node_gbs that an all-reduce in NVSwitch reaches (NVLS); 0: none
    double network_gbs = 0;  // rate of a GPU to other nodes, each way, while all GPUs of its node send
    double network_us = 0;
    int rails = 0;               // adapters of a node, each for equally many neighbours; 0: one for each GPU
    int pod_gpus = 0;            // GPUs that a fat tree connects at full rate; 0: all
    double oversubscription = 1; // of links between pods: network_gbs of all their GPUs over the links' rate
    double links = 0;             // share of node_gbs and network_gbs that collectives reach
    double watts = 0;             // of a GPU and its share of the node, under load; 0: unknown
    double dollars_per_hour = 0;  // of a GPU, rented; 0: unknown
    // Hours of one GPU between failures that end the job: 419 in 54 days of 16,384 H100 (Llama 3, arXiv
    // 2407.21783, section 3.3.4). restart_seconds and disk_gbs are assumed.
    double failure_hours = 50700;
    double restart_seconds = 600;
    double disk_gbs = 5;
    // Standard deviation of a rank's time of a step, as a share of the step; 0: unknown.
    double spread = 0;
    // 1: plans are of another program, whose kernels take every size.
    int any_size = 0;
    const char* device_word = "GPU";    // "rank" on a CPU: what tables count; no file has it

    template <class F>
    void visit(F&& f) {
        f("gpu", gpu);
        f("about", about);
        f("sources", sources);
        f("memory_gb", memory_gb);
        f("bf16_tflops", bf16_tflops);
        f("fp32_tflops", fp32_tflops);
        f("fp8_tflops", fp8_tflops);
        f("reached", reached);
        f("reached_by", reached_by);
        f("attention", attention);
        f("copy_gbs", copy_gbs);
        f("host_gbs", host_gbs);
        f("launch_us", launch_us);
        f("units", units);
        f("gpus_per_node", gpus_per_node);
        f("node_gbs", node_gbs);
        f("node_us", node_us);
        f("nvls", nvls);
        f("network_gbs", network_gbs);
        f("network_us", network_us);
        f("rails", rails);
        f("pod_gpus", pod_gpus);
        f("oversubscription", oversubscription);
        f("links", links);
        f("watts", watts);
        f("dollars_per_hour", dollars_per_hour);
        f("failure_hours", failure_hours);
        f("restart_seconds", restart_seconds);
        f("disk_gbs", disk_gbs);
        f("spread", spread);
        f("any_size", any_size);
    }
};

// The folder of the table: scripts/machines beside the program, or below the current folder.
std::string machines_folder();
// "a100, a100_40, h100, ...": the names that cluster.gpu takes.
std::string machine_names();

std::vector<Machine> all_machines();

// The machine of cluster.*. Exit code 78: an unknown GPU; a file with an unknown key, a missing key or a
// value that is no positive number. REQUIRES: c.named() and no c.measured().
Machine machine_of(const ClusterConfig& c);
// The same for a plan. Exit code 78 also where the machine lacks the products of run.products.
Machine machine_of(const Config& cfg);
// Watts, price and failures of cluster.*, where they are set.
void take_costs(Machine& m, const ClusterConfig& c);

// text: JSON of the file `name`. The file's keys change a machine of the table: the one that the key "gpu"
// names, else `gpu`. A file of a machine outside the table states every number except watts,
// fp8_tflops, dollars_per_hour, nvls, rails, pod_gpus, reached_by, spread and any_size.
Machine parse_machine(std::string_view text, const std::string& name, const std::string& gpu = "");

}  // namespace price

// Settings of the machine that --plan prices. Training ignores these settings.
#pragma once
#include <string>

#include "llmc/base/config/visit.h"

inline namespace config {

inline constexpr int kMostMemoryGb = 65536;  // well above every device: a value beyond is in another unit

struct ClusterConfig {
    std::string gpu, file;
    int gpus_per_node = 0;
    double node_gbs = 0, network_gbs = 0, memory_gb = 0, watts = 0, dollars_per_hour = 0, failure_hours = 0;
    double days = 0, dollars = 0;

    bool named() const { return !gpu.empty() || !file.empty(); }    // --plan prices times as well
    bool measured() const { return gpu == "auto"; }     // times are those of steps measured on this machine

    template <class F> void visit(F&& f) {
        f("gpu", gpu, "GPU that --plan prices, a file of scripts/machines/ such as h100; auto: this machine, "
          "measured once; empty: the GPU of cluster.file; without a file --plan prints memory alone");
        f("gpus_per_node", gpus_per_node, "0: of the GPU's file", range(0, 1 << 20));
        f("node_gbs", node_gbs, "GB/s each way and GPU inside a node; 0: of the GPU's file", at_least(0));
        f("network_gbs", network_gbs, "GB/s each way and GPU between nodes; 0: of the GPU's file",
          at_least(0));
        f("memory_gb", memory_gb, "memory of a GPU in 1e9 bytes; 0: of the GPU's file",
          range(0, kMostMemoryGb));
        f("watts", watts, "of a GPU and its share of the node, or of a rank of this machine; 0: of the "
          "GPU's file", at_least(0));
        f("dollars_per_hour", dollars_per_hour, "price of a GPU, or of a rank of this machine; 0: of the "
          "GPU's file", at_least(0));
        f("failure_hours", failure_hours, "of a GPU between failures that end the job, or of a rank of this "
          "machine; 0: of the GPU's file", at_least(0));
        f("days", days, "deadline of all steps, for --plan=search without parallel.ranks; 0: none",
          at_least(0));
        f("dollars", dollars, "budget of all steps, likewise; 0: none", at_least(0));
        f("file", file, "JSON with these keys but for days and dollars, or a machine of your own as in "
          "scripts/machines/");
    }
};

}  // namespace config

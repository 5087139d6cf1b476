// Settings of the run itself: its folder, device, checks, ranks that may be lost.
#pragma once
#include <cstdint>
#include <string>

#include "llmc/base/config/choice.h"
#include "llmc/base/config/visit.h"

inline namespace config {

struct RunConfig {
    std::string dir = "runs/default";
    Choice<RunDevice> device = RunDevice::Auto;
    Choice<RunPrecision> precision = RunPrecision::Auto;
    Choice<ProductKind> products = ProductKind::Bf16;
    int64_t seed = 1;
    int threads = 0;
    double hang_timeout = 0;
    bool sniff = false;
    int64_t check_every = 0, replay_every = 0;
    bool elastic = false;
    int slots = 0, min_ranks = 0;

    template <class F> void visit(F&& f) {
        f("dir", dir, "folder that gets config.json, metrics.jsonl and checkpoints");
        f("seed", seed, "of initialisation, order of the data and sampling", at_least(0));
        f("device", device, "auto: what the program was built for");
        f("precision", precision, "of weights and activations; auto: what the machine is fast at");
        f("products", products, "fp8: blocks multiply weights with activations in E4M3 and with gradients in "
          "E5M2; bf16: in run.precision, whichever it is");
        f("threads", threads, "CPU threads of a rank; 0: all cores of the machine over its ranks",
          range(0, 4096));
        f("hang_timeout", hang_timeout, "seconds without progress that count as a hang; 0: five times the "
          "slowest step, at least 60", at_least(0));
        f("sniff", sniff, "at the start, replicas compute one micro-batch and compare its bits; a rank that "
          "differs ends the run with exit code 75; with elastic its agent is put aside");
        f("check_every", check_every, "steps between comparisons of the replicas' weights and state, also "
          "before each checkpoint; 0: never", range(0, kMany));
        f("replay_every", replay_every, "steps between micro-batches that all replicas compute again, to "
          "compare their bits; 0: never", range(0, kMany));
        f("elastic", elastic, "this process is an agent, which starts ranks and outlives them: a lost rank "
          "is replaced, and training goes on from images in memory (over tcp)");
        f("slots", slots, "ranks of this agent; 0: parallel.ranks", range(0, 1024));
        f("min_ranks", min_ranks, "with run.elastic, fewer ranks end the job; 0: parallel.ranks",
          range(0, 1 << 20));
    }
};

}  // namespace config

// A step measured on this machine: what each of its ops took. cluster.gpu=auto prices a plan by these times.
//
// Ops on a CPU follow no roofline: caches, threads and the other ranks decide. So each op of the plan has the
// time of the same op (its name and all its sizes) in real steps of a model with fewer layers, which has
// every op of a block, on as many ranks and threads as are planned.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/base/json_value.h"
#include "llmc/ops/walk.h"

// Calls of one op, over all ranks. flops, read and written are of one call.
struct MeasuredOp {
    std::string name, axis;
    Kind kind = Kind::Memory;
    std::array<int, 8> dims = {};
    double flops = 0;
    uint64_t read = 0, written = 0;
    double calls = 0, seconds = 0;  // seconds: of a call, with the host's work up to the next op

    bool is(const Cost& cost) const;
    double work() const;  // FLOPs; of ops without any, bytes
};

struct MeasuredStep {
    std::string date;    // "2026-11-25"
    int layers = 0;      // of the model that was measured
    double seconds = 0;  // its step
    double tflops = 0;   // a rank's rate of a 1024^3 product, all ranks at once
    std::vector<MeasuredOp> ops;

    // Of an op with the same sizes; else of the same name, in proportion to FLOPs or bytes; else of the same
    // kind. 0: no op of the kind was measured.
    double seconds_of(const Cost& cost) const;
};

// Measures steps of a reduced model on parallel.ranks threads of this machine, some 20 seconds. Exit code 78:
// too little memory. REQUIRES: model.vocab, train.micro_batch and run.threads are resolved.
namespace fp32 {
MeasuredStep measure_step(const Config& cfg, int ranks);
}
namespace bf16 {
MeasuredStep measure_step(const Config& cfg, int ranks);
}
namespace fp64 {
MeasuredStep measure_step(const Config& cfg, int ranks);
}

// The file of this user's measurements, machine.json in the cache folder: of one device, number of cores and
// build of the program. Measurements of any other are dropped.
struct MeasuredFile {
    std::string path;    // empty: this user has no home
    std::string device;  // "cpu: AMD EPYC"

    // The measured step of these settings, if there is one. A file that cannot be read is a warning.
    std::optional<MeasuredStep> find(const Config& cfg, int ranks) const;
    // Adds the step. A file that cannot be written is a warning.
    void keep(const Config& cfg, int ranks, const MeasuredStep& step) const;

private:
    Json::Members steps() const;
};

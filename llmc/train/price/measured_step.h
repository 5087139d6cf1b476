// A step measured on this machine: what each of its ops took. cluster.gpu=auto prices a plan by these times.
//
// Ops on a CPU follow no roofline: caches, threads and the other ranks decide. So each op of the plan has the
// time of the same op (equal name, equal sizes) in real steps. The measured model has fewer layers, with
// every op of a block. It runs on the planned number of ranks and threads.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/base/json/json_value.h"
#include "llmc/base/numbers/each_precision.h"
#include "llmc/ops/walk.h"

inline namespace price {

// Calls of one op, over all ranks. flops, read and written are of one call.
struct MeasuredOp {
    std::string name, axis;
    Kind kind = Kind::Memory;
    std::array<int, 8> sizes = {};   // Cost::sizes()
    double flops = 0;
    uint64_t read = 0, written = 0;
    double calls = 0, seconds = 0;  // seconds: of a call, with the host's work up to the next op

    bool is(const Cost& cost) const;
    bool is(const MeasuredOp& o) const;
    double work() const;  // FLOPs; of ops without any, bytes
};

// Adds calls of other ranks or steps. An op of several ranks takes the mean of their times. Where ranks are
// stages, the wait of one for another is the simulation's: a collective takes the time of the rank that waits
// least.
void merge(std::vector<MeasuredOp>& to, const std::vector<MeasuredOp>& more, bool stages);

struct MeasuredStep {
    std::string date;    // "2026-11-25"
    int layers = 0;      // of the model that was measured
    double seconds = 0;  // its step
    double tflops = 0;   // a rank's rate of a 1024^3 product, all ranks at once
    std::vector<MeasuredOp> ops;

    // The time of an op with the same sizes, if there is one. Else the work over a rate (FLOPs or bytes a
    // second) of ops with the same name, or without such ops, of the same kind. The logarithm of the rate is
    // interpolated by inverse distance (Shepard, 23rd ACM National Conference, 1968). 0: no op of the kind
    // was measured.
    double seconds_of(const Cost& cost) const;
    // Of a copy in memory, by the ops that compute little.
    double copy_gbs() const;
};

// Measures steps of a reduced model on parallel.ranks threads of this machine: one that touches memory, one
// more, and others for 8 seconds, at most 15. The ops' times are those of the median step. Exit code 78: too
// little memory. REQUIRES: model.vocab, train.micro_batch and run.threads are resolved.
using MeasureStepFunction = MeasuredStep(const Config& cfg, int ranks);

}  // namespace price

IN_EACH_PRECISION(price, MeasureStepFunction measure_step;)

inline namespace price {

// Layers of the model whose steps are measured for a plan of cfg: enough for every op of its stages.
int measured_layers(const Config& cfg);

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

}  // namespace price

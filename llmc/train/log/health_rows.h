// Rows of metrics.jsonl about the health of a run, and histograms for sinks.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "llmc/train/log/spikes.h"
#include "llmc/train/report/sinks.h"
#include "llmc/train/step/health.h"

inline namespace logs {

// {"event":"health","step":..,
//  "tensors":[{"name":"h.0.qkvw","count":..,"weight":{"rms":..,"max":..,"zeros":..,"nonfinite":..},
//              "grad":{..},"update":{..}},..],
//  "activations":[{"name":"h.0.ln1","count":..,"rms":..,"max":..,"zeros":..,"nonfinite":..},..]}
// zeros and nonfinite: shares of the elements. rms and max: of the finite elements.
std::string health_row(const Health& h);

// {"event":"grad_norms","step":..,"norms":{"wte":..,..}}
std::string grad_norms_row(int64_t step, std::span<const std::string> names, std::span<const double> norms);

// {"event":"spike","step":..,"of":"norm","value":..,"z":..,"first":"h.3.fcw","first_z":..,"first_step":..}
std::string spike_row(const Spike& s);

// "weights/h.0.qkvw", "gradients/h.0.qkvw", ...: of absolute elements. "norms/weights", "norms/gradients",
// "norms/updates": of the norms of all tensors.
std::vector<Histogram> histograms_of(const Health& h);

}  // namespace logs

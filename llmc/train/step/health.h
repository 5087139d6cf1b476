// Health of a run at one step: spreads (ops/tensor_spread.h) of every tensor and activation, over all ranks.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/ops/tensor_spread.h"

inline namespace step {

// Of an update, weight is the tensor after the update and update the change of the weights in full precision.
struct TensorHealth {
    std::string name;               // "h.3.qkvw"
    Spread weight, gradient, update;
};
struct ActivationHealth {
    std::string name;               // "h.3.act"
    Spread values;                  // of every token of the step
};
struct Health {
    int64_t step = 0;               // finished steps, this one included
    std::vector<TensorHealth> tensors;
    std::vector<ActivationHealth> activations;
};

// Of the finite elements; 0: there are none.
inline double rms(const Spread& s) {
    const double finite = s.count - s.nonfinite;
    return finite > 0 ? std::sqrt(s.squares / finite) : 0;
}

}  // namespace step

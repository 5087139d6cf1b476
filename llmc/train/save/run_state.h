// What a run goes on with beside its tensors; it stands in the manifest of each checkpoint.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Mean and deviation over a trailing window, for z-scores.
struct Trailing {
    static constexpr size_t kWindow = 128;
    std::vector<double> values;     // a ring once it is full
    size_t next = 0;

    // Of v against the window, which then takes v in; none until the window is full.
    std::optional<double> score(double v);
};

struct Validation {
    int64_t step;
    double loss;
    std::optional<double> bits_per_byte;
};

struct RunState {
    int64_t step = 0;               // optimizer steps done
    int64_t sample = 0;             // rows of data.train drawn: the loader's position
    int64_t seed = 0;               // of all random numbers, which are Philox's (base/rng.h)
    int64_t skipped = 0;            // of them, not finite
    bool evaluated = false, sampled = false;        // what was due before the checkpoint of this step
    Trailing loss, norm;
    std::optional<Validation> first, last;          // validations so far

    void add(const Validation& v);
    void advance(int64_t rows);     // a step is done, with so many rows of data.train
};

std::string to_json(const RunState& s);
// What is missing, of the wrong type or negative throws std::runtime_error.
RunState run_state_of(const std::string& json);

// State of a run beside its tensors, stored in the manifest of each checkpoint.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/train/data/contents.h"

inline namespace saves {

// Mean and deviation over a trailing window, for z-scores.
struct Trailing {
    static constexpr size_t kWindow = 200, kNear = 50;
    std::vector<double> values;     // a ring once it is full
    size_t next = 0;

    // The z-score of v against the window, if full. Adds v to the window.
    std::optional<double> score(double v);
    // The z-score of v against the kNear newest values but the last `but`, if so many are there.
    std::optional<double> near_score(double v, size_t but) const;
};

struct Validation {
    int64_t step;
    double loss;
    std::optional<double> bits_per_byte;
};

// Steps in trouble, one after the other up to now: loss or norm over train.rollback.z, or not finite.
struct Trouble {
    int64_t first = 0;              // the first of them; 0: the run is not in trouble
    int64_t above = 0;              // those over z
};

struct RunState {
    int64_t step = 0;               // finished optimizer steps; a parameter `step` means the same, unless its
                                    // comment counts the running step
    int64_t sample = 0;             // rows of data.train drawn so far: the loader's position
    int64_t tokens = 0;             // trained on so far, by the batch of each step; -1: of an older version
    int64_t seed = 0;               // of every random number (Philox, base/numbers/rng.h)
    int64_t skipped = 0;            // steps without a finite loss and gradient norm
    int64_t rollbacks = 0;          // by train.rollback
    Trouble trouble;                // with train.rollback
    // The evaluation, the text and the scores of tasks that were due at this step are done.
    bool evaluated = false, sampled = false, scored = false;
    Trailing loss, norm;
    std::map<std::string, Trailing> tensors;        // gradient norms by name, with log.health; on rank 0
    std::optional<Validation> first, last;          // validations so far
    Contents contents;              // of the files that the run reads

    void add(const Validation& v);
    void advance(int64_t rows, int64_t context);    // a step is done, with so many rows of data.train
    // Counts a step, before its loss and norm are added to the windows. Returns whether the step is one too
    // many, by train.rollback or train.max_skips.
    bool count(const TrainConfig& cfg, int64_t number, double step_loss, double step_norm, bool finite);
};

// Work that is due between two steps, and not done yet. texts: whether the run writes texts.
struct Due {
    bool evaluation, tasks, text;
    bool any() const { return evaluation || tasks || text; }
};
Due due_at(const Config& cfg, const RunState& state, bool texts);

std::string to_json(const RunState& s);
// Throws std::runtime_error if a value is missing, negative, or of the wrong type.
RunState run_state_of(const std::string& json);

}  // namespace saves

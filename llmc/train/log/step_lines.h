// Steps on the screen: a row every log.every steps. Times and rates of a row are means over the steps since
// the previous row; loss, norm and learning rate are the step's. Between two rows a terminal shows the newest
// step on a line that is redrawn. A narrow terminal gets fewer columns.
#pragma once
#include <string>
#include <vector>

#include "llmc/train/log/step_meter.h"

inline namespace logs {

struct StepLines {
    // steps: of the run; batch_tokens: of a step.
    void add(const StepFigures& r, int64_t steps, int64_t batch_tokens, bool due);

private:
    double steps_ = 0, ms_ = 0, tflops_ms_ = 0, joules_ = 0;    // sums since the last row
    size_t memory_bytes_ = 0;   // last known
    double drawn_ = 0;          // the redrawn line, by seconds_now()
    bool header_due_ = true;
};

// A column: its title and the cell, right-aligned to `width`; `keep` orders columns by what a narrow screen
// drops last (1: never).
struct StepColumn {
    const char* title;
    std::string cell;
    int width, keep;
};
// The columns of a row that fit `room` characters, in their order; room 0: all.
std::vector<StepColumn> fitting_columns(std::vector<StepColumn> all, int room);

}  // namespace logs

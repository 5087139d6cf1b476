// A drawn step and a machine as JSON of the page.
#pragma once
#include "llmc/base/json/json_value.h"
#include "llmc/train/price/cluster.h"
#include "llmc/train/price/step_time.h"

inline namespace explorer {

// {"stages": [{"stage", "waits", "spans": [["F", chunk, micro, begin, end], ...]}, ...], "of_stages",
// "busiest", "seconds", "micros_left_out", "cut", "seconds_left_out"}: the members of DrawnStep and DrawnSpan
// (train/price/step_time.h); of_stages: number of stages. Of many stages the list has an even choice, with
// the first, the last and the busiest.
Json json_of(const DrawnStep& step);
Json json_of(const Machine& machine);

}  // namespace explorer

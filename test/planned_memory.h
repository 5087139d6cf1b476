// The memory of a run against its plan.
#pragma once
#include <algorithm>
#include <string>

#include "test/program.h"

namespace test {

// The peak is never more than planned, and less by 1% or 1 MB at most. least: of a plan that is large enough.
inline void expect_planned(const std::string& run, const std::string& what, double least) {
    const double plan = rows_of(run, "start").at(0)["plan_bytes"],
                 peak = rows_of(run, "done").back()["peak_bytes"];
    EXPECT(plan > least, "%s: a plan of %.0f bytes is too small to tell", what.c_str(), plan);
    EXPECT(peak <= plan && plan - peak <= std::max(0.01 * plan, 1e6), "%s: %.0f bytes planned, %.0f taken",
           what.c_str(), plan, peak);
}

}  // namespace test

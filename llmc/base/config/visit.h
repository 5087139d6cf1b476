// Optional properties of a setting in visit(f), beside key, value and meaning.
#pragma once
#include <limits>

inline namespace config {

constexpr double kMany = 1e9;        // steps and tokens of a step: their product is a 64-bit integer

struct Limits {
    double low = -std::numeric_limits<double>::infinity();
    double high = std::numeric_limits<double>::infinity();
    bool open = false;              // high itself is not allowed
};

constexpr Limits range(double low, double high) { return {.low = low, .high = high}; }
constexpr Limits half_open(double low, double high) { return {.low = low, .high = high, .open = true}; }
constexpr Limits at_least(double low) { return {.low = low}; }

}  // namespace config

// What a visit(f) may say of a setting beside its key, its value and its meaning.
#pragma once
#include <limits>

struct Limits {
    double low = -std::numeric_limits<double>::infinity();
    double high = std::numeric_limits<double>::infinity();
    bool open = false;              // high itself is not allowed
};

constexpr Limits range(double low, double high) { return {.low = low, .high = high}; }
constexpr Limits half_open(double low, double high) { return {.low = low, .high = high, .open = true}; }
constexpr Limits at_least(double low) { return {.low = low}; }

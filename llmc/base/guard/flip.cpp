#include "llmc/base/guard/flip.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "llmc/base/check.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/progress.h"

inline namespace guard {

static thread_local FlipPlace next_flip;

Flip flip_named(const std::string& action) {
    static constexpr const char* kNames[] = {"", "-weights", "-gradients", "-moments", "-activations",
                                             "-message"};
    const std::string what = action.starts_with("flips") ? "flip" + action.substr(5) : action;
    if (what == "flip") return Flip::Weights;
    for (size_t i = 1; i < std::size(kNames); i++)
        if (what == std::string("flip") + kNames[i]) return Flip(i);
    return Flip::None;
}

bool repeats_flip(const std::string& action) { return action.starts_with("flips"); }

void stamp_fault() {
    if (const char* path = getenv("FAULT_STAMP"))
        (void)try_replace_file(path, fmt::format("{:.6f}\n", seconds_now()));
}

static FlipPlace asked_place() {
    const char* text = getenv("FAULT_PLACE");
    unsigned long long skipped = 0, bit = 0;
    if (text) sscanf(text, "%llu:%llu", &skipped, &bit);
    return {.skipped = skipped, .bit = bit};
}

void ask_flip(Flip what) { ask_flip(what, asked_place()); }

void ask_flip(Flip what, FlipPlace at) {
    flip_asked = what;
    next_flip = at;
}

bool is_place_of_flip(uint64_t* bit) {
    if (next_flip.skipped > 0) {
        next_flip.skipped--;
        return false;
    }
    flip_asked = Flip::None;
    *bit = next_flip.bit;
    stamp_fault();
    return true;
}

}  // namespace guard

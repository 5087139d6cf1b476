// Activations whose spreads (ops/tensor_spread.h) a forward measures where Gpt::spreads is set. Of a block:
// the stream (after the shortcut, if any), its norm, attention before and the stream after the projection,
// that stream's norm, the activation and the output of the MLP without its bias. At the end: the stream and
// its norm.
#pragma once
#include <iterator>
#include <string>
#include <vector>

inline namespace model {

inline constexpr const char* kSpreadsOfBlock[] = {"x", "ln1", "atty", "x1", "ln2", "act", "fcproj"};
inline constexpr const char* kSpreadsAtEnd[] = {"xf", "lnf"};

// "h.0.x", "h.0.ln1", ..., "lnf"; L: layers of the whole model.
inline std::vector<std::string> names_of_act_spreads(int L) {
    std::vector<std::string> names;
    for (int l = 0; l < L; l++)
        for (const char* name : kSpreadsOfBlock) names.push_back("h." + std::to_string(l) + "." + name);
    names.insert(names.end(), std::begin(kSpreadsAtEnd), std::end(kSpreadsAtEnd));
    return names;
}

}  // namespace model

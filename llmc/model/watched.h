// Activations whose element statistics a forward measures where Gpt::watched is set: of each block the stream
// (after the shortcut, if any), its norm, attention before and the stream after the projection, that stream's
// norm, the activation and the output of the MLP without its bias; at the end the stream and its norm.
#pragma once
#include <iterator>
#include <string>
#include <vector>

inline constexpr const char* kWatchedOfBlock[] = {"x", "ln1", "atty", "x1", "ln2", "act", "fcproj"};
inline constexpr const char* kWatchedAtEnd[] = {"xf", "lnf"};

// "h.0.x", "h.0.ln1", ..., "lnf"; L: layers of the whole model.
inline std::vector<std::string> watched_names(int L) {
    std::vector<std::string> names;
    for (int l = 0; l < L; l++)
        for (const char* name : kWatchedOfBlock) names.push_back("h." + std::to_string(l) + "." + name);
    names.insert(names.end(), std::begin(kWatchedAtEnd), std::end(kWatchedAtEnd));
    return names;
}

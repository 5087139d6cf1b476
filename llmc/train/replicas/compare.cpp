#include "llmc/train/replicas/compare.h"

#include <algorithm>
#include <map>
#include <set>

inline namespace replicas {

namespace {
using Camps = std::map<uint64_t, std::vector<int>>;         // ranks of a group by their hash
struct Difference { size_t kind; Camps camps; };            // in a group
}  // namespace

static std::vector<Difference> differences_of(std::span<const CopyHash> hashes, size_t kinds) {
    std::vector<Difference> differences;
    for (size_t kind = 0; kind < kinds; kind++) {
        std::map<uint64_t, Camps> groups;
        for (size_t at = kind; at < hashes.size(); at += kinds)
            if (hashes[at].group) groups[hashes[at].group][hashes[at].hash].push_back(int(at / kinds));
        for (auto& [group, camps] : groups)
            if (camps.size() > 1) differences.push_back({kind, std::move(camps)});
    }
    return differences;
}

// The hash of more than half of the ranks; else the end.
static Camps::const_iterator majority_of(const Camps& camps) {
    size_t all = 0;
    for (const auto& [hash, ranks] : camps) all += ranks.size();
    return std::find_if(camps.begin(), camps.end(),
                        [&](const auto& camp) { return 2 * camp.second.size() > all; });
}

Suspects compare(std::span<const CopyHash> hashes, size_t kinds) {
    const std::vector<Difference> differences = differences_of(hashes, kinds);
    if (differences.empty()) return {};
    std::set<int> sure, unsure;
    for (const auto& [kind, camps] : differences) {
        const auto most = majority_of(camps);
        for (auto camp = camps.begin(); camp != camps.end(); ++camp)
            if (camp != most) (most == camps.end() ? unsure : sure).insert(camp->second.begin(),
                                                                           camp->second.end());
    }
    const std::set<int>& named = sure.empty() ? unsure : sure;
    return {.ranks = {named.begin(), named.end()}, .sure = !sure.empty(), .kind = differences[0].kind};
}

}  // namespace replicas

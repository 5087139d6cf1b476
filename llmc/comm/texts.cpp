#include "llmc/comm/texts.h"

#include <algorithm>
#include <cstdint>

inline namespace comm {

// Broadcasts, as every transport has them between any two ranks, and takes memory of the host.
std::vector<std::string> gather_texts(const Axis& world, const std::string& own) {
    constexpr size_t kChunk = size_t(1) << 20;
    const uint64_t size = own.size();
    std::vector<uint64_t> sizes(size_t(world.size), size);
    if (world.size > 1) world.all_gather(sizes.data(), &size, 1);
    std::vector<std::string> all;
    if (world.index == 0) all.push_back(own);
    const size_t most = *std::max_element(sizes.begin(), sizes.end());
    std::vector<char> chunk(world.size > 1 ? std::min(kChunk, most) : 0);
    for (int rank = 1; rank < world.size; rank++) {
        if (world.index == 0) all.emplace_back();
        for (size_t at = 0; at < sizes[size_t(rank)]; at += kChunk) {
            const size_t n = std::min(kChunk, size_t(sizes[size_t(rank)]) - at);
            if (world.index == rank) std::copy_n(own.data() + at, n, chunk.data());
            world.broadcast(chunk.data(), n, rank);
            if (world.index == 0) all.back().append(chunk.data(), n);
        }
    }
    return all;
}

}  // namespace comm

#include "llmc/io/corpus/held_out.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "llmc/base/disk/files.h"
#include "llmc/io/unicode/unicode.h"

inline namespace corpus {

constexpr uint64_t kReadBlock = 1 << 16;        // read at a time
constexpr uint64_t kWordReach = 1 << 10;    // how far a word is looked for

bool HeldOut::choose(std::string_view document) {
    const double before = double(seen), held = double(chosen), size = double(document.size());
    seen += document.size();
    double chance = fraction;
    const double missing = fraction * (before + size) - held;
    if (held < 0.95 * fraction * before) chance = std::max(std::sqrt(fraction), missing / size);
    if (held > 1.05 * fraction * before || held + size > 2 * fraction * (before + size)) chance = 0;
    const double uniform = double(XXH3_64bits(document.data(), document.size()) >> 11) * 0x1p-53;
    if (uniform >= chance) return false;
    chosen += document.size();
    return true;
}

namespace {
// The place in (begin, end) nearest to the target of those that are offered; end: none. Of equals the first.
struct Nearest {
    uint64_t target, begin, end, best = end;

    uint64_t error(uint64_t at) const { return at < target ? target - at : at - target; }
    void offer(uint64_t at) {
        if (at > begin && at < end && (best == end || error(at) < error(best))) best = at;
    }
};

// A file, read block by block.
struct Blocks {
    int fd;
    const std::string& path;
    std::string block = {};

    const std::string& read(uint64_t begin, uint64_t end) {
        block.resize(end - begin);
        pread_all(fd, block.data(), block.size(), begin, path);
        return block;
    }
    // The place behind the last line break in [begin, end); 0: none.
    uint64_t line_before(uint64_t begin, uint64_t end) {
        while (end > begin) {
            const uint64_t from = end - std::min(end - begin, kReadBlock);
            if (const size_t at = read(from, end).rfind('\n'); at != block.npos) return from + at + 1;
            end = from;
        }
        return 0;
    }
    // The place behind the first line break in [begin, end); 0: none.
    uint64_t line_after(uint64_t begin, uint64_t end) {
        for (; begin < end; begin += block.size())
            if (const size_t at = read(begin, std::min(end, begin + kReadBlock)).find('\n'); at != block.npos)
                return begin + at + 1;
        return 0;
    }
};
}  // namespace

// The line or word that begins nearest to the target, else the character.
static void offer_words(Blocks& file, Nearest& place) {
    const uint64_t low = place.target - std::min(place.target - place.begin, kWordReach);
    const std::string& s = file.read(low, std::min(place.end, place.target + kWordReach));
    const auto space = [&](size_t i) { return is_ascii_space(uint8_t(s[i])); };
    for (size_t i = 1; i < s.size(); i++) {
        const bool word = space(i) && !space(i - 1) && s[i] != '\n' && s[i] != '\r';
        if (word || s[i - 1] == '\n') place.offer(low + i);
    }
    if (place.best < place.end) return;
    size_t at = place.target - low;
    while (at > 0 && at < s.size() && continues(uint8_t(s[at]))) at--;
    place.offer(low + at);
}

uint64_t validation_cut(int fd, uint64_t begin, uint64_t size, double fraction, const std::string& path) {
    if (fraction <= 0 || begin >= size) return size;
    const uint64_t held = uint64_t(double(size - begin) * fraction), slack = held / 8, target = size - held;
    if (held == 0) return size;
    Nearest place = {target, begin, size};
    Blocks file{fd, path};
    place.offer(file.line_before(target - std::min(slack, target - begin), target));
    place.offer(file.line_after(target, std::min(size, target + slack)));
    if (place.best == size) offer_words(file, place);
    return place.best;
}

}  // namespace corpus

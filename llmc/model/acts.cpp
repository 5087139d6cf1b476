#include "llmc/model/acts.h"

namespace PRECISION::inline model {

static bool shared(const ActRow& row, Recompute level) { return !row.always_own && level >= row.shared_from; }

static size_t streams(const ActRow& row, const BlockActs& a) {
    return row.x == &BlockActs::in && a.receives ? 2 : 1;
}

void add_block_acts(ArenaOf arena, std::vector<BlockActs>& acts, const Dims& d, size_t N, size_t n,
                    Recompute level) {
    for (const ActRow& row : block_acts(d, N, n)) {
        const std::string name = std::string("activations: ") + row.name;
        for (size_t l = 0; l < (shared(row, level) ? 1 : acts.size()); l++)
            if (row.x) arena.add(name, &(acts[l].*row.x), row.count * streams(row, acts[l]));
            else arena.add(name, &(acts[l].*row.s), row.count);
    }
}

void share_block_acts(std::vector<BlockActs>& acts, const Dims& d, Recompute level) {
    for (const ActRow& row : block_acts(d, 1, 1))
        for (size_t l = 1; shared(row, level) && l < acts.size(); l++)
            if (row.x) acts[l].*row.x = acts[0].*row.x;
            else acts[l].*row.s = acts[0].*row.s;
    for (BlockActs& a : acts) a.kv = a.qkv;
}

}  // namespace PRECISION::model

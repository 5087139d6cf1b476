// Pieces of whole tensors: the ranks' shards cover each tensor exactly once, in order, with at most three
// rectangles per fused matrix and shard.
#include "llmc/train/step/pieces.h"

#include <algorithm>
#include <map>
#include <set>

#include "test/test.h"

// kv_heads below the heads: matrices of unequal sizes in qkvw.
static Dims dims_on(int tp, int index, int kv_heads) {
    return make_dims({.layers = 2, .heads = 8, .channels = 24, .context = 7, .vocab = 70,
                      .kv_heads = kv_heads, .activation = Activation::Swiglu},
                     {.index = index, .size = tp, .group = nullptr});
}

TEST(shards_cover_every_tensor_once) {
    for (const auto& [tp, kv_heads] : {std::pair{1, 8}, {2, 8}, {4, 8}, {1, 4}, {2, 2}, {4, 4}})
        for (const size_t shards : {1, 2, 3, 7}) {
            std::map<std::string, std::vector<int>> seen;
            for (const Tensor& t : whole_tensors(dims_on(1, 0, kv_heads)))
                seen[t.name].resize(t.param.whole());
            for (int rank = 0; rank < tp; rank++) {
                const Layout layout = make_layout(dims_on(tp, rank, kv_heads), whole_model(2), {shards});
                for (const Tensor& t : layout.tensors) {
                    if (t.param.split == Split::None && rank > 0) continue;
                    const size_t size = t.param.count(), width = size_t(t.param.whole_cols);
                    for (size_t s = 0; s < shards; s++) {
                        const size_t from = size * s / shards, to = size * (s + 1) / shards;
                        const auto pieces = pieces_of(t, {from, to - from});
                        const auto& fused = t.param.fused;
                        const auto none = std::count(fused.begin(), fused.end(), 0);
                        const auto matrices = t.param.is_fused() ? 3 - none : 1;
                        EXPECT(pieces.size() <= size_t(3 * matrices), "%s: %zu pieces", t.name.c_str(),
                               pieces.size());
                        size_t at = from;
                        for (const Piece& p : pieces) {
                            EXPECT(p.at >= at && p.at + p.count() <= to, "%s: a piece at %zu after %zu",
                                   t.name.c_str(), p.at, at);
                            at = p.at + p.count();
                            for (size_t i = 0; i < p.count(); i++)
                                seen[t.name].at((p.row + i / p.cols) * width + p.col + i % p.cols)++;
                        }
                    }
                }
            }
            for (const auto& [name, counts] : seen)
                for (const int n : counts)
                    if (n != 1)
                        EXPECT(false, "tp %d, %zu shards: an element of %s is there %d times", tp, shards,
                               name.c_str(), n);
        }
}

// Runs of a piece inside any range of the whole tensor, against element by element.
TEST(runs_are_the_elements_of_a_range) {
    const Piece pieces[] = {{.row = 3, .col = 0, .rows = 4, .cols = 6, .at = 100},
                            {.row = 2, .col = 1, .rows = 5, .cols = 3, .at = 7},
                            {.row = 0, .col = 5, .rows = 1, .cols = 1, .at = 0}};
    constexpr size_t width = 6, all = 10 * width;
    for (const Piece& p : pieces)
        for (size_t first = 0; first < all; first++)
            for (size_t count = 1; first + count <= all; count += 3) {
                std::set<std::pair<size_t, size_t>> expected, seen;
                for (size_t i = 0; i < p.count(); i++) {
                    const size_t global = (p.row + i / p.cols) * width + p.col + i % p.cols;
                    if (global >= first && global < first + count) expected.insert({p.at + i, global});
                }
                for_each_run(p, width, {first, count}, [&](size_t local, size_t global, size_t n) {
                    for (size_t i = 0; i < n; i++) seen.insert({local + i, global + i});
                });
                EXPECT(seen == expected, "%zu elements from %zu on: %zu of %zu", count, first, seen.size(),
                       expected.size());
            }
}

// The tables on any mesh: every element of the whole model is somewhere, and in its place.
#include <cstring>
#include <map>

#include "llmc/model/layout.h"
#include "llmc/train/step/schedule.h"
#include "test/test.h"

static Dims dims(int tp, int index, int heads = 12, int V = 301, int L = 5) {
    Axis axis;
    axis.size = tp, axis.index = index;
    return make_dims({.layers = L, .heads = heads, .channels = 24, .context = 7, .vocab = V}, axis);
}

TEST(stages_share_the_blocks_out) {
    for (int L = 1; L <= 13; L++)
        for (int stages = 1; stages <= 4; stages++)
            for (int v = 1; v * stages <= L; v++) {
                std::map<int, int> owner;                   // chunk number of each layer
                int embed = 0, end = 0;
                for (int s = 0; s < stages; s++) {
                    const Part p = make_part(L, s, stages, v);
                    EXPECT(int(p.chunks.size()) == v && p.first == (s == 0) && p.last == (s == stages - 1));
                    for (int c = 0; c < v; c++) {
                        const Chunk& k = p.chunks[size_t(c)];
                        const int blocks = k.end - k.begin;
                        const int least = L / (stages * v);
                        EXPECT(blocks == least || blocks == least + 1, "%d blocks", blocks);
                        embed += k.embeds, end += k.ends;
                        EXPECT(k.embeds == (s == 0 && c == 0) && k.ends == (s == stages - 1 && c == v - 1));
                        for (int l = k.begin; l < k.end; l++) owner[p.layers[size_t(l)]] = c * stages + s;
                    }
                }
                EXPECT(int(owner.size()) == L && embed == 1 && end == 1, "%zu of %d blocks", owner.size(), L);
                for (int l = 1; l < L; l++) EXPECT(owner[l] == owner[l - 1] || owner[l] == owner[l - 1] + 1);
            }
}

// Each element over the ranks of tp and the stages: once if cut, on every rank if whole; wte on the first and
// last stage.
TEST(every_element_has_its_place) {
    for (const int tp : {1, 2, 3, 4})
        for (const int stages : {1, 2, 5})
            for (const int V : {128, 301, 1025}) {
                const Dims whole = dims(1, 0, 12, V);
                std::vector<int> times(make_layout(whole, whole_model(5)).parameters);
                for (int stage = 0; stage < stages; stage++)
                    for (int i = 0; i < tp; i++) {
                        const Dims d = dims(tp, i, 12, V);
                        const Layout layout = make_layout(d, make_part(5, stage, stages));
                        EXPECT(layout.parameters == times.size(), "%zu parameters", layout.parameters);
                        for (const Tensor& t : layout.tensors)
                            for_each_run(t, {0, t.param.count()}, [&](size_t, size_t global, size_t n) {
                                for (size_t k = 0; k < n; k++) times[t.global + global + k]++;
                            });
                    }
                for (const Tensor& t : whole_tensors(whole)) {
                    const int ends = t.name == "wte" && stages > 1 ? 2 : 1;
                    const int expected = ends * (t.param.split == Split::None ? tp : 1);
                    int wrong = 0;
                    for (size_t i = 0; i < t.param.whole(); i++) wrong += times[t.global + i] != expected;
                    EXPECT(wrong == 0, "%s, tp %d, V %d: %d elements", t.name.c_str(), tp, V, wrong);
                }
            }
}

// Rank 1 of 2: the second half of the rows of Q, K and V each, the second half of a row of attprojw, ...
TEST(runs_by_hand) {
    const Dims d = dims(2, 1);                              // C = 24, A = 12, F = 48
    const Layout layout = make_layout(d, whole_model(5));
    const auto check = [&](const char* name, size_t first, size_t count, const char* expected) {
        std::string text;
        for (const Tensor& t : layout.tensors)
            if (t.name == name)
                for_each_run(t, {first, count}, [&](size_t local, size_t global, size_t n) {
                    text += fmt::format("{}={}+{} ", local, global, n);
                });
        EXPECT(text == expected, "%s: %s", name, text.c_str());
    };
    check("h.0.qkvb", 0, 36, "0=12+12 12=36+12 24=60+12 ");
    check("h.0.qkvw", 287, 2, "287=575+1 288=864+1 ");
    check("h.1.attprojw", 11, 14, "11=23+1 12=36+12 24=60+1 ");
    check("h.4.fcb", 3, 5, "3=51+5 ");
    check("h.4.ln1w", 3, 5, "3=3+5 ");
    check("wte", 44 * 24, 72, "1056=7200+24 ");             // V = 301 = 256 + 45, the rest is padding
    check("wte", 45 * 24, 72, "");
}

// Trailing tensors come behind the others of their bucket; a bucket is as large as without them.
TEST(trailing_tensors_come_last) {
    const std::vector<std::string> names = {"qkvw", "attprojw", "fcw", "fcprojw", "lnfw"};
    for (const size_t shards : {1, 2, 3, 7, 16}) {
        const Layout layout = make_layout(dims(2, 1), whole_model(5), {shards, names}),
                     plain = make_layout(dims(2, 1), whole_model(5), {shards});
        size_t end = 0, trailing = 0;
        for (const Tensor& t : layout.tensors) {
            EXPECT(t.start >= end && t.start / 64 * 64 == t.start, "%s begins at %zu, %zu are taken",
                   t.name.c_str(), t.start, end);
            end = t.start + t.param.count();
            const size_t leading = layout.start(t.bucket) + layout.leading[size_t(t.bucket)];
            const bool named = std::find(names.begin(), names.end(), t.param.name) != names.end();
            EXPECT(t.trailing == named && (named ? t.start >= leading : end <= leading), "%s at %zu of %zu",
                   t.name.c_str(), t.start, leading);
            trailing += t.trailing;
        }
        EXPECT(trailing == 4 * 5 + 1 && layout.buckets == plain.buckets, "%zu trailing tensors", trailing);
        std::vector<float> memory(layout.size(layout.block(3)));
        const BlockTensors<float> g = bind_block(memory.data(), 3, layout);
        for (const auto& row : block_params<float>(dims(2, 1), 3))
            for (const Tensor& t : layout.tensors)
                if (t.layer == 3 && !strcmp(t.param.name, row.param.name))
                    EXPECT(size_t(g.*(row.member) - memory.data()) == t.start - layout.start(t.bucket), "%s",
                           t.name.c_str());
    }
}

// Those with codes end their bucket, whether they trail or not; where another one trails too, none do.
TEST(tensors_with_codes_end_their_bucket) {
    const std::vector<std::string> names = {"qkvw", "attprojw", "fcw", "fcprojw"}, more = {"qkvw", "ln1w"};
    for (const std::vector<std::string>& trailing : {std::vector<std::string>(), names, more}) {
        const Layout layout = make_layout(dims(2, 1), whole_model(5), {3, trailing, names});
        for (int b = 0; b < layout.count(); b++) {
            const bool some = trailing != more && b >= layout.blocks && b < layout.block(5);
            const size_t coded = layout.coded[size_t(b)];
            EXPECT(some == (coded < layout.size(b)), "bucket %d: %zu of %zu", b, coded, layout.size(b));
            for (const Tensor& t : layout.tensors) {
                if (!some || t.bucket != b) continue;
                const bool named = std::find(names.begin(), names.end(), t.param.name) != names.end();
                const Interval here = layout.in_bucket(t);
                EXPECT(named ? here.begin >= coded : here.end() <= coded, "%s", t.name.c_str());
            }
        }
    }
}

TEST(buckets_divide_by_the_shards) {
    for (const size_t shards : {1, 2, 3, 7})
        for (const int stage : {0, 1, 2}) {
            const Part part = make_part(5, stage, 3);
            const Layout layout = make_layout(dims(2, 0), part, {shards});
            const bool ends = part.first || part.last;
            EXPECT(layout.count() == int(part.layers.size()) + part.first + ends + part.last);
            EXPECT((layout.wte >= 0) == ends && (layout.embed >= 0) == part.first);
            EXPECT((layout.final >= 0) == part.last);
            for (int b = 0; b < layout.count(); b++)
                EXPECT(layout.size(b) / (64 * shards) * (64 * shards) == layout.size(b) && layout.size(b) > 0,
                       "bucket %d: %zu", b, layout.size(b));
            for (const Tensor& t : layout.tensors) {
                const size_t begin = layout.start(t.bucket), end = begin + layout.size(t.bucket);
                EXPECT(t.start / 64 * 64 == t.start && t.start >= begin && t.start + t.param.count() <= end,
                       "%s at %zu", t.name.c_str(), t.start);
            }
            std::vector<float> memory(layout.size(layout.block(0)));
            const BlockTensors<float> g = bind_block(memory.data(), 0, layout);
            for (const Tensor& t : layout.tensors)
                if (t.layer >= 0 && t.param.name == std::string("fcprojb"))
                    EXPECT(part.layers[size_t(t.bucket - layout.block(0))] == t.layer &&
                           size_t(g.fcprojb - memory.data()) == t.start - layout.start(t.bucket));
        }
}

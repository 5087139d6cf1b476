// Manifests that nobody wrote: each is refused, with the reason.
#include "llmc/io/files/manifest.h"

#include <algorithm>
#include <map>
#include <random>

#include "llmc/base/disk/files.h"
#include "test/test.h"

static std::string refused(const std::string& open_text) {
    std::string error;
    return parse_manifest(with_hash(open_text), &error) ? "" : error;
}

// Seeds of the fuzzer, without the hash.
TEST(each_seed_is_refused_for_its_reason) {
    const std::string corpus = "test/fuzz/corpus/manifest/";
    EXPECT(refused(read_file(corpus + "open_good")).empty(), "%s",
           refused(read_file(corpus + "open_good")).c_str());
    for (const auto& [name, reason] : std::map<std::string, std::string>{
             {"deep", "16 deep"}, {"three_dimensions", "dimensions"}, {"no_dimension", "dimensions"},
             {"type", "F32, F64 and BF16"}, {"float", "whole number"}, {"float_step", "whole number"},
             {"negative", "whole number"}, {"hash_0x", "hash"}, {"hash_plus", "hash"},
             {"shared_bytes", "shares bytes"}, {"shared_bytes_parts", "shares bytes"},
             {"overlap", "overlap"}, {"gap", "not all of it"}}) {
        const std::string said = refused(read_file(corpus + "bad_" + name));
        EXPECT(said.find(reason) != said.npos, "%s: said '%s'", name.c_str(), said.c_str());
    }
}

TEST(no_depth_overflows_the_stack) {
    for (const char* key : {"config", "mesh", "state", "files", "tensors", "run"}) {
        const std::string deep = "{\"" + std::string(key) + "\":" + std::string(1 << 20, '[');
        EXPECT(!refused(deep + ",").empty(), "%s: not closed", key);
        const std::string said = refused(deep + std::string(1 << 20, ']') + ",");
        EXPECT(said.find("16 deep") != said.npos, "%s: '%s'", key, said.c_str());
    }
}

// Random rectangles: accepted if a count of each element says that the rectangles tile the tensor.
TEST(pieces_tile_a_tensor_or_are_refused) {
    std::mt19937 rng(3);
    int accepted = 0, overlapping = 0;
    for (int round = 0; round < 4000; round++) {
        const int rows = 3, cols = 3;
        int count[rows][cols] = {};
        Manifest m;
        m.step = 1;
        for (std::string* text : {&m.config, &m.mesh, &m.state}) text->assign("{}");
        uint64_t at = 0;
        // fills the first hole, mostly without going over what is there
        for (int hole = 0; hole < rows * cols; hole++) {
            const int r = hole / cols, c = hole % cols;
            if (count[r][c]) continue;
            int height = 1 + int(rng() % uint32_t(rows - r)), width = 1 + int(rng() % uint32_t(cols - c));
            if (rng() % 3)
                for (int i = c; i < c + width; i++) if (count[r][i]) width = i - c;
            m.pieces.push_back({.tensor = "w", .array = "m", .dtype = "F32", .shape = {rows, cols},
                                .start = {r, c}, .extent = {height, width}, .file = "a", .at = at});
            at += m.pieces.back().bytes();
            for (int i = r; i < r + height; i++) for (int j = c; j < c + width; j++) count[i][j]++;
        }
        std::shuffle(m.pieces.begin(), m.pieces.end(), rng);
        m.files.push_back({"a", at, {0}});
        bool tiled = true;
        for (const auto& row : count) for (const int n : row) tiled &= n == 1;
        std::string error;
        const bool taken = parse_manifest(to_json(m), &error).has_value();
        EXPECT(taken == tiled, "round %d: %s, '%s'", round, taken ? "taken" : "refused", error.c_str());
        accepted += taken, overlapping += error.find("overlap") != error.npos;
    }
    EXPECT(accepted > 500 && overlapping > 200, "%d accepted, %d overlapping", accepted, overlapping);
}

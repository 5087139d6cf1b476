// The emulated wrappers of ptx.h against GPUs: the results of scripts/gpu_check.sh in dev/results/. Without
// results, against formulas.
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "llmc/base/json/json_value.h"
#include "llmc/base/numbers/dtype.h"
#include "test/ptx_goldens.h"
#include "test/test.h"

static std::string text_of(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

static std::string hex(const std::vector<uint32_t>& words) {
    std::string text;
    for (const uint32_t w : words) text += fmt::format("{}{:08x}", text.empty() ? "" : " ", w);
    return text;
}
static std::vector<uint32_t> words_of(const std::string& text) {
    std::vector<uint32_t> words;
    std::istringstream in(text);
    for (std::string w; in >> w;) words.push_back(uint32_t(std::stoul(w, nullptr, 16)));
    return words;
}

// Whether a float is the hardware's but for its last bits: sums of 16 products of at most 4 each, and powers
// of 2 with a relative error of 2^-22 on each side.
static bool alike(const std::string& name, float gpu, float here) {
    const float apart = std::fabs(gpu - here);
    return name.ends_with(", rounded") ? apart <= 4e-5f : apart <= 0x1p-21f * std::fabs(gpu);
}

// What differs, or nothing.
static std::string difference(const std::string& name, const std::vector<uint32_t>& gpu,
                              const std::vector<uint32_t>& here) {
    if (gpu.size() != here.size()) return fmt::format("{} words, not {}", here.size(), gpu.size());
    for (size_t i = 0; i < gpu.size(); i++) {
        const bool floats = name.ends_with(", rounded") || name.ends_with(", relative");
        const bool same = floats ? alike(name, std::bit_cast<float>(gpu[i]), std::bit_cast<float>(here[i]))
                                 : gpu[i] == here[i];
        if (!same)
            return fmt::format("word {} is {:08x}, not {:08x}", i, here[i], gpu[i]);
    }
    return "";
}

TEST(wrappers_give_what_gpus_gave) {
    std::map<std::string, std::vector<uint32_t>> here;
    std::set<std::string> unrecorded;
    for (const auto& goldens : {ptx_goldens(), ptx_hopper_goldens()})
        for (const Golden& g : goldens) {
            here[g.name] = g.words;
            unrecorded.insert(g.name);
        }
    int compared = 0;
    if (!std::filesystem::is_directory("dev/results")) return test::skip("no dev/results");
    for (const auto& file : std::filesystem::directory_iterator("dev/results")) {
        if (!file.path().filename().string().starts_with("gpu_check_")) continue;
        const Json results = parse_json(text_of(file.path()));
        for (const Json& part : results.at("parts").list()) {
            if (!(part.at("part") == "ptx")) continue;
            for (const Json& r : part.at("results").list()) {
                const std::string& name = r.at("wrapper").string();
                const std::string why = difference(name, words_of(r.at("words").string()), here[name]);
                EXPECT(why.empty(), "%s, %s: %s", file.path().c_str(), name.c_str(), why.c_str());
                compared++;
                unrecorded.erase(name);
            }
        }
    }
    if (compared && !unrecorded.empty())
        printf("    %zu wrappers have no results of a GPU yet: %s ...\n", unrecorded.size(),
               unrecorded.begin()->c_str());
    if (compared == 0) test::skip("no GPU has run scripts/gpu_check.sh and left its results in dev/results");
}

TEST(differences_are_found) {
    const std::vector<uint32_t> a = {0x3f800000, 5}, b = {0x3f800001, 5}, c = {0x3f900000, 5};
    EXPECT(words_of(hex(a)) == a && difference("cp_async16", a, a).empty());
    EXPECT(!difference("cp_async16", a, b).empty() && difference("mma_bf16, rounded", a, b).empty());
    const std::vector<uint32_t> d = {0x3f800004, 5}, e = {0x3f800005, 5};        // 1 + 2^-21 and beyond
    EXPECT(difference("exp2_approx, relative", a, d).empty());
    EXPECT(!difference("exp2_approx, relative", a, e).empty());
    EXPECT(!difference("mma_bf16, rounded", a, c).empty() && !difference("cp_async16", a, {5}).empty());
}

// By the names that ptx.h declares.
static void check_every_wrapper(const char* header, const char* goldens, std::set<std::string> none,
                                int least) {
    const std::string wrappers = text_of(header), calls = text_of(goldens);
    const std::string before = "__device__ __forceinline__ ";
    std::set<std::string> missing;
    int count = 0;
    for (size_t at = 0; (at = wrappers.find(before, at)) != std::string::npos; count++) {
        const size_t name_at = wrappers.find(' ', at += before.size()) + 1;
        const std::string name = wrappers.substr(name_at, wrappers.find('(', name_at) - name_at);
        if (calls.find("ptx::" + name + "(") == std::string::npos &&
            calls.find("ptx::" + name + "<") == std::string::npos) missing.insert(name);
    }
    EXPECT(count >= least && missing == none, "%s: %d wrappers, %zu without: %s", header, count,
           missing.size(), missing.empty() ? "" : missing.begin()->c_str());
}
// But for those without a result of their own.
TEST(every_wrapper_is_called_for_a_golden) {
    check_every_wrapper("llmc/ops/cuda/ptx.h", "test/ptx_goldens.cu", {"shared_address"}, 26);
    check_every_wrapper("llmc/ops/cuda/ptx_hopper.h", "test/ptx_goldens_hopper.cu", {"tie"}, 17);
}

// The box of two dimensions begins at row 9 of 20 and at column -8: a row of 32 words, the first 4 zeros.
TEST(boxes_of_goldens_are_zeros_outside) {
    for (const Golden& g : ptx_hopper_goldens()) {
        if (!g.name.starts_with("tma")) continue;
        for (size_t row = 0; row < 16; row++)
            for (size_t w = 0; w < 32; w++) {
                const bool outside = row >= 11 || (w / 4 ^ row % 8) == 0;
                EXPECT(!outside || g.words[32 * row + w] == 0, "row %zu, word %zu", row, w);
            }
        EXPECT(g.words[4] != 0 && g.words[512 + 4 * 2] != g.words[4]);
    }
}

TEST(goldens_are_those_of_the_formulas) {
    size_t words = 0;
    for (const Golden& g : ptx_goldens()) {
        words += g.words.size();
        if (g.name == "block_again")
            for (size_t i = 0; i < g.words.size(); i++) EXPECT(g.words[i] == i / 32, "word %zu", i);
        if (g.name.starts_with("exp2_approx"))
            for (size_t i = 0; i < g.words.size(); i++) {
                const double x = double(std::fma(0.37f, float(i), -30.f));
                const double y = double(std::bit_cast<float>(g.words[i]));
                EXPECT_NEAR(y / std::exp2(x), 1, 0x1.8p-22);
            }
        if (g.name != "cp_async16") continue;
        for (size_t i = 0; i < g.words.size(); i++) {
            const bool zero = i / 4 % 3 == 0;
            EXPECT((g.words[i] == 0) == zero, "word %zu is %08x", i, g.words[i]);
        }
    }
    EXPECT(words == 32 * (4 + 4 + 8 + 8 + 16 + 4 + 4 + 4 + 3 + 5 + 5), "%zu words", words);
}

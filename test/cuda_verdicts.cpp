// What GPUs have said of variants of attention: which is taken, which is out, and how it is written down.
#include "llmc/ops/cuda/verdicts.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "llmc/ops/cuda/attention.h"
#include "llmc/ops/cuda/matmul.h"
#include "test/cuda_attention.h"

namespace PRECISION {

static constexpr int kD = 64;
static constexpr bool kCounts = dtype_of<floatX> == DType::BF16;

static std::vector<const char*> fitting() {
    std::vector<const char*> names;
    for (const auto& v : cuda::attention_forward_variants())
        if (v.supports(kD)) names.push_back(v.name);
    return names;
}

// The floor in bytes of the variant that forward takes; the variants here have different ones.
static double taken() {
    const AttentionShape s = {1, 256, 256, 1, kD, 0, 0};
    const AttentionInputs in(s, 1);
    const OnDevice q(in.q), k(in.k), v(in.v), out(std::vector<floatX>(256 * kD));
    const OnDevice lse(std::vector<real>(256));
    static double bytes;
    const LaunchObserver observer = {nullptr, [](void*, const void*, const Floor& f) { bytes = f.bytes; },
                                     [](void*, const void*) {}};
    const auto before = std::exchange(launch_observer, &observer);
    cuda::attention_forward(out, lse, q, k, v, dims_of<cuda::AttentionDims>(s));
    launch_observer = before;
    return bytes;
}
static double floor_of(const std::string& name) {
    for (const auto& v : cuda::attention_forward_variants())
        if (v.name == name) return v.floor(dims_of<cuda::AttentionDims>({1, 256, 256, 1, kD, 0, 0})).bytes;
    return -1;
}

TEST(the_fastest_is_taken_and_what_failed_is_out) {
    const auto names = fitting();
    if (names.empty()) return;              // of FP32 there are no variants
    cudaDeviceProp gpu;
    CUDA_CHECK(cudaGetDeviceProperties(&gpu, cuda_device().index));
    const auto before = judged;
    judged = {};
    const double least = taken();
    for (const char* name : names) {
        const Judged fastest = {gpu.name, "attention_forward", kD, name, Verdict::Fastest};
        judged = {&fastest, 1};
        EXPECT(taken() == floor_of(name), "%s: %g of %g", name, taken(), floor_of(name));
        for (const Judged& other : {Judged{"NVIDIA Other", "attention_forward", kD, name, Verdict::Fastest},
                                    Judged{gpu.name, "attention_keys", kD, name, Verdict::Fastest},
                                    Judged{gpu.name, "attention_forward", 128, name, Verdict::Fastest}}) {
            judged = {&other, 1};
            EXPECT(taken() == least, "%s of %s, %s, %d", name, other.gpu, other.part, other.D);
        }
    }
    std::vector<Judged> failed;
    for (const char* name : names)
        failed.push_back({gpu.name, "attention_forward", kD, name, Verdict::Failed});
    for (size_t out = 0; out < names.size(); out++) {      // all but one
        std::vector<Judged> others = failed;
        others.erase(others.begin() + ptrdiff_t(out));
        judged = others;
        EXPECT(taken() == floor_of(names[out]), "%s is left", names[out]);
    }
    judged = before;
}

TEST(what_failed_is_not_timed) {
    const auto names = fitting();
    if (names.size() < 2) return;
    cudaDeviceProp gpu;
    CUDA_CHECK(cudaGetDeviceProperties(&gpu, cuda_device().index));
    const cuda::ScratchSizes sizes = {.N = 70, .T = 70, .C = kD, .NH = 1, .D = kD, .F = kD, .chunk = 8,
                                      .Vp = 64};
    const CudaScratch lent(sizes);
    const OnDevice memory(std::vector<std::byte>(cuda::attention_tuning_bytes(sizes)));
    const Judged failed = {gpu.name, "attention_forward", kD, names[0], Verdict::Failed};
    const auto before = judged;
    judged = {&failed, 1};
    size_t forward = 0;
    for (const auto& t : cuda::attention_tune(sizes, memory, 1)) {
        if (!t.what.starts_with("attention_forward")) continue;
        forward++;
        EXPECT(std::string(t.variant) != names[0]);
    }
    EXPECT(forward == names.size() - 1, "%zu of %zu", forward, names.size());
    judged = before;
}

// The names of kernels without heads count whatever the size.
TEST(all_that_have_variants_ask) {
    cudaDeviceProp gpu;
    CUDA_CHECK(cudaGetDeviceProperties(&gpu, cuda_device().index));
    const cuda::Sized work = {cuda::Part::LayernormForward, {kD}};
    const auto before = judged;
    const Judged fastest = {gpu.name, "layernorm_forward", 0, "4warps", Verdict::Fastest};
    judged = {&fastest, 1};
    EXPECT(cuda::variant_of(work, cuda::kLayernormForwards) == kCounts);
    const Judged failed[] = {{gpu.name, "layernorm_forward", 0, "8warps", Verdict::Failed},
                             {gpu.name, "layernorm_forward", 0, "4warps", Verdict::Failed}};
    judged = {failed, 1};
    EXPECT(cuda::variant_of(work, cuda::kLayernormForwards) == kCounts);
    judged = failed;
    if (kCounts) {
        const Fatal fatal = test::fatal_of([&] { cuda::some_variant_of(work, cuda::kLayernormForwards); });
        EXPECT(std::string(fatal.what()).find("layernorm_forward 64: every variant") != std::string::npos,
               "'%s'", fatal.what());
    }
    judged = before;
    EXPECT(cuda::variant_of(work, cuda::kLayernormForwards) == 0);
}

// Of products the fused way is out, or the other the fastest.
TEST(products_ask_as_well) {
    cudaDeviceProp gpu;
    CUDA_CHECK(cudaGetDeviceProperties(&gpu, cuda_device().index));
    const cuda::ScratchSizes sizes = {.N = 16, .T = 16, .C = kD, .NH = 1, .D = kD, .F = kD, .chunk = 16,
                                      .Vp = kD};
    const CudaScratch lent(sizes);
    const OnDevice memory(std::vector<std::byte>(cuda::matmul_tuning_bytes(sizes)));
    const auto before = judged;
    const Judged failed = {gpu.name, "gelu_input", 0, "fused", Verdict::Failed};
    judged = {&failed, 1};
    int fused = 0, unfused = 0;
    for (const auto& t : cuda::matmul_tune(sizes, memory, 1))
        if (t.what.starts_with("gelu_input")) (std::string(t.variant) == "fused" ? fused : unfused)++;
    EXPECT(unfused > 0 && (fused > 0) == !kCounts, "%d and %d", fused, unfused);

    const Judged fastest = {gpu.name, "gelu_input", 0, "unfused", Verdict::Fastest};
    const std::vector<floatX> values(kD * kD);
    const OnDevice dpre(values), dout(values), w(values), pre(values);
    const std::span<const Judged> said[] = {{}, {&fastest, 1}};
    for (const int i : {0, 1}) {
        judged = said[i];
        const int N = 24 + 8 * i;               // sizes for which nothing is chosen yet
        cuda::matmul_gelu_backward_input(dpre, dout, w, pre, N, kD, kD);
        const std::string line = strf("gelu_input %d %d %d %d ", N, kD, kD, i == 1 && kCounts);
        EXPECT(cuda::matmul_choices().find(line) != std::string::npos, "no '%s' in %s", line.c_str(),
               cuda::matmul_choices().c_str());
    }
    judged = before;
}

static std::string text_of(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}
static std::string written(const std::string& results, const std::string& out) {
    const test::Ran ran = test::run("/usr/bin/python3 dev/winners.py --out=" + out + " " + results);
    EXPECT(ran.code == 0, "%s", ran.err.c_str());
    return text_of(out);
}

#ifdef CUDA_EMU         // on a GPU, its own results are not in winners.h yet
TEST(winners_are_written_from_results) {
    const std::string folder = test::temporary_directory(), out = folder + "/winners.h";
    EXPECT(written("", out) == text_of("llmc/ops/cuda/winners.h"), "dev/winners.py has not been run");
    const auto row = [](const char* op, const char* variant, double us, bool right) {
        return strf(R"({"op": "%s", "variant": "%s", "us": %g, "right": %s})", op, variant, us,
                    right ? "true" : "false");
    };
    std::ofstream(folder + "/a.json")
        << R"({"gpu": "NVIDIA Test", "parts": [{"part": "gemm", "results": [{"op": "x", "variant": 1}]},)"
        << R"({"part": "attention", "results": [)"
        << row("attention_forward 4 64 2 64", "a", 5, true) << ","
        << row("attention_forward 4 64 2 64", "b", 4, true) << ","
        << row("attention_forward 8 64 2 64", "a", 5, true) << ","
        << row("attention_forward 8 64 2 64", "b", 7, true) << ","
        << row("attention_keys 4 64 2 64", "a", 2, true) << ","
        << row("attention_keys 4 64 2 64", "b", 1, false) << ","
        << row("attention_forward 4 64 2 128", "b", 1, true) << "]},"
        << R"({"part": "variants", "results": [)"
        << row("layernorm_forward 768", "8warps", 2, true) << ","
        << row("layernorm_forward 768", "4warps", 1, true) << "]}]}";
    std::ofstream(folder + "/b.json")
        << R"({"gpu": "NVIDIA Test", "parts": [{"part": "attention", "results": [)"
        << row("attention_forward 4 64 2 128", "c", 9, true) << "]}]}";
    const std::string text = written(folder + "/a.json " + folder + "/b.json", out);
    for (const char* words : {"array<Judged, 5>",
                              R"({"NVIDIA Test", "attention_forward", 64, "a", Verdict::Fastest})",
                              R"({"NVIDIA Test", "attention_keys", 64, "a", Verdict::Fastest})",
                              R"({"NVIDIA Test", "attention_keys", 64, "b", Verdict::Failed})",
                              R"({"NVIDIA Test", "attention_forward", 128, "c", Verdict::Fastest})",
                              R"({"NVIDIA Test", "layernorm_forward", 0, "4warps", Verdict::Fastest})"})
        EXPECT(text.find(words) != std::string::npos, "no '%s' in %s", words, text.c_str());
    std::ofstream(folder + "/use.cpp") << "#include \"llmc/ops/cuda/verdicts.h\"\n"
        << "static_assert(kJudged.size() == 5 && kJudged[0].D == 64);\n";
    const std::string there = folder + "/llmc/ops/cuda/";
    const test::Ran compiled =
        test::run("mkdir -p " + there + " && cp llmc/ops/cuda/verdicts.h " + out + " " + there +
                  " && g++ -std=c++20 -fsyntax-only -I" + folder + " " + folder + "/use.cpp");
    EXPECT(compiled.code == 0, "%s", compiled.err.c_str());
}
#endif

}  // namespace PRECISION

#include "llmc/ops/cuda/variants.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "llmc/base/check.h"
#include "llmc/ops/cuda/gemm.h"

namespace PRECISION {
namespace cuda {

static constexpr struct {
    const char* name;
    int sizes;
} kParts[] = {{"attention_forward", 4},  {"attention_queries", 4}, {"attention_keys", 4},
              {"layernorm_forward", 1},  {"layernorm_backward", 1},
              {"classifier", 1},         {"adamw_update", 0}};

std::string text_of(const Sized& work) {
    const auto& part = kParts[int(work.part)];
    std::string text = part.name;
    for (int i = 0; i < part.sizes; i++) text += strf(" %d", work.sizes[size_t(i)]);
    return text;
}

// The variant's name.
static std::map<Sized, std::string>& chosen() {
    thread_local std::map<Sized, std::string> of_rank;
    return of_rank;
}
bool is_chosen(const Sized& work) { return chosen().contains(work); }
void choose(const Sized& work, const char* variant) { chosen()[work] = variant; }

Verdict verdict_here(const char* part, int D, const char* variant) {
    if (dtype_of<floatX> != DType::BF16) return Verdict::None;
    thread_local const std::string gpu = [] {
        cudaDeviceProp properties;
        CUDA_CHECK(cudaGetDeviceProperties(&properties, cuda_device().index));
        return std::string(properties.name);
    }();
    return verdict_of(gpu.c_str(), part, D, variant);
}
static Verdict verdict(const Sized& work, const char* variant) {
    return verdict_here(kParts[int(work.part)].name, work.sizes[3], variant);
}
bool has_failed(const Sized& work, const char* variant) { return verdict(work, variant) == Verdict::Failed; }

int variant_of(const Sized& work, Names names) {
    const auto found = chosen().find(work);
    int first = -1, fastest = -1;
    for (int i = 0; i < int(names.size()); i++) {
        const Verdict known = verdict(work, names[size_t(i)]);
        if (known == Verdict::Failed) continue;
        if (found != chosen().end() && found->second == names[size_t(i)]) return i;
        if (known == Verdict::Fastest) fastest = i;
        if (first < 0) first = i;
    }
    return fastest < 0 ? first : fastest;
}

int some_variant_of(const Sized& work, Names names) {
    const int i = variant_of(work, names);
    CHECK(i >= 0, "%s: every variant of it has failed on a GPU of this kind (llmc/ops/cuda/winners.h)",
          text_of(work).c_str());
    return i;
}

std::string header_of(const char* choices) {
    return strf("%s %s, %s\n", choices, name_of(dtype_of<floatX>), gemm_platform());
}

std::string variant_choices() {
    std::string text = header_of("variants");
    for (const auto& [work, variant] : chosen()) text += text_of(work) + ' ' + variant + '\n';
    return text;
}

int use_variant_choices(const std::string& text) {
    const std::string header = header_of("variants");
    if (!text.starts_with(header)) return 0;
    std::istringstream lines(text.substr(header.size()));
    int taken = 0;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::string name, variant;
        fields >> name;
        const auto* part = std::find_if(std::begin(kParts), std::end(kParts),
                                        [&](const auto& p) { return p.name == name; });
        if (part == std::end(kParts)) continue;
        Sized work = {Part(part - kParts)};
        for (int i = 0; i < part->sizes; i++) fields >> work.sizes[size_t(i)];
        fields >> variant;
        if (fields) choose(work, variant.c_str()), taken++;
    }
    return taken;
}

}  // namespace cuda
}  // namespace PRECISION

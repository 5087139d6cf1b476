// The choices between products and between variants as one text: a section of each, with an empty line behind
// it.
#include "llmc/ops/tuning.h"

#include <algorithm>
#include <vector>

#include "llmc/ops/cuda/attention.h"
#include "llmc/ops/cuda/matmul.h"

namespace PRECISION {
namespace cuda {

static constexpr int kRepeats = 5;

// The emulated device's times are those of a CPU. Without any device the plan is a GPU's.
static bool has_times() {
    static const bool has = [] {
        int count = 0;
        if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return true;
        return !device_name().starts_with("emulated");
    }();
    return has;
}

size_t tuning_bytes(const ScratchSizes& s) {
    if (!has_times()) return 0;
    return std::max({matmul_tuning_bytes(s), attention_tuning_bytes(s), streaming_tuning_bytes(s)});
}

void tune(const ScratchSizes& s, void* memory) {
    matmul_tune(s, memory, kRepeats);
    attention_tune(s, memory, kRepeats);
    streaming_tune(s, memory, kRepeats);
}

size_t trial_bytes(const ScratchSizes& s) {
    if (!has_times()) return 0;
    return std::max({matmul_trial_bytes(s), attention_trial_bytes(s), streaming_trial_bytes(s)});
}
void try_choices(const ScratchSizes& s, void* memory) {
    matmul_try(s, memory);
    attention_try(s, memory);
    streaming_try(s, memory);
}

bool tuned(const ScratchSizes& s) { return matmul_tuned(s) && attention_tuned(s) && streaming_tuned(s); }

static std::vector<std::string> sections_of(const std::string& text) {
    std::vector<std::string> sections;
    for (size_t begin = 0, end; begin < text.size(); begin = end + 2) {
        end = std::min(text.find("\n\n", begin), text.size());
        sections.push_back(text.substr(begin, end - begin) + '\n');
    }
    return sections;
}

// "matmul bf16, cuBLASLt 130100, NVIDIA H200"
static std::string first_line(const std::string& section) { return section.substr(0, section.find('\n')); }

std::string choices(const std::string& others) {
    const std::string own[] = {matmul_choices(), variant_choices()};
    std::string text;
    for (const std::string& section : own) text += section + '\n';
    for (const std::string& section : sections_of(others)) {
        const auto same = [&](const std::string& s) { return first_line(s) == first_line(section); };
        if (std::none_of(std::begin(own), std::end(own), same)) text += section + '\n';
    }
    return text;
}

void use_choices(const std::string& text) {
    for (const std::string& section : sections_of(text))
        if (use_matmul_choices(section) == 0) use_variant_choices(section);
}

}  // namespace cuda
}  // namespace PRECISION

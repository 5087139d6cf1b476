// Format of the text: a section per precision, library and GPU. A section is a line with these names, a line
// per task, and an empty line.
#include "llmc/ops/cuda/tuning/choices.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/ops/backend_tuning.h"

namespace PRECISION {
namespace cuda {

static constexpr struct {
    const char* name;
    size_t sizes;
} kOps[] = {{"forward", 3},       {"bias_forward", 3},      {"gelu_forward", 3},      {"relu2_forward", 3},
            {"swiglu_forward", 3}, {"input", 3},            {"gelu_input", 3},        {"relu2_input", 3},
            {"swiglu_input", 3},  {"weight", 3},            {"weight_bias", 3},       {"fp8_forward", 3},
            {"fp8_bias_forward", 3}, {"fp8_input", 3},      {"attention_forward", 4},
            {"attention_queries", 4}, {"attention_keys", 4}};

static constexpr std::string_view kBatch = "_batch";    // behind the name of a product; a fourth size

static bool is_product(Op op) { return op < Op::AttentionForward; }

static std::map<Task, Candidate>& chosen() {
    thread_local std::map<Task, Candidate> of_rank;
    return of_rank;
}
const Candidate* chosen_for(const Task& task) {
    const auto found = chosen().find(task);
    return found == chosen().end() ? nullptr : &found->second;
}
void choose(const Task& task, const Candidate& candidate) { chosen()[task] = candidate; }

// ---------------------------------------------------------------------------------------------------------
// text

std::string text_of(const Task& task) {
    const auto& op = kOps[int(task.op)];
    const bool batch = is_product(task.op) && task.sizes[3] > 0;
    std::string text = op.name + std::string(batch ? kBatch : "");
    for (size_t i = 0; i < op.sizes + batch; i++) text += fmt::format(" {}", task.sizes[i]);
    return text;
}

std::string text_of(const Task& task, const Candidate& candidate) {
    std::string text = candidate.kernel;
    if (is_product(task.op))
        for (const uint64_t word : candidate.algorithm.words) text += fmt::format(" {:016x}", word);
    return text;
}

// "BF16, cuBLASLt 130100, NVIDIA H200": algorithms and times hold there only.
static std::string first_line() { return fmt::format("{}, {}", name_of(dtype_of<floatX>), gemm_platform()); }
static std::string first_line_of(const std::string& section) { return section.substr(0, section.find('\n')); }

static std::vector<std::string> sections_of(const std::string& text) {
    std::vector<std::string> sections;
    for (size_t begin = 0, end; begin < text.size(); begin = end + 2) {
        end = std::min(text.find("\n\n", begin), text.size());
        sections.push_back(text.substr(begin, end - begin) + '\n');
    }
    return sections;
}

std::string choices(const std::string& others) {
    std::string text = first_line() + '\n';
    for (const auto& [task, candidate] : chosen())
        text += text_of(task) + ' ' + text_of(task, candidate) + '\n';
    text += '\n';
    for (const std::string& section : sections_of(others))
        if (first_line_of(section) != first_line()) text += section + '\n';
    return text;
}

// A line that cannot be read chooses nothing.
static void use_line(const std::string& line) {
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    const bool batch = name.ends_with(kBatch);
    if (batch) name.resize(name.size() - kBatch.size());
    const auto* op =
        std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& o) { return o.name == name; });
    if (op == std::end(kOps)) return;
    Task task = {Op(op - kOps)};
    if (batch && !is_product(task.op)) return;
    Candidate candidate;
    for (size_t i = 0; i < op->sizes + batch; i++) fields >> task.sizes[i];
    fields >> candidate.kernel >> std::hex;
    if (is_product(task.op))
        for (uint64_t& word : candidate.algorithm.words) fields >> word;
    if (fields) choose(task, candidate);
}

void use_choices(const std::string& text) {
    for (const std::string& section : sections_of(text)) {
        if (first_line_of(section) != first_line()) continue;
        std::istringstream lines(section);
        for (std::string line; std::getline(lines, line);) use_line(line);
    }
}

}  // namespace cuda
}  // namespace PRECISION

// Times the candidates of a model's products and attention, and compares the results of chosen candidates
// with those of the simplest kernels.
#include "llmc/ops/backend_tuning.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/ops/cuda/tuning/workload.h"

namespace PRECISION {
namespace cuda {

static constexpr int kRepeats = 5;

static Task product_task(const ProductShape& p) {
    CHECK(p.op != ProductShape::Gram, "no task for x x^T: on a GPU gram() calls other products");
    const Op fp8_forward = p.bias ? Op::Fp8BiasForward : Op::Fp8Forward;
    if (p.fp8) return {p.op == ProductShape::Input ? Op::Fp8Input : fp8_forward, {p.m, p.k, p.n}};
    if (p.op == ProductShape::Weight) return {p.bias ? Op::WeightBias : Op::Weight, {p.k, p.n, p.m, p.batch}};
    if (p.op == ProductShape::Input) return {input_op(p.activation), {p.m, p.n, p.k, p.batch}};
    const Op forward = forward_op(p.activation, p.bias);
    return {forward, {p.m, p.k, forward == Op::SwigluForward ? p.n / 2 : p.n, p.batch}};
}

// In the order of their first call. Attention over a cache (Tq < Tk) runs where it is not worth a choice.
std::vector<Task> tasks_of(const Walk& walk) {
    std::vector<Task> tasks;
    const auto add = [&](const Task& task) {
        if (std::find(tasks.begin(), tasks.end(), task) == tasks.end()) tasks.push_back(task);
    };
    for (const Cost& c : walk.costs) {
        const AttentionShape& a = c.attention;
        if (c.kind == Kind::Product) add(product_task(c.product));
        if (c.kind != Kind::Attention || a.Tq != a.Tk) continue;
        const std::array<int, 4> sizes = {a.B, a.Tq, a.NH, a.D};
        if (a.backward) add({Op::AttentionQueries, sizes}), add({Op::AttentionKeys, sizes});
        else add({Op::AttentionForward, sizes});
    }
    return tasks;
}

static bool is_attention(const Task& task) { return task.op >= Op::AttentionForward; }

std::vector<Candidate> candidates_of(const Task& task) {
    return is_attention(task) ? attention_candidates(task) : product_candidates(task);
}
std::string candidate_names() { return product_kernels() + attention_kernels(); }

static Workload workload_of(const Task& task, void* memory, bool compares) {
    return is_attention(task) ? attention_workload(task, memory, compares)
                              : product_workload(task, memory, compares);
}

// ---------------------------------------------------------------------------------------------------------
// time

// Mean time of f(), which only launches kernels, after a call to warm up.
template <class F> static float microseconds(F f, int repeats) {
    cudaEvent_t from, to;
    CUDA_CHECK(cudaEventCreate(&from));
    CUDA_CHECK(cudaEventCreate(&to));
    f();
    CUDA_CHECK(cudaEventRecord(from, cuda_device().compute));
    for (int i = 0; i < repeats; i++) f();
    CUDA_CHECK(cudaEventRecord(to, cuda_device().compute));
    CUDA_CHECK(cudaEventSynchronize(to));
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, from, to));
    CUDA_CHECK(cudaEventDestroy(from));
    CUDA_CHECK(cudaEventDestroy(to));
    return milliseconds * 1000 / float(repeats);
}

std::vector<Timing> time_candidates(const Task& task, void* memory, int repeats,
                                    const std::function<void()>& progress) {
    const auto candidates = candidates_of(task);
    std::vector<Timing> timings;
    if (candidates.empty()) return timings;
    const Workload work = workload_of(task, memory, false);
    work.fill();
    for (const Candidate& candidate : candidates) {
        timings.push_back({candidate, microseconds([&] { work.run(candidate); }, repeats)});
        progress();
    }
    return timings;
}

void tune(const Walk& walk, void* memory, const std::function<void()>& progress) {
    for (const Task& task : tasks_of(walk)) {
        const auto timings = time_candidates(task, memory, kRepeats, progress);
        const auto faster = [](const Timing& a, const Timing& b) { return a.microseconds < b.microseconds; };
        const auto best = std::min_element(timings.begin(), timings.end(), faster);
        if (best != timings.end()) choose(task, best->candidate);
    }
}

bool tuned(const Walk& walk) {
    const auto tasks = tasks_of(walk);
    return std::all_of(tasks.begin(), tasks.end(), [](const Task& task) {
        return chosen_for(task) || candidates_of(task).empty();
    });
}

// ---------------------------------------------------------------------------------------------------------
// results

static std::vector<double> on_host(const Comparison& c, const void* tensor, size_t rows) {
    const size_t size = size_of(c.type);
    std::vector<std::byte> bytes(((rows - 1) * c.stride + c.columns) * size);
    copy_to_host(bytes.data(), tensor, bytes.size());
    std::vector<double> values;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = r * c.stride; i < r * c.stride + c.columns; i++)
            values.push_back(c.type == DType::F32 ? double(reinterpret_cast<const float*>(bytes.data())[i])
                                                  : double(reinterpret_cast<const floatX*>(bytes.data())[i]));
    return values;
}

// |values - expected| / |expected|, of the first rows.
static double relative_difference(const Comparison& c) {
    constexpr size_t kMost = size_t(1) << 18;
    const size_t rows = std::min(c.rows, std::max(size_t(1), kMost / c.columns));
    const auto values = on_host(c, c.values, rows), expected = on_host(c, c.expected, rows);
    double difference = 0, size = 0;
    for (size_t i = 0; i < values.size(); i++) {
        const double d = values[i] - expected[i];
        difference += d * d, size += expected[i] * expected[i];
    }
    return difference == 0 ? 0 : std::sqrt(difference / size);
}

// Attention without tensor cores takes long: at most 256 tokens of one sequence.
static Task to_compare(Task task) {
    if (is_attention(task)) task.sizes[0] = 1, task.sizes[1] = std::min(task.sizes[1], 256);
    return task;
}

std::string differences(const Task& task, const Candidate& candidate, void* memory) {
    const Workload work = workload_of(to_compare(task), memory, true);
    work.fill();
    work.run(candidate);
    work.run_simplest();
    std::string text;
    for (const Comparison& c : work.comparisons) {
        const double off = relative_difference(c);
        if (!(off <= c.tolerance))
            text += fmt::format("{}{}, {}: off by {:.2g}, expected less than {:g}", text.empty() ? "" : "; ",
                                text_of(task), c.tensor, off, c.tolerance);
    }
    return text;
}

void check_choices(const Walk& walk, void* memory) {
    std::string text;
    for (const Task& task : tasks_of(walk)) {
        const auto candidates = candidates_of(task);
        if (candidates.empty()) continue;
        const Candidate* const chosen = chosen_for(task);
        const std::string wrong = differences(task, chosen ? *chosen : candidates[0], memory);
        if (!wrong.empty()) text += (text.empty() ? "" : "; ") + wrong;
        beat();
    }
    CHECK(text.empty(), "kernels give wrong results on this GPU: {}. Please report it with the results of "
          "scripts/gpu_check.sh", text);
}

// ---------------------------------------------------------------------------------------------------------
// memory

// The emulated device's times are those of a CPU. Without any device the plan is a GPU's.
static bool has_times() {
    static const bool has = [] {
        int count = 0;
        if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return true;
        return !device_name().starts_with("emulated");
    }();
    return has;
}

size_t workload_bytes(const Task& task) {
    return std::max(workload_of(task, nullptr, false).bytes,
                    workload_of(to_compare(task), nullptr, true).bytes);
}

size_t tuning_bytes(const Walk& walk) {
    size_t most = 0;
    if (has_times())
        for (const Task& task : tasks_of(walk)) most = std::max(most, workload_bytes(task));
    return most;
}

}  // namespace cuda
}  // namespace PRECISION

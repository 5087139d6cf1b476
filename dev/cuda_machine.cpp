// Writes a machine file for this machine's GPU: --plan --cluster.file=FILE prices runs by its rates.
//
//     cuda_machine FILE [--size=8192] [--B=4] [--T=2048] [--C=2048] [--NH=16]
//
// The program measures products of up to (size, size) in BF16 and FP32, causal attention of these sizes
// (forward and backward), copies on the device and from the host, launches, and memory. Links and price of a
// GPU in scripts/machines/ stay the table's; for other GPUs links are assumed, and "sources" says so. The
// emulation runs the program too; its times mean nothing.
#include "dev/cuda_times.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/progress.h"
#include "llmc/train/price/cluster.h"

// A part of the name in cudaDeviceProp, and the file of scripts/machines/, or none; the first match counts. A
// PCIe card has other links, power and price than the SXM module of its name.
struct Known { const char *contained, *file; };
static constexpr Known kKnown[] = {
    {"A100-SXM4-40GB", "a100_40"}, {"A100-SXM4-80GB", "a100"}, {"A100-SXM-80GB", "a100"},
    {"H100 PCIe", "h100_pcie"}, {"H100 80GB HBM3", "h100"}, {"H200 NVL", ""}, {"GH200", ""}, {"H200", "h200"},
    {"GB200", ""}, {"B200", "b200"}, {"Laptop GPU", ""}, {"Max-Q", ""}, {"RTX 4090 D", ""},
    {"RTX 5090 D", ""},
    {"GeForce RTX 4090", "rtx4090"}, {"GeForce RTX 5090", "rtx5090"}, {"L40S", "l40s"},
    {"RTX PRO 6000 Blackwell", "rtx_pro_6000"}};

static std::string file_of(std::string_view name) {
    for (const auto& [contained, file] : kKnown)
        if (name.find(contained) != name.npos) return file;
    return "";
}

// FLOP/s of causal attention, forward and backward together, by the fastest kernels.
static double attention_rate(const Sizes& o) {
    const Walk step = step_of(o);
    double flops = 0, seconds = 0;
    for (const Cost& cost : step.costs)                     // distinct: a cost per direction
        if (cost.kind == Kind::Attention) flops += cost.flops;
    for (const Task& task : tasks_of(step)) {
        if (task.op < Op::AttentionForward) continue;
        const Memory memory(workload_bytes(task), step.needs().scratch);
        double best = INFINITY;
        for (const Timing& t : time_candidates(task, memory.data, kRepeats))
            best = std::min(best, 1e-6 * double(t.microseconds));
        seconds += best;
    }
    return flops / seconds;
}

// Bytes a second from pinned memory of the host.
static double host_rate(size_t bytes) {
    const Memory memory(bytes, kScratchAlign);
    void* const host = host_allocate(bytes);
    const double seconds = seconds_of([&] { copy_to_device(memory.data, host, bytes); });
    host_free(host, bytes);
    return double(bytes) / seconds;
}

static double seconds_of_launch() {
    const Memory memory(256, kScratchAlign);
    constexpr int kOps = 1000;
    return seconds_of([&] { for (int i = 0; i < kOps; i++) set_zero(memory.data, 256); }) / kOps;
}

// BF16 products are slower in a step than alone: under its power limit a busy GPU lowers its clock. This
// share is of one H100 and one H200: plans by it are within 11% of 14 measured steps, median -2%. Plans by
// the rates alone are mostly 8 to 14% too fast.
static constexpr double kInSteps = 0.87;

// FLOP/s of square products, by side.
template <class T> static std::vector<std::pair<int, double>> product_rates(int size, DType type) {
    std::vector<std::pair<int, double>> rates;
    for (int side = std::max(16, size / 8); side <= size; side *= 2)
        rates.emplace_back(side, product_rate<T>(side, type).flops_per_second);
    return rates;
}

static double largest(const std::vector<std::pair<int, double>>& rates) {
    double most = 0;
    for (const auto& [side, rate] : rates) most = std::max(most, rate);
    return most;
}

// {"1024": 0.4, "8192": 0.7}
static std::string shares_of(const std::vector<std::pair<int, double>>& rates, double peak) {
    std::string text;
    for (const auto& [side, rate] : rates)
        text += fmt::format("{}\"{}\": {:.4g}", text.empty() ? "" : ", ", side, std::min(1.0, rate / peak));
    return "{" + text + "}";
}

// The table's rate of FP32, in FLOP/s; 0: no such file here.
static double stated_fp32(const std::string& file) {
    if (file.empty() || !file_exists(machines_folder() + "/" + file + ".json")) return 0;
    return 1e12 * machine_of({.gpu = file, .file = ""}).fp32_tflops;
}

static std::string machine_file(const Sizes& o) {
    std::string name = device_name();
    if (name.starts_with("cuda: ")) name = name.substr(6);
    const std::string file = file_of(name);
    const double memory = double(device_available());
    auto bf16 = product_rates<bfloat16>(o.size, DType::BF16);
    const auto fp32 = product_rates<float>(o.size, DType::F32);
    const double stated = device_tflops() > 0 ? 1e12 * device_tflops() : largest(bf16);
    for (auto& [side, rate] : bf16) rate *= kInSteps;
    const double fp32_of_table = stated_fp32(file);
    const double fp32_peak = fp32_of_table > 0 ? fp32_of_table : largest(fp32);
    const double host = host_rate(size_t(o.size) * size_t(o.size));
    const auto share = [&](double rate) { return std::min(1.0, rate / stated); };
    std::string text = fmt::format("{{\n  \"gpu\": \"{}\",\n", file.empty() ? name : file);
    const auto add = [&](const char* key, double value) {
        text += fmt::format("  \"{}\": {:.4g},\n", key, value);
    };
    add("memory_gb", 1e-9 * memory);
    add("reached", share(bf16.back().second));
    text += fmt::format("  \"reached_by\": {{\"bf16\": {}, \"fp32\": {}}},\n", shares_of(bf16, stated),
                        shares_of(fp32, fp32_peak));
    if (fp32_of_table == 0) add("fp32_tflops", 1e-12 * fp32_peak);
    add("attention", share(attention_rate(o)));
    add("copy_gbs", 1e-9 * copy_rate(o.size).per_second);
    add("host_gbs", 1e-9 * host);
    add("launch_us", 1e6 * seconds_of_launch());
    add("units", cuda_device().processors);
    std::string sources = fmt::format(
        "measured on {}, {}; reached, of BF16: {} of what a product reaches alone", name, today(), kInSteps);
    if (file.empty()) {
        add("bf16_tflops", 1e-12 * stated);
        add("gpus_per_node", 1), add("node_gbs", 1e-9 * host), add("node_us", 15);
        add("network_gbs", 12.5), add("network_us", 20), add("links", 0.8);
        sources += "; assumed: a GPU a node, 100 Gb/s between nodes";
    }
    return text + fmt::format("  \"sources\": \"{}\"\n}}\n", sources);
}

int main(int argc, char** argv) {
    Sizes o = {.B = 4, .T = 2048, .C = 2048, .NH = 16};
    std::string path;
    for (int i = 1; i < argc; i++)
        if (!take_size(o, argv[i])) path = argv[i];
    CHECK_INPUT(!path.empty() && path[0] != '-', "cuda_machine '{}': expected the path of the file to write",
                path);
    check_sizes(o);
    const std::string text = machine_file(o);
    write_file(path, text);
    printf("%s%s: plans by these rates: ./train_gpt CONFIG --plan --cluster.file=%s\n", text.c_str(),
           path.c_str(), path.c_str());
}

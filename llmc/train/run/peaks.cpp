#include "llmc/train/run/peaks.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/host/cache_file.h"
#include "llmc/base/json/json_value.h"
#include "llmc/base/numbers/dtype.h"
#include "llmc/comm/votes.h"
#include "llmc/ops/arena.h"
#include "llmc/ops/ops.h"

namespace PRECISION::inline runs {

double matmul_tflops() {
    constexpr int n = 1024;
    const auto product = [](floatX* c, const floatX* a, const floatX* b) {
        ops::matmul_forward(c, a, b, nullptr, n, n, n);
    };
    const size_t scratch_bytes = ops::needs_of([&] { product(nullptr, nullptr, nullptr); }).scratch;
    Arena arena;
    floatX *a, *b, *c;
    std::byte* scratch;
    arena.add("a", &a, n * n);
    arena.add("b", &b, n * n);
    arena.add("c", &c, n * n);
    arena.add("scratch", &scratch, scratch_bytes);
    arena.allocate(ops::device_allocate, ops::device_free);
    ops::lend_scratch(scratch, scratch_bytes);
    std::vector<floatX> values(n * n);
    for (int i = 0; i < n * n; i++) values[size_t(i)] = floatX(float(i % 97) / 97);
    ops::copy_to_device(a, values.data(), n * n * sizeof(floatX));
    ops::copy_to_device(b, values.data(), n * n * sizeof(floatX));
    ops::synchronize();

    double best = 1e30, spent = 0;
    for (int i = 0; i < 4 && spent < 0.5; i++) {
        using clock = std::chrono::steady_clock;
        const auto begin = clock::now();
        product(c, a, b);
        ops::synchronize();
        const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
        best = std::min(best, seconds);
        spent += seconds;
    }
    ops::lend_scratch(nullptr, 0);
    return 2.0 * n * n * n / best / 1e12;
}

// A busy machine measures less than it can do: the best rate of all runs is kept, by precision and threads.
double best_tflops(double found) {
    const std::string path = cache_path("matmul_rates.json");
    if (path.empty()) return found;
    const std::string key = fmt::format("{}, {} bytes a number, {}", ops::device_name(), sizeof(floatX),
                                        counted(ops::target().threads, "thread"));
    Json::Members rates;
    try {
        const Json file = file_exists(path) ? parse_json(read_file(path)) : Json(rates);
        const Json* known = file.find(key);
        if (known && known->number() >= found) return known->number();
        rates = file.members();
    } catch (const JsonError&) {}       // damaged: written anew
    std::erase_if(rates, [&](const auto& rate) { return rate.first == key; });
    rates.emplace_back(key, found);
    (void)try_keep(path, to_text(rates) + "\n");      // without the file, the next run measures
    return found;
}

double peak_tflops(const Axis& ranks, const LogConfig& log) {
    if (log.peak_tflops > 0) return log.peak_tflops * ranks.size;
    const double mine = ops::reached_by_host() ? best_tflops(matmul_tflops()) : ops::device_tflops();
    const auto [sum, unknown] = sum_over<2>(ranks, {mine, mine > 0 ? 0. : 1.});
    return unknown > 0 ? 0 : sum;
}

}  // namespace PRECISION::runs

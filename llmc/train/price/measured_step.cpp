#include "llmc/train/price/measured_step.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/host/cache_file.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/host/version.h"
#include "llmc/base/sha256.h"

inline namespace price {

// ---------------------------------------------------------------------------------------------------------
// prices

static std::string axis_of(const Cost& cost) { return cost.axis ? cost.axis : ""; }

bool MeasuredOp::is(const Cost& cost) const {
    return name == cost.name && axis == axis_of(cost) && kind == cost.kind &&
           sizes == cost.sizes() && flops == cost.flops && read == cost.read &&
           written == cost.written;
}

static double work_of(double flops, uint64_t read, uint64_t written) {
    return flops > 0 ? flops : double(read + written);
}

// How many times as large as each other two ops are, in powers of two over all their sizes; never 0.
static double distance(const MeasuredOp& a, const Cost& b) {
    const auto doublings = [](double x, double y) { return std::abs(std::log2(x / y)); };
    double sum = doublings(a.work(), work_of(b.flops, b.read, b.written));
    const auto sizes = b.sizes();
    for (size_t i = 0; i < sizes.size(); i++)
        sum += doublings(1 + std::abs(a.sizes[i]), 1 + std::abs(sizes[i]));
    return std::max(sum, 0.01);
}

bool MeasuredOp::is(const MeasuredOp& o) const {
    return name == o.name && axis == o.axis && kind == o.kind && sizes == o.sizes && flops == o.flops &&
           read == o.read && written == o.written;
}

void merge(std::vector<MeasuredOp>& to, const std::vector<MeasuredOp>& more, bool stages) {
    for (const MeasuredOp& op : more) {
        const auto known = std::find_if(to.begin(), to.end(), [&](const MeasuredOp& o) { return o.is(op); });
        if (known == to.end()) {
            to.push_back(op);
            continue;
        }
        const double calls = known->calls + op.calls;
        const double mean = (known->calls * known->seconds + op.calls * op.seconds) / calls;
        known->seconds = stages && !op.axis.empty() ? std::min(known->seconds, op.seconds) : mean;
        known->calls = calls;
    }
}

double MeasuredOp::work() const { return work_of(flops, read, written); }

double MeasuredStep::seconds_of(const Cost& cost) const {
    for (const MeasuredOp& op : ops)
        if (op.is(cost)) return op.seconds;
    const double work = work_of(cost.flops, cost.read, cost.written);
    if (work == 0) return 0;
    const auto interpolated = [&](auto&& like) {
        double logs = 0, weights = 0;   // logs: of seconds for a FLOP or byte, times weights
        for (const MeasuredOp& op : ops)
            if (op.kind == cost.kind && op.work() > 0 && op.seconds > 0 && like(op)) {
                const double weight = 1 / std::pow(distance(op, cost), 3);
                logs += weight * std::log(op.seconds / op.work());
                weights += weight;
            }
        return weights > 0 ? work * std::exp(logs / weights) : 0;
    };
    const double named =
        interpolated([&](const MeasuredOp& op) { return op.name == cost.name && op.axis == axis_of(cost); });
    if (named > 0) return named;
    return interpolated([](const MeasuredOp&) { return true; });
}

double MeasuredStep::copy_gbs() const {
    constexpr uint64_t kGB = 1000000000;
    const double seconds = seconds_of({.name = "copy", .kind = Kind::Memory, .read = kGB, .written = kGB});
    return seconds > 0 ? 1 / seconds : INFINITY;
}

// ---------------------------------------------------------------------------------------------------------
// the file

static constexpr int kFormat = 1;

static Json json_of(const MeasuredOp& op) {
    const Json::List sizes(op.sizes.begin(), op.sizes.end());
    return Json::List{op.name, op.axis,    int(op.kind), sizes,     op.flops,
                      op.read, op.written, op.calls,     op.seconds};
}

static MeasuredOp op_of(const Json& v) {
    const Json::List& row = v.list();
    const bool whole = row.size() == 9 && row[3].list().size() == 8;
    if (!whole) throw JsonError(JsonError::Type, "a row of an op has 9 values");
    MeasuredOp op = {.name = row[0].string(),
                     .axis = row[1].string(),
                     .kind = Kind(row[2].natural()),
                     .flops = row[4].number(),
                     .read = row[5].natural(),
                     .written = row[6].natural(),
                     .calls = row[7].number(),
                     .seconds = row[8].number()};
    for (size_t i = 0; i < op.sizes.size(); i++) op.sizes[i] = int(row[3].list()[i].integer());
    return op;
}

static Json json_of(const MeasuredStep& step) {
    Json::List ops;
    for (const MeasuredOp& op : step.ops) ops.push_back(json_of(op));
    return Json::Members{{"date", step.date},
                         {"layers", step.layers},
                         {"seconds", step.seconds},
                         {"tflops", step.tflops},
                         {"ops", ops}};
}

static MeasuredStep step_of(const Json& v) {
    MeasuredStep step = {.date = v.at("date").string(),
                         .layers = int(v.at("layers").natural()),
                         .seconds = v.at("seconds").number(),
                         .tflops = v.at("tflops").number(),
                         .ops = {}};
    for (const Json& op : v.at("ops").list()) step.ops.push_back(op_of(op));
    return step;
}

int measured_layers(const Config& cfg) {
    constexpr int kLayers = 4;      // as many as the patterns of windows have
    const int chunks = cfg.parallel.pp * cfg.parallel.virtual_stages;
    return std::min(cfg.model.layers, (kLayers + chunks - 1) / chunks * chunks);
}

// Settings that change what an op of a step takes, or which ops there are. Models with more layers than are
// measured share a measurement.
static std::string key_of(const Config& cfg, int ranks) {
    Config of;
    of.model = cfg.model;
    of.model.init = "random";
    of.model.depth = 0;
    of.model.layers = measured_layers(cfg);
    of.parallel = cfg.parallel;
    of.parallel.ranks = ranks;
    of.memory = cfg.memory;
    of.optimizer.kind = cfg.optimizer.kind;
    of.optimizer.iterations = cfg.optimizer.iterations;
    of.optimizer.polynomial = cfg.optimizer.polynomial;
    of.optimizer.stochastic_rounding = cfg.optimizer.stochastic_rounding;
    of.train.batch_tokens = cfg.train.batch_tokens;
    of.train.micro_batch = cfg.train.micro_batch;
    of.run.precision = cfg.run.precision;
    of.run.threads = cfg.run.threads;
    std::string key;
    for (const uint8_t byte : sha256(to_json(of))) key += fmt::format("{:02x}", byte);
    return key;
}

static std::string build() { return std::string(commit) + ", " + built_device; }

Json::Members MeasuredFile::steps() const {
    if (path.empty() || !file_exists(path)) return {};
    try {
        const Json root = parse_json(read_file(path));
        const bool same = root.at("format") == Json(kFormat) && root.at("device") == Json(device) &&
                          root.at("cores") == Json(cores()) && root.at("build") == Json(build());
        return same ? root.at("steps").members() : Json::Members();
    } catch (const JsonError& e) {
        warning("{}: no measurements of this program ({}); this machine is measured again", path, e.what());
        return {};
    }
}

std::optional<MeasuredStep> MeasuredFile::find(const Config& cfg, int ranks) const {
    const Json all = steps();
    const Json* found = all.find(key_of(cfg, ranks));
    if (!found) return std::nullopt;
    try {
        return step_of(*found);
    } catch (const JsonError& e) {
        warning("{}: a damaged measurement ({}); this machine is measured again", path, e.what());
        return std::nullopt;
    }
}

void MeasuredFile::keep(const Config& cfg, int ranks, const MeasuredStep& step) const {
    if (path.empty()) return;
    Json::Members all = steps();
    const std::string key = key_of(cfg, ranks);
    std::erase_if(all, [&](const auto& member) { return member.first == key; });
    all.emplace_back(key, json_of(step));
    const Json root = Json::Members{
        {"format", kFormat}, {"device", device}, {"cores", cores()}, {"build", build()}, {"steps", all}};
    const std::string reason = try_keep(path, to_text(root) + "\n");
    if (!reason.empty())
        warning("{} cannot be written: {}; the next --plan measures this machine again", path, reason);
}

}  // namespace price

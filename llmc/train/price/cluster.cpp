#include "llmc/train/price/cluster.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/json/json_file.h"

inline namespace price {

std::string machines_folder() { return beside_program("scripts/machines"); }

static std::vector<std::string> names_of_table() {
    std::vector<std::string> names;
    const std::string folder = machines_folder();
    for (const std::string& path : glob_files(folder + "/*.json"))
        names.push_back(path.substr(folder.size() + 1, path.size() - folder.size() - 6));
    return names;
}

std::string machine_names() {
    std::string text;
    for (const std::string& name : names_of_table()) text += (text.empty() ? "" : ", ") + name;
    return text;
}

static bool in_table(const std::string& name) {
    const std::vector<std::string> names = names_of_table();
    return std::find(names.begin(), names.end(), name) != names.end();
}

static void assign(std::string& to, const Json& v, const std::string& where) {
    CHECK_INPUT(v.is_string(), "{} = {}: expected a text", where, for_message(v));
    to = v.string();
}
static double positive(const Json& v, const std::string& where) {
    CHECK_INPUT(v.is_number() && v.number() >= 1e-9 && v.number() <= 1e12,
                "{} = {}: expected a number above 0, from 1e-9 to 1e12", where, for_message(v));
    return v.number();
}
static bool is_stated(const std::string& text) { return !text.empty(); }
static bool is_stated(double v) { return v > 0; }
static void assign(double& to, const Json& v, const std::string& where) { to = positive(v, where); }
static void assign(int& to, const Json& v, const std::string& where) {
    const double number = positive(v, where);
    CHECK_INPUT(number == std::floor(number) && number < 1e9, "{} = {}: expected an integer", where,
                for_message(v));
    to = int(number);
}

static double share_in(const Json& v, const std::string& where) {
    const double share = positive(v, where);
    CHECK_INPUT(share <= 1, "{} = {}: expected a share of at most 1", where, for_message(v));
    return share;
}

// A share for all sizes, or {"1024": 0.5, ...}. size: what a key is, for messages.
static std::vector<ReachedShare> shares_in(const Json& v, const std::string& where, const char* size) {
    if (v.is_number()) return {{.side = 0, .share = share_in(v, where)}};
    CHECK_INPUT(v.is_object() && !v.members().empty(),
                "{} = {}: expected a share, or shares by size, {{\"1024\": 0.5, \"8192\": 0.7}}", where,
                for_message(v));
    std::vector<ReachedShare> shares;
    for (const auto& [side, share] : v.members()) {
        const bool digits = side.find_first_not_of("0123456789") == side.npos;
        CHECK_INPUT(digits && side.size() >= 2 && side.size() <= 6 && side[0] != '0',
                    "{}: {}: expected {}, from 10 to 999999", where, for_message(side), size);
        shares.push_back({.side = std::stod(side), .share = share_in(share, where + ": " + side)});
    }
    std::sort(shares.begin(), shares.end(),
              [](const ReachedShare& a, const ReachedShare& b) { return a.side < b.side; });
    return shares;
}

static bool is_stated(const ReachedBy& by) { return !by.bf16.empty() || !by.fp32.empty(); }
static void assign(ReachedBy& to, const Json& v, const std::string& where) {
    CHECK_INPUT(v.is_object(), "{} = {}: expected {{\"bf16\": 0.7, \"fp32\": 0.8}}", where,
                for_message(v));
    for (const auto& [dtype, shares] : v.members()) {
        CHECK_INPUT(dtype == "bf16" || dtype == "fp32", "{}: there is no {}; expected bf16, fp32", where,
                    for_message(dtype));
        (dtype == "bf16" ? to.bf16 : to.fp32) =
            shares_in(shares, where + ": " + dtype, "the side of square matrices");
    }
}

static bool is_stated(const AttentionShares& a) { return a.any > 0 || !a.by_head.empty(); }
static void assign(AttentionShares& to, const Json& v, const std::string& where) {
    to = {};
    if (v.is_number()) {
        to.any = share_in(v, where);
        return;
    }
    CHECK_INPUT(v.is_object() && !v.members().empty(),
                "{} = {}: expected a share, or shares by channels of a head and by context, "
                "{{\"64\": {{\"1024\": 0.2}}}}", where, for_message(v));
    for (const auto& [head, shares] : v.members()) {
        const bool digits = head.find_first_not_of("0123456789") == head.npos;
        CHECK_INPUT(digits && !head.empty() && head.size() <= 4 && head[0] != '0',
                    "{}: {}: expected channels of a head, from 1 to 9999", where, for_message(head));
        to.by_head.push_back({std::stoi(head), shares_in(shares, where + ": " + head, "a context")});
    }
    std::ranges::sort(to.by_head, {}, &AttentionShares::Head::channels);
}

// Well above every machine: a value beyond is one in another unit.
static constexpr int kMostUnits = 65536;

static bool may_be_unknown(std::string_view key) {
    for (const char* free : {"watts", "dollars_per_hour", "fp8_tflops", "nvls", "rails", "pod_gpus",
                             "reached_by", "spread", "any_size"})
        if (key == free) return true;
    return false;
}

Machine parse_machine(std::string_view text, const std::string& name, const std::string& named) {
    const Json root = parse_json_text(text, name, 32, {.quotes = false});
    CHECK_INPUT(root.is_object(), "{}: expected an object, {{\"gpu\": \"h100\", ...}}, found {}", name,
                for_message(root));
    const Json* gpu = root.find("gpu");
    const std::string stem = gpu && gpu->is_string() ? gpu->string() : named;
    const std::string base = machines_folder() + "/" + stem + ".json";
    Machine m;
    if (in_table(stem) && file_id(base) != file_id(name)) m = parse_machine(read_file(base), base);
    for (const auto& [key, v] : root.members()) {
        bool known = false;
        std::string keys;
        m.visit([&](const char* k, auto& member) {
            keys += std::string(keys.empty() ? "" : ", ") + k;
            if (key != k) return;
            known = true;
            assign(member, v, name + ": " + key);
        });
        CHECK_INPUT(known, "{}: there is no key {}; expected {}", name, for_message(key), keys);
    }
    m.visit([&](const char* key, const auto& member) {
        const bool free = std::is_same_v<decltype(member), const std::string&> ||
                          may_be_unknown(key);
        CHECK_INPUT(free || is_stated(member),
                    "{}: '{}' is missing; name a GPU of the table by \"gpu\" ({}), or "
                    "state every number",
                    name, key, machine_names());
    });
    CHECK_INPUT(m.reached <= 1 && m.links <= 1 && m.nvls <= 1 && m.spread <= 1,
                "{}: reached = {}, links = {}, nvls = {}, spread = {}: expected shares of at most 1", name,
                m.reached, m.links, m.nvls, m.spread);
    CHECK_INPUT(m.units <= kMostUnits, "{}: units = {}: expected multiprocessors or cores, at most {}", name,
                m.units, kMostUnits);
    CHECK_INPUT(m.memory_gb <= kMostMemoryGb,
                "{}: memory_gb = {}: expected memory of one device in GB of 1e9 bytes, at most {}", name,
                m.memory_gb, kMostMemoryGb);
    CHECK_INPUT(m.rails <= m.gpus_per_node, "{}: rails = {}: expected at most gpus_per_node = {}", name,
                m.rails, m.gpus_per_node);
    CHECK_INPUT(m.oversubscription >= 1,
                "{}: oversubscription = {}: expected 1 (none), or more: 7 where links between pods carry a "
                "seventh of their GPUs' rate", name, m.oversubscription);
    return m;
}

static std::string machines_with_fp8() {
    std::string text;
    for (const Machine& m : all_machines())
        if (m.fp8_tflops > 0) text += (text.empty() ? "" : ", ") + m.gpu;
    return text;
}

Machine machine_of(const Config& cfg) {
    Machine m = machine_of(cfg.cluster);
    if (cfg.memory.device_gb > 0) m.memory_gb = std::min(m.memory_gb, cfg.memory.device_gb);
    CHECK_INPUT(cfg.run.products != ProductKind::Fp8 || m.fp8_tflops > 0,
                "run.products = fp8: the machine {} states no fp8_tflops, products of FP8 need compute "
                "capability 8.9; set run.products to bf16, or cluster.gpu to one of {}",
                m.gpu, machines_with_fp8());
    return m;
}

std::vector<Machine> all_machines() {
    std::vector<Machine> all;
    for (const std::string& name : names_of_table()) all.push_back(machine_of({.gpu = name, .file = ""}));
    return all;
}

void take_costs(Machine& m, const ClusterConfig& c) {
    if (c.watts > 0) m.watts = c.watts;
    if (c.dollars_per_hour > 0) m.dollars_per_hour = c.dollars_per_hour;
    if (c.failure_hours > 0) m.failure_hours = c.failure_hours;
}

Machine machine_of(const ClusterConfig& c) {
    const bool known = c.gpu.empty() || in_table(c.gpu);
    CHECK_INPUT(known,
                "cluster.gpu = '{}': there is no such machine; expected one of {}, auto, or cluster.file",
                c.gpu, machine_names());
    const std::string table = machines_folder() + "/" + c.gpu + ".json";
    const std::string& path = c.file.empty() ? table : c.file;
    Machine m = parse_machine(read_file(path), path, c.gpu);
    CHECK_INPUT(c.gpu.empty() || m.gpu.empty() || m.gpu == c.gpu,
                "cluster.gpu = '{}', but {} is of \"gpu\": \"{}\": leave one of them out", c.gpu, path,
                m.gpu);
    if (m.gpu.empty()) m.gpu = "GPU of " + path;
    if (c.gpus_per_node) {
        m.gpus_per_node = c.gpus_per_node;
        m.rails = std::min(m.rails, m.gpus_per_node);
    }
    if (c.node_gbs > 0) m.node_gbs = c.node_gbs;
    if (c.network_gbs > 0) m.network_gbs = c.network_gbs;
    if (c.memory_gb > 0) m.memory_gb = c.memory_gb;
    take_costs(m, c);
    return m;
}

}  // namespace price

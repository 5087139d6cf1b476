// Machines: every file of scripts/machines/ reads; files of one's own change a machine of the table, or state
// every number; mistakes are one line that names file and key.
#include <fstream>
#include <map>
#include <set>

#include "llmc/base/disk/files.h"
#include "llmc/base/json/json_value.h"
#include "llmc/train/price/cluster.h"
#include "test/test.h"

// What "sources" calls a key of its file: several have one source.
static std::string word_in_sources(const std::string& key) {
    static const std::map<std::string, std::string> words = {
        {"gpu", "NVIDIA's"}, {"about", "NVIDIA's"}, {"sources", "NVIDIA's"}, {"memory_gb", "NVIDIA's"},
        {"bf16_tflops", "NVIDIA's"}, {"fp32_tflops", "NVIDIA's"}, {"fp8_tflops", "NVIDIA's"},
        {"units", "NVIDIA's"},
        {"gpus_per_node", "links"}, {"node_gbs", "links"}, {"network_gbs", "links"},
        {"launch_us", "latencies"}, {"node_us", "latencies"}, {"network_us", "latencies"},
        {"dollars_per_hour", "price:"}};
    const auto word = words.find(key);
    return word == words.end() ? key : word->second;
}

TEST(every_machine_of_the_table_reads) {
    const std::vector<std::string> files = glob_files(machines_folder() + "/*.json");
    EXPECT(files.size() >= 8, "%zu machines", files.size());
    for (const std::string& path : files) {
        const Machine m = machine_of(
            {.gpu = path.substr(path.rfind('/') + 1, path.size() - path.rfind('/') - 6), .file = ""});
        EXPECT(path.ends_with("/" + m.gpu + ".json"), "%s says that it is %s", path.c_str(), m.gpu.c_str());
        EXPECT(!m.about.empty() && m.sources.size() > 40, "%s: sources are '%s'", path.c_str(),
               m.sources.c_str());
        const Json file = parse_json(read_file(path));
        for (const auto& [key, value] : file.members())
            EXPECT(m.sources.find(word_in_sources(key)) != m.sources.npos, "%s: no source of %s",
                   path.c_str(), key.c_str());
        EXPECT(m.memory_gb >= 16 && m.copy_gbs > 500 && m.bf16_tflops > m.fp32_tflops &&
                   m.node_gbs > m.network_gbs,
               "%s: implausible", path.c_str());
    }
}

// Products of FP8 came with compute capability 8.9, at twice the rate of BF16's.
TEST(machines_since_ada_state_a_rate_of_fp8) {
    for (const Machine& m : all_machines()) {
        const double faster = m.fp8_tflops / m.bf16_tflops;
        EXPECT(m.gpu.starts_with("a100") ? faster == 0 : std::fabs(faster - 2) < 0.03, "%s: %g",
               m.gpu.c_str(), faster);
    }
}

TEST(settings_go_before_the_file) {
    const Machine h100 = machine_of({.gpu = "h100", .file = ""});
    const Machine m = machine_of(
        {.gpu = "h100", .file = "", .gpus_per_node = 4, .node_gbs = 7, .network_gbs = 3, .memory_gb = 94});
    EXPECT(m.gpus_per_node == 4 && m.node_gbs == 7 && m.network_gbs == 3 && m.memory_gb == 94,
           "not taken over");
    EXPECT(m.copy_gbs == h100.copy_gbs && m.reached == h100.reached, "others changed");
}

static std::string written(const std::string& text) {
    static int number = 0;
    const std::string path = test::temporary_directory() + "/m" + std::to_string(number++) + ".json";
    std::ofstream(path) << text;
    return path;
}

TEST(a_file_changes_a_machine_of_the_table) {
    const Machine h100 = machine_of({.gpu = "h100", .file = ""});
    for (const Machine& m : {machine_of({.gpu = "", .file = written(R"({"gpu": "h100", "node_gbs": 123})")}),
                             machine_of({.gpu = "h100", .file = written(R"({"node_gbs": 123})")})})
        EXPECT(m.node_gbs == 123 && m.copy_gbs == h100.copy_gbs && m.units == h100.units, "%g %g %d",
               m.node_gbs, m.copy_gbs, m.units);
}

TEST(a_setting_and_a_file_of_two_gpus_are_refused) {
    const std::string path = written(R"({"gpu": "h100", "node_gbs": 123})");
    const Fatal e = test::fatal_of([&] { machine_of({.gpu = "a100", .file = path}); });
    const std::string said = e.what();
    EXPECT(e.code == kExitConfig && said.find("a100") != said.npos && said.find("h100") != said.npos &&
           said.find(path) != said.npos, "%s", said.c_str());
}

// A file that states every number needs no name: the plan calls it by the file.
TEST(a_machine_without_a_name_is_named_by_its_file) {
    std::string keys;
    machine_of({.gpu = "h100", .file = ""}).visit([&]<class T>(const char* key, const T& value) {
        if constexpr (std::is_arithmetic_v<T>)
            if (value > 0) keys += fmt::format(",\n\"{}\": {}", key, value);
    });
    const std::string path = written("{\"attention\": 0.2" + keys + "}");
    EXPECT(machine_of({.gpu = "", .file = path}).gpu == "GPU of " + path, "%s", path.c_str());
}

TEST(a_share_is_reached_by_dtype_and_size) {
    const std::string file = written(R"({"reached_by": {"bf16": {"8192": 0.7, "1024": 0.4}, "fp32": 0.9}})");
    const Machine m = machine_of({.gpu = "h100", .file = file});
    const ReachedBy& by = m.reached_by;
    EXPECT(by.bf16.size() == 2 && by.bf16[0].side == 1024 && by.bf16[0].share == 0.4 &&
           by.bf16[1].side == 8192 && by.bf16[1].share == 0.7, "%zu sizes", by.bf16.size());
    EXPECT(by.fp32.size() == 1 && by.fp32[0].side == 0 && by.fp32[0].share == 0.9, "%zu", by.fp32.size());
}

// What a file says replaces the whole of its machine's in the table.
TEST(a_share_of_attention_is_by_head_and_context) {
    const auto of = [](const std::string& text) {
        return machine_of({.gpu = "h100", .file = written(R"({"attention": )" + text + "}")}).attention;
    };
    const AttentionShares by = of(R"({"128": 0.3, "64": {"2048": 0.2, "1024": 0.1}})");
    EXPECT(by.any == 0 && by.by_head.size() == 2 && by.by_head[0].channels == 64 &&
           by.by_head[0].shares.size() == 2 && by.by_head[0].shares[0].side == 1024 &&
           by.by_head[1].shares[0].share == 0.3, "%zu heads", by.by_head.size());
    EXPECT(of("0.25").any == 0.25 && of("0.25").by_head.empty());
}

// --help says of cluster.file which settings are no keys.
TEST(a_file_has_the_keys_of_the_settings) {
    std::set<std::string> keys;
    Machine().visit([&](const char* key, const auto&) { keys.insert(key); });
    std::set<std::string> others;
    std::string help;
    ClusterConfig().visit([&](const std::string& key, const auto&, const char* about, const auto&...) {
        if (key == "file") help = about;
        else if (!keys.contains(key)) others.insert(key);
    });
    EXPECT(others.size() == 2 && others.contains("days") && others.contains("dollars"), "%zu", others.size());
    for (const std::string& key : others)
        EXPECT(help.find(key) != help.npos, "help lacks '%s': %s", key.c_str(), help.c_str());
}

static void refused(const char* text, std::vector<const char*> words) {
    const std::string path = written(text);
    words.push_back(path.c_str());
    const Fatal e = test::fatal_of([&] { machine_of({.gpu = "", .file = path}); });
    EXPECT(e.code == kExitConfig, "%s: exit %d", text, e.code);
    const std::string said = e.what();
    for (const char* word : words)
        EXPECT(said.find(word) != said.npos, "%s: '%s' lacks '%s'", text, said.c_str(), word);
    EXPECT(said.find('\n') == said.npos, "several lines: %s", said.c_str());
}

TEST(mistakes_are_named) {
    refused("{", {"line 1", "JSON"});
    refused("{\"gpu\": \"h100\",\n \"memory_gb\": 80,}", {"line 2, column 18", "two members"});
    refused("[1]", {"object"});
    refused(R"({"gpu": "h100", "node_gbs": "fast"})", {"node_gbs", "fast", "number above 0"});
    refused(R"({"gpu": "h100", "node_gbs": -5})", {"node_gbs", "-5"});
    refused(R"({"gpu": "h100", "node_gbs": 0})", {"node_gbs", "above 0"});
    refused(R"({"gpu": "h100", "units": 1.5})", {"units", "integer"});
    refused(R"({"gpu": "h100", "colour": 3})", {"colour", "node_gbs"});
    refused(R"({"gpu": "h100", "reached": 1.5})", {"reached", "at most 1"});
    refused(R"({"gpu": "h100", "oversubscription": 0.5})", {"oversubscription", "0.5"});
    refused(R"({"gpu": "h100", "pod_gpus": 1.5})", {"pod_gpus", "integer"});
    refused(R"({"gpu": "h100", "spread": 1.5})", {"spread", "at most 1"});
    refused(R"({"gpu": "h100", "rails": 9})", {"rails", "gpus_per_node"});
    refused(R"({"gpu": "h100", "rails": 0})", {"rails", "above 0"});
    refused(R"({"gpu": "h100", "reached_by": 0.5})", {"reached_by", "0.5", "bf16"});
    refused(R"({"gpu": "h100", "reached_by": {"fp8": 0.5}})", {"reached_by", "fp8", "bf16, fp32"});
    refused(R"({"gpu": "h100", "reached_by": {"bf16": {}}})", {"reached_by: bf16", "8192"});
    refused(R"({"gpu": "h100", "reached_by": {"bf16": {"many": 0.5}}})", {"many", "side"});
    refused(R"({"gpu": "h100", "reached_by": {"fp32": {"1024": 1.5}}})", {"fp32: 1024", "at most 1"});
    refused(R"({"gpu": "h100", "a\nb": 5})", {R"(no key "a\nb")"});
    refused(R"({"gpu": "h100", "reached_by": {"a\nb": 0.5}})", {R"("a\nb")", "bf16, fp32"});
    refused(R"({"gpu": "h100", "reached_by": {"bf16": {"a\nb": 0.5}}})", {R"("a\nb")", "side"});
    refused(R"({"gpu": "h100", "units": 100000})", {"units = 100000", "65536"});
    refused(R"({"gpu": "h100", "memory_gb": 8e10})", {"memory_gb = 8", "65536"});
    refused(R"({"gpu": "mine", "node_gbs": 5})", {"memory_gb", "missing"});
    const Fatal e = test::fatal_of([] { machine_of({.gpu = "b9000", .file = ""}); });
    const std::string said = e.what();
    EXPECT(e.code == kExitConfig && said.find("b9000") != said.npos && said.find("h100") != said.npos, "%s",
           said.c_str());
}

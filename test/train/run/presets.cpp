// The presets of scripts/: what each says of itself, and its plan.
#include "llmc/base/config/config.h"
#include "llmc/base/json/json.h"
#include "llmc/base/json/json_value.h"
#include "test/script_helpers.h"

static double flop_of(const Json& preset, int64_t params) {
    const Json &m = preset.at("model"), &t = preset.at("train");
    const auto number = [](const Json& of, const char* key, double without) {
        return of.find(key) ? of.at(key).number() : without;
    };
    const double C = m.at("channels").number(), heads = m.at("heads").number(),
                 width = heads * number(m, "head_channels", C / heads),
                 looked_up = m.find("tied") ? m.at("vocab").number() * C : 0,
                 block = m.at("layers").number() * width * m.at("context").number(),
                 tokens = t.at("steps").number() * t.at("batch_tokens").number();
    return (6 * (double(params) - looked_up) + 6 * block) * tokens;
}

// Layers 3, 7 and 11 of 12 see the whole context, the others 512 tokens.
static double flop_of_nano(double params) {
    const double tokens = 10.5 * (params - 50257 * 768);
    return (6 * (params - 50257 * 768) + 6 * 768 * (3 * 2048 + 9 * 512)) * tokens;
}

// Output of `about`: parameters, FLOP (6 N + 6 L C T a token), and the loss, if any.
static void expect_cost(const std::string& name, int64_t params) {
    const Json preset = parse_json(read("scripts/" + name + ".json"));
    const std::string about = preset.at("about").string();
    const double flop = name == "nano" ? flop_of_nano(double(params)) : flop_of(preset, params);
    const size_t cost = about.find("Cost: ");
    CHECK(cost != about.npos, "{}: no cost in '{}'", name, about);
    EXPECT_NEAR(atof(about.c_str() + cost + 6) / flop, 1, 0.005);
    EXPECT(has(about, "(" + std::to_string(params) + " parameters)"), "%s: %s", name.c_str(), about.c_str());
    EXPECT(has(about, "Expected: ") || has(about, "No final loss is published"), "%s: %s", name.c_str(),
           about.c_str());
}

// GPT-2: Radford et al. 2019, table 2 (it counts parameters otherwise), with llm.c's batch and lr.
// GPT-3: Brown et al. 2020, table 2.1; its 24 heads of 2048 channels do not divide, 16 do.
// Llama 3, SmolLM2, Qwen3: the parameters of the published weights.
TEST(presets_plan) {
    struct Preset { const char* name; int64_t params, layers, channels, heads, batch; double lr; };
    const int64_t K = 1 << 10;
    const std::vector<Preset> presets = {
        {"quickstart", 3342336, 4, 192, 6, 1024, 3e-3},
        {"gpt2_124M", 124439808, 12, 768, 12, 512 * K, 6e-4},
        {"gpt2_350M", 354823168, 24, 1024, 16, 512 * K, 3e-4},
        {"gpt2_774M", 774030080, 36, 1280, 20, 512 * K, 2.5e-4},
        {"gpt2_1558M", 1557611200, 48, 1600, 25, 1024 * K, 6e-4},
        {"gpt3_125M", 125226240, 12, 768, 12, 512 * K, 6e-4},
        {"gpt3_350M", 355871744, 24, 1024, 16, 512 * K, 3e-4},
        {"gpt3_760M", 760300032, 24, 1536, 16, 512 * K, 2.5e-4},
        {"gpt3_1300M", 1315723264, 24, 2048, 16, 1024 * K, 2e-4},
        {"gpt3_2700M", 2651553280, 32, 2560, 32, 1024 * K, 1.6e-4},
        {"gpt3_6700M", 6658404352, 32, 4096, 32, 2048 * K, 1.2e-4},
        {"gpt3_13B", 12853386240, 40, 5120, 40, 2048 * K, 1e-4},
        {"gpt3_175B", 174604259328, 96, 12288, 96, 3200 * K, 6e-5},
        {"llama3_8B", 8030261248, 32, 4096, 32, 4096 * K, 3e-4},
        {"llama3_70B", 70553706496, 80, 8192, 64, 4096 * K, 1.5e-4},
        {"llama3_405B", 405853388800, 126, 16384, 128, 16384 * K, 8e-5},
        {"smollm2_135M", 134515008, 30, 576, 9, 2048 * K, 3e-3},
        {"smollm2_360M", 361821120, 32, 960, 15, 2048 * K, 3e-3},
        {"smollm2_1.7B", 1711376384, 24, 2048, 32, 2048 * K, 5e-4},
        {"qwen3_0.6B", 596049920, 28, 1024, 16, 4096 * K, 1e-3},
        {"qwen3_1.7B", 1720574976, 28, 2048, 16, 4096 * K, 5e-4},
        {"qwen3_8B", 8190735360, 36, 4096, 32, 4096 * K, 3e-4},
        {"simple", 162282577, 12, 768, 6, 512 * K, 4e-3},
        {"nano", 162129408, 12, 768, 6, 512 * K, 8e-3}};
    for (const Preset& p : presets) {
        const std::string dir = made(std::string("plan_") + p.name) + "/run";
        // a micro-batch of one: the largest fit no machine
        const std::string config = std::string("scripts/") + p.name + ".json";
        const auto ran =
            test::run("./train_gpt " + config + " --plan --train.micro_batch=1 --run.dir=" + dir);
        EXPECT(ran.code == 0, "%s: exit %d: %s", p.name, ran.code, ran.err.c_str());
        for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
                 {"layers", std::to_string(p.layers)}, {"channels", std::to_string(p.channels)},
                 {"heads", std::to_string(p.heads)}, {"batch_tokens", std::to_string(p.batch)},
                 {"lr", json_number(p.lr)}}) {
            const std::string row = "\"" + key + "\": " + value + ",";
            EXPECT(has(ran.out, row), "%s: no %s in the plan's config", p.name, row.c_str());
        }
        std::string digits;
        for (const char c : ran.out) if (c != ',') digits += c;
        EXPECT(has(digits, std::to_string(p.params)), "%s: no %lld parameters in the plan", p.name,
               static_cast<long long>(p.params));
        EXPECT(!std::filesystem::exists(dir), "%s: --plan leaves %s", p.name, dir.c_str());
        const std::string name = p.name;
        if (name != "quickstart") expect_cost(name, p.params);
    }
    size_t found = 0;
    for (const auto& f : std::filesystem::directory_iterator("scripts"))
        found += f.path().extension() == ".json" && f.path() != "scripts/references.json" &&
                 f.path() != "scripts/grafana.json";
    EXPECT(found == presets.size(), "%zu presets in scripts/, %zu are known here", found, presets.size());
}

// What neither the plan nor the number of parameters tells: the published configs, with the context of the
// first training.
TEST(presets_have_the_shapes_of_published_models) {
    struct Shape {
        const char* name;
        double rope_theta, norm_eps;
        QkNorm qk_norm;
        int context, ffn_channels, kv_heads;
    };
    const std::vector<Shape> shapes = {{"llama3_8B", 5e5, 1e-5, QkNorm::None, 8192, 14336, 8},
                                       {"llama3_70B", 5e5, 1e-5, QkNorm::None, 8192, 28672, 8},
                                       {"llama3_405B", 5e5, 1e-5, QkNorm::None, 8192, 53248, 8},
                                       {"smollm2_135M", 1e5, 1e-5, QkNorm::None, 2048, 1536, 3},
                                       {"smollm2_360M", 1e5, 1e-5, QkNorm::None, 2048, 2560, 5},
                                       {"smollm2_1.7B", 1.3e5, 1e-5, QkNorm::None, 2048, 8192, 32},
                                       {"qwen3_0.6B", 1e6, 1e-6, QkNorm::Before, 4096, 3072, 8},
                                       {"qwen3_1.7B", 1e6, 1e-6, QkNorm::Before, 4096, 6144, 8},
                                       {"qwen3_8B", 1e6, 1e-6, QkNorm::Before, 4096, 12288, 8}};
    for (const Shape& s : shapes) {
        const ModelConfig m = load_config(std::string("scripts/") + s.name + ".json").model;
        EXPECT(m.rope_theta == s.rope_theta && m.norm_eps == s.norm_eps, "%s: theta %g, epsilon %g", s.name,
               m.rope_theta, m.norm_eps);
        EXPECT(m.qk_norm == s.qk_norm && (s.qk_norm == QkNorm::None || m.head_channels == 128), "%s", s.name);
        EXPECT(m.context == s.context && m.ffn_channels == s.ffn_channels && m.kv_heads == s.kv_heads,
               "%s: %d, %d, %d", s.name, m.context, m.ffn_channels, m.kv_heads);
    }
}

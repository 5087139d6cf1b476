// Exports give the trainer's logits elsewhere: in readers and a GPT-2 written here in plain loops, and in
// PyTorch.
#include <filesystem>
#include <map>

#include "test/gguf.h"
#include "test/tiny.h"
#include "llmc/io/files/safetensors.h"
#include "llmc/train/save/formats/formats.h"
#include "llmc/train/run/programs.h"

namespace PRECISION {

using Vector = std::vector<double>;
static constexpr double kEnough = 1e-5;       // of the largest logit: the files hold FP32

struct Exported {
    Config cfg;
    std::string hf, gguf;
    std::vector<int32_t> ids;
    Vector logits;                             // the trainer's, after the last token
};

static const Exported& exported() {
    static const Exported e = [] {
        Exported x{.cfg = tiny_config(), .hf = test::folder(TEST_PRECISION "_hf"),
                   .gguf = test::folder(TEST_PRECISION ".gguf"), .ids = {}, .logits = {}};
        x.cfg.train.micro_batch = 1, x.cfg.train.batch_tokens = x.cfg.model.context;
        Tiny t(x.cfg, true);
        t.shake();
        const auto read = t.reads();
        const OwnModel own{.shape = x.cfg.model, .layout = t.model.shards.layout, .read = read,
                           .tokenizer = nullptr, .bf16 = false};
        export_to(own, "hf:" + x.hf);
        export_to(own, "gguf:" + x.gguf);
        x.ids = test::random_ids(29, t.d.V, 4);
        const floatX* row = t.model.decoder->forward(t.model.zero, x.ids.data(), int(x.ids.size()), 0);
        for (int i = 0; i < t.d.V; i++) x.logits.push_back(double(row[i]));
        return x;
    }();
    return e;
}

static void expect_same(const Vector& theirs, const char* whose) {
    const Vector& own = exported().logits;
    double worst = 0, scale = 0;
    EXPECT(theirs.size() == own.size(), "%s: %zu logits", whose, theirs.size());
    for (size_t i = 0; i < std::min(own.size(), theirs.size()); i++) {
        scale = std::max(scale, std::abs(own[i]));
        worst = test::larger_difference(worst, std::abs(own[i] - theirs[i]));
    }
    EXPECT(scale > 0.1 && worst <= kEnough * scale, "%s: logits %.3g apart, of %.3g", whose, worst, scale);
}

// ---------------------------------------------------------------------------------------------------------
// GPT-2 in plain loops. `get` gives a tensor by Hugging Face's name, matrices of blocks as (in, out).

using Get = std::function<Vector(const std::string&)>;

static Vector norm(const Vector& x, const Vector& w, const Vector& b) {
    double mean = 0, square = 0;
    for (double v : x) mean += v / double(x.size());
    for (double v : x) square += (v - mean) * (v - mean) / double(x.size());
    Vector y(x.size());
    for (size_t i = 0; i < x.size(); i++) y[i] = (x[i] - mean) / std::sqrt(square + 1e-5) * w[i] + b[i];
    return y;
}

static Vector linear(const Vector& x, const Vector& w, const Vector& b) {      // x W + b
    Vector y = b;
    for (size_t i = 0; i < x.size(); i++)
        for (size_t j = 0; j < y.size(); j++) y[j] += x[i] * w[i * y.size() + j];
    return y;
}

static Vector attend(const std::vector<Vector>& qkv, size_t t, size_t heads) {
    const size_t C = qkv[0].size() / 3, D = C / heads;
    Vector y(C, 0.0);
    for (size_t h = 0; h < heads; h++) {
        Vector weight(t + 1);
        double sum = 0;
        for (size_t s = 0; s <= t; s++) {
            double dot = 0;
            for (size_t i = h * D; i < h * D + D; i++) dot += qkv[t][i] * qkv[s][C + i];
            sum += weight[s] = std::exp(dot / std::sqrt(double(D)));
        }
        for (size_t s = 0; s <= t; s++)
            for (size_t i = h * D; i < h * D + D; i++) y[i] += weight[s] / sum * qkv[s][2 * C + i];
    }
    return y;
}

static Vector gpt2(const Get& get, const std::vector<int32_t>& ids, const ModelConfig& m) {
    const size_t C = size_t(m.channels), T = ids.size();
    const Vector wte = get("wte.weight"), wpe = get("wpe.weight");
    std::vector<Vector> x(T, Vector(C));
    for (size_t t = 0; t < T; t++)
        for (size_t i = 0; i < C; i++) x[t][i] = wte[size_t(ids[t]) * C + i] + wpe[t * C + i];
    const auto add = [](Vector& to, const Vector& v) { for (size_t i = 0; i < v.size(); i++) to[i] += v[i]; };
    for (int l = 0; l < m.layers; l++) {
        const auto of = [&](const char* name) { return get("h." + std::to_string(l) + "." + name); };
        std::vector<Vector> qkv;
        for (const Vector& row : x)
            qkv.push_back(linear(norm(row, of("ln_1.weight"), of("ln_1.bias")), of("attn.c_attn.weight"),
                                 of("attn.c_attn.bias")));
        for (size_t t = 0; t < T; t++)
            add(x[t], linear(attend(qkv, t, size_t(m.heads)), of("attn.c_proj.weight"),
                             of("attn.c_proj.bias")));
        for (Vector& row : x) {
            Vector h = linear(norm(row, of("ln_2.weight"), of("ln_2.bias")), of("mlp.c_fc.weight"),
                              of("mlp.c_fc.bias"));
            for (double& v : h) v = v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
            add(row, linear(h, of("mlp.c_proj.weight"), of("mlp.c_proj.bias")));
        }
    }
    const Vector last = norm(x[T - 1], get("ln_f.weight"), get("ln_f.bias"));
    Vector logits(size_t(m.vocab), 0.0);
    for (size_t v = 0; v < logits.size(); v++)
        for (size_t i = 0; i < C; i++) logits[v] += last[i] * wte[v * C + i];
    return logits;
}

TEST_IF(!kIsBf16, hugging_face_gets_the_same_logits) {
    const Exported& e = exported();
    const SafetensorsFile file(e.hf + "/model.safetensors");
    const Get get = [&](const std::string& name) {
        const TensorInfo* t = file.find("transformer." + name);
        CHECK(t && t->dtype == "F32", "no {}", name);
        std::vector<float> values(size_t(t->bytes()) / 4);
        file.read(*t, values.data());
        return Vector(values.begin(), values.end());
    };
    expect_same(gpt2(get, e.ids, e.cfg.model), "a reader of safetensors");
}

TEST_IF(!kIsBf16, a_reader_of_gguf_gets_the_same_logits) {
    const Exported& e = exported();
    test::Gguf g = test::read_gguf(e.gguf);
    const std::map<std::string, std::string> block = {
        {"ln_1", "attn_norm"}, {"attn.c_attn", "attn_qkv"}, {"attn.c_proj", "attn_output"},
        {"ln_2", "ffn_norm"}, {"mlp.c_fc", "ffn_up"}, {"mlp.c_proj", "ffn_down"}};
    const std::map<std::string, std::string> ends = {
        {"wte", "token_embd"}, {"wpe", "position_embd"}, {"ln_f", "output_norm"}};
    const Get get = [&](const std::string& name) {
        const size_t dot = name.rfind('.'), layer = name.starts_with("h.") ? name.find('.', 2) + 1 : 0;
        const std::string what = name.substr(layer, dot - layer);
        const std::string there = layer ? "blk." + name.substr(2, layer - 2) + block.at(what) : ends.at(what);
        const test::GgufTensor& t = g.tensors.at(there + name.substr(dot));
        if (!layer || t.shape.size() == 1) return Vector(t.values.begin(), t.values.end());
        Vector v(t.values.size());                    // (out, in) of the file, to (in, out)
        const size_t in = t.shape[0], out = t.shape[1];
        for (size_t o = 0; o < out; o++)
            for (size_t i = 0; i < in; i++) v[i * out + o] = t.values[o * in + i];
        return v;
    };
    expect_same(gpt2(get, e.ids, e.cfg.model), "a reader of GGUF");
    EXPECT(g.tensors.at("output.weight").values == g.tensors.at("token_embd.weight").values, "the head");
}

TEST_IF(!kIsBf16, pytorch_gets_the_same_logits) {
    const std::string python = getenv("PYTHON") ? getenv("PYTHON") : "/usr/bin/python3";
    if (test::run(python + " -c 'import torch'").code != 0) return test::skip("no PyTorch");
    const Exported& e = exported();
    std::string ids;
    for (int32_t id : e.ids) ids += (ids.empty() ? "" : ",") + std::to_string(id);
    const test::Ran ran = test::run(python + " dev/reference.py --export=" + e.hf + " --tokens=" + ids);
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    expect_same(test::json::parse(ran.out)["logits"].get<Vector>(), "PyTorch");
}

// ---------------------------------------------------------------------------------------------------------
// the exporter's own check

static void spoil(const std::string& path, uint64_t at, float value) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(std::streamoff(at));
    for (int i = 0; i < 8; i++) file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

// Files of a folder or a file, and of those beside that are not finished.
static std::map<std::string, std::string> contents(const std::string& path) {
    std::map<std::string, std::string> all;
    if (std::filesystem::is_regular_file(path)) all[path] = test::text_of(path);
    for (const std::string& dir : {path, path + ".unfinished"})
        if (test::there(dir) && std::filesystem::is_directory(dir))
            for (const auto& e : std::filesystem::recursive_directory_iterator(dir))
                all[e.path()] = e.is_regular_file() ? test::text_of(e.path()) : "";
    return all;
}

// The export before stays, with the user's files, until the next has been read back.
TEST(an_export_that_changed_is_refused) {
    Config cfg = exported().cfg;
    Tiny t(cfg, true);
    t.shake();
    const std::string text = test::folder(TEST_PRECISION "_text.txt"),
                      made = test::folder(TEST_PRECISION "_t.json");
    std::ofstream(text) << std::string(3000, 'a') << " few words";
    EXPECT(test::run("./tokenize train --vocab=258 --out=" + made + " " + text).code == 0, "tokenizer");
    const Tokenizer tokenizer = Tokenizer::load(made);
    const OwnModel own{.shape = cfg.model, .layout = t.model.shards.layout, .read = t.reads(),
                       .tokenizer = &tokenizer, .bf16 = kIsBf16};
    for (const char* kind : {"hf:", "gguf:", "llmc:"}) {
        const std::string path = test::folder(TEST_PRECISION) + "_refused_" + std::string(kind, 2),
                          to = kind + path;
        const bool folder = !strcmp(kind, "hf:");
        for (const bool others : {false, true}) {               // files of the user beside
            if (others && !folder) continue;
            if (others) std::ofstream(path + "/of_the_user") << "stays";
            const auto check = [&](const std::string& copy) { check_export(cfg, Mesh(), t.model, copy); };
            EXPECT(test::fatal_of([&] { export_to(own, to, check); }).code == 0, "%s", kind);
            t.use();
            const auto before = contents(path);
            EXPECT(before.size() == (folder ? 6u : 1u) + others, "%s: %zu files", kind, before.size());
            for (const float value : {0.7f, NAN}) {
                const Fatal end = test::fatal_of([&] {
                    export_to(own, to, [&](const std::string& copy) {
                        const std::string hit = path_of(copy) + (folder ? "/model.safetensors" : "");
                        spoil(hit, std::filesystem::file_size(hit) / 8 * 4, value);
                        check(copy);
                    });
                });
                t.use();
                EXPECT(end.code == (std::isnan(value) ? kExitNotFinite : kExitInternal) &&
                       strstr(end.what(), std::isnan(value) ? "tensor '" : "apart from the model's"),
                       "%s %g: code %d, '%s'", kind, double(value), end.code, end.what());
                EXPECT(contents(path) == before, "%s %g: files have changed", kind, double(value));
            }
        }
    }
}

TEST(a_rounded_export_is_read_back) {
    Config cfg = exported().cfg;
    for (const char* name : {"_whole", "_rounded-bf16", "_rounded-fp16"}) {
        Tiny t(cfg, true);
        t.shake();
        const OwnModel own{.shape = cfg.model, .layout = t.model.shards.layout, .read = t.reads(),
                           .tokenizer = nullptr, .bf16 = kIsBf16, .largest_file = 20000};
        const std::string to = "hf:" + test::folder(TEST_PRECISION) + name;
        const Fatal end = test::fatal_of([&] {
            export_to(own, to, [&](const std::string& copy) { check_export(cfg, Mesh(), t.model, copy); });
        });
        EXPECT(end.code == 0, "%s: '%s'", name, end.what());
        t.use();
    }
}

// GGUF's second copy of the embedding, the last tensor of the file, from which llama.cpp takes the logits.
TEST(a_head_that_is_not_the_embedding_is_refused) {
    Config cfg = exported().cfg;
    Tiny t(cfg, true);
    t.shake();
    const OwnModel own{.shape = cfg.model, .layout = t.model.shards.layout, .read = t.reads(),
                       .tokenizer = nullptr, .bf16 = kIsBf16};
    const std::string path = test::folder(TEST_PRECISION) + "_head.gguf";
    for (const float value : {0.7f, NAN}) {
        const Fatal end = test::fatal_of([&] {
            export_to(own, "gguf:" + path, [&](const std::string& copy) {
                spoil(path_of(copy), std::filesystem::file_size(path_of(copy)) - 128, value);
                check_export(cfg, Mesh(), t.model, copy);
            });
        });
        t.use();
        const bool nan = std::isnan(value);
        EXPECT(end.code == (nan ? kExitNotFinite : kExitInternal) &&
               strstr(end.what(), nan ? "output.weight" : "wte") && contents(path).empty(),
               "%g: code %d, '%s'", double(value), end.code, end.what());
    }
}

}  // namespace PRECISION

// Folders of Hugging Face from elsewhere. Config keys that change the math are computed or refused, every
// tensor counts, and an import stays within the memory plan.
#include <cstring>
#include <functional>
#include <map>

#include "llmc/io/files/safetensors.h"
#include "test/program.h"

using namespace test;
using std::string;

struct Matrix {
    std::vector<int64_t> shape;
    std::vector<float> values;
};
using Matrices = std::map<string, Matrix>;
using Change = std::function<void(Matrices&)>;

struct Size { int layers = 1, channels = 64, vocab = 512, context = 32; };

static Matrix random_matrix(const string& name, std::vector<int64_t> shape) {
    size_t count = 1;
    for (const int64_t n : shape) count *= size_t(n);
    Matrix m{std::move(shape), std::vector<float>(count)};
    for (size_t i = 0; i < count; i++) m.values[i] = 0.05f * float(normal(3, stream_of(name.c_str()), i));
    return m;
}

static Matrices gpt2(const Size& s) {
    const int64_t C = s.channels;
    Matrices all;
    const auto add = [&](const string& name, std::vector<int64_t> shape) {
        all[name] = random_matrix(name, std::move(shape));
    };
    add("wte.weight", {s.vocab, C}), add("wpe.weight", {s.context, C});
    for (int l = 0; l < s.layers; l++) {
        const string h = "h." + std::to_string(l) + ".";
        for (const char* norm : {"ln_1", "ln_2"})
            add(h + norm + ".weight", {C}), add(h + norm + ".bias", {C});
        const struct { const char* name; int64_t in, out; } linear[] = {
            {"attn.c_attn", C, 3 * C}, {"attn.c_proj", C, C},
            {"mlp.c_fc", C, 4 * C}, {"mlp.c_proj", 4 * C, C}};
        for (const auto& [name, in, out] : linear)
            add(h + name + ".weight", {in, out}), add(h + name + ".bias", {out});
    }
    add("ln_f.weight", {C}), add("ln_f.bias", {C});
    return all;
}

// A folder, with changes to its tensors and to its config.json; tensors stand below "transformer.", but those
// of the head.
static string hf_folder(const string& name, const Change& change = nullptr,
                        const json& config = json::object(), const Size& s = {}) {
    Matrices all = gpt2(s);
    if (change) change(all);
    std::vector<TensorInfo> infos;
    for (const auto& [key, m] : all) {
        const bool plain = key.starts_with("lm_head") || key.starts_with("score") || key.starts_with("/");
        infos.push_back({.name = key.starts_with("/") ? key.substr(1) : (plain ? "" : "transformer.") + key,
                         .dtype = "F32", .shape = m.shape});
    }
    const string dir = folder(name);
    run("mkdir -p '" + dir + "'");
    SafetensorsWriter out(dir + "/model.safetensors", infos);
    for (const auto& [key, m] : all) out.write(m.values.data(), m.values.size() * sizeof(float));
    out.close();
    json c = {{"model_type", "gpt2"}, {"n_layer", s.layers}, {"n_head", 2}, {"n_embd", s.channels},
              {"n_positions", s.context}, {"vocab_size", s.vocab}, {"activation_function", "gelu_new"},
              {"layer_norm_epsilon", 1e-5}};
    c.merge_patch(config);
    std::ofstream(dir + "/config.json") << c.dump(1);
    return dir;
}

static Ran evaluate(const string& name, const string& dir, const string& args = "", const Size& s = {}) {
    return train_gpt(tiny_program_config(name, {{"model", {{"layers", s.layers}, {"channels", s.channels},
                                                           {"vocab", s.vocab}, {"context", s.context}}}}),
                     "--train.steps=0 --model.init=hf:" + dir + " " + args);
}

static void refused(const string& what, const Ran& ran, const std::vector<string>& words) {
    EXPECT(ran.code == 78, "%s: code %d, '%s'", what.c_str(), ran.code, ran.err.c_str());
    EXPECT(std::count(ran.err.begin(), ran.err.end(), '\n') <= 8, "%s: '%s'", what.c_str(), ran.err.c_str());
    for (const string& w : words)
        EXPECT(ran.err.find(w) != string::npos, "%s: no '%s' in '%s'", what.c_str(), w.c_str(),
               ran.err.c_str());
}

// ---------------------------------------------------------------------------------------------------------

TEST(a_head_that_is_not_the_embedding) {
    const auto with_head = [](size_t changed) {
        return [changed](Matrices& all) {
            Matrix head = all["wte.weight"];
            if (changed < head.values.size()) head.values[changed] += 1e-3f;
            all["lm_head.weight"] = head;
        };
    };
    const string none = hf_folder("no_head"), equal = hf_folder("equal_head", with_head(SIZE_MAX));
    EXPECT(evaluate("none", none).code == 0 && evaluate("equal", equal).code == 0, "tied models");
    EXPECT(rows_of("none", "val").at(0)["loss"] == rows_of("equal", "val").at(0)["loss"], "another loss");
    for (const size_t changed : {size_t(0), size_t(512 * 64 - 1)}) {
        const string dir = hf_folder("own_head", with_head(changed));
        for (const char* args : {"", "--parallel.ranks=2 --parallel.pp=2 --model.layers=2"}) {
            if (*args) hf_folder("own_head", with_head(changed), json::object(), {.layers = 2});
            refused("own head", evaluate("own", dir, args), {"lm_head.weight", "tie_word_embeddings"});
        }
        refused("export", train_gpt(tiny_program_config("own"), "--model.init=hf:" + dir + " --export=llmc:" +
                                    folder("own.bin")), {"lm_head.weight", "tie_word_embeddings"});
        EXPECT(!there(folder("own.bin")), "an export is left");
    }
    refused("untied", evaluate("own", hf_folder("untied", nullptr, {{"tie_word_embeddings", false}})),
            {"tie_word_embeddings", "false"});
}

TEST(every_tensor_counts) {
    const auto check = [](const char* what, const Change& change, const json& config,
                          const std::vector<string>& words) {
        refused(what, evaluate("counts", hf_folder("counts_model", change, config)), words);
    };
    check("a missing layer", nullptr, {{"n_layer", 3}}, {"h.1.ln_1.weight", "n_layer = 3"});
    check("2^24 layers", nullptr, {{"n_layer", 1 << 24}}, {"n_layer = 16777216", "1 to 1024"});
    check("a layer too many", [](Matrices& all) {
        for (const auto& [name, m] : gpt2({.layers = 2})) all[name] = m;
    }, json::object(), {"h.1.attn.c_attn.bias", "n_layer = 1", "11 more"});
    check("another head", [](Matrices& all) { all["score.weight"] = random_matrix("x", {2, 64}); },
          json::object(), {"score.weight"});
    check("both names", [](Matrices& all) { all["/wte.weight"] = all["wte.weight"]; }, json::object(),
          {"wte.weight", "twice"});
    check("a matrix that is turned", [](Matrices& all) { all["h.0.attn.c_attn.weight"].shape = {192, 64}; },
          json::object(), {"h.0.attn.c_attn.weight", "[64, 192]", "[192, 64]"});
    check("a missing tensor", [](Matrices& all) { all.erase("h.0.mlp.c_fc.bias"); }, json::object(),
          {"h.0.mlp.c_fc.bias"});
    for (const char* wrapper : {"_orig_mod.", "module."})
        check("a wrapper", [&](Matrices& all) {
            for (const auto& [name, m] : gpt2({})) {
                all.erase(name);
                all["/" + string(wrapper) + "transformer." + name] = m;
            }
        }, json::object(), {"no tensor 'wte.weight'", string("'") + wrapper + "transformer.wte.weight'",
                            string("take '") + wrapper + "transformer.' off every name"});
    // masks are no parameters
    const Change masks = [](Matrices& all) {
        all["h.0.attn.bias"] = random_matrix("m", {1, 1, 32, 32});
        all["h.0.attn.masked_bias"] = random_matrix("m", {1});
    };
    EXPECT(evaluate("masks", hf_folder("masks_model", masks)).code == 0, "masks");
}

TEST(every_key_that_changes_the_math) {
    const std::vector<std::pair<const char*, std::vector<json>>> wrong = {
        {"activation_function", {"gelu", "relu", "silu"}}, {"layer_norm_epsilon", {-1, "x"}},
        {"n_inner", {-1, 0.5}}, {"scale_attn_weights", {false}},
        {"scale_attn_by_inverse_layer_idx", {true}}, {"add_cross_attention", {true}},
        {"pruned_heads", {{{"0", {1}}}}}, {"quantization_config", {{{"bits", 4}}}},
        {"auto_map", {{{"AutoModel", "mine.py"}}}}, {"model_type", {"mamba"}}};
    for (const auto& [key, values] : wrong)
        for (const json& v : values)
            refused(key, evaluate("key", hf_folder("key_model", nullptr, {{key, v}})), {key, "config.json"});
    const json right[] = {{{"activation_function", "gelu_pytorch_tanh"}}, {{"n_inner", 256}},
                          {{"reorder_and_upcast_attn", true}, {"attn_pdrop", 0.3}, {"n_ctx", 32}},
                          {{"scale_attn_by_inverse_layer_idx", false}, {"pruned_heads", json::object()}}};
    int count = 0;
    for (const json& config : right) {
        const Ran ran = evaluate("right" + std::to_string(count++), hf_folder("key_model", nullptr, config));
        EXPECT(ran.code == 0, "%s: code %d, '%s'", config.dump().c_str(), ran.code, ran.err.c_str());
    }
    EXPECT(evaluate("eps", hf_folder("key_model", nullptr, {{"layer_norm_epsilon", 1e-2}})).code == 0, "eps");
    EXPECT(rows_of("eps", "val").at(0)["loss"] != rows_of("right0", "val").at(0)["loss"], "the epsilon");
}

TEST(folders_that_are_not_complete) {
    refused("a name of the hub", evaluate("hub", "gpt2"), {"hf:gpt2", "no such folder", "hf download"});
    const string dir = hf_folder("sharded");
    run("mv " + dir + "/model.safetensors " + dir + "/model-00001-of-00002.safetensors");
    refused("nothing", evaluate("hub", dir), {"there is no model.safetensors"});
    std::ofstream(dir + "/model.safetensors.index.json") << "{}";
    refused("several files", evaluate("hub", dir), {"weight_map", "index.json"});
}

// Stand-ins for torch and safetensors: tensors may share memory, and save_file refuses shared memory.
static const char* const kStubs = R"(
import json, os, pickle, struct, sys, types
class Tensor:
    def __init__(self, shape, data): self.shape, self.data = shape, data
    def clone(self): return Tensor(self.shape, bytearray(self.data))
    def contiguous(self): return self
torch, safetensors, st = (types.ModuleType(n) for n in ("torch", "safetensors", "safetensors.torch"))
def save_file(tensors, path, metadata=None):
    if len({id(t.data) for t in tensors.values()}) < len(tensors):
        raise RuntimeError("Some tensors share memory")
    head, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, t in tensors.items():
        head[name] = {"dtype": "F32", "shape": t.shape, "data_offsets": [at, at + len(t.data)]}
        at += len(t.data)
    text = json.dumps(head).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(t.data for t in tensors.values()))
def load_file(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    return {k: Tensor(v["shape"], bytearray(data[8 + size + v["data_offsets"][0]:][:v["data_offsets"][1] -
            v["data_offsets"][0]])) for k, v in head.items() if k != "__metadata__"}
torch.load = lambda path, map_location=None: pickle.load(open(path, "rb"))
torch.save = lambda tensors, path: pickle.dump(tensors, open(path, "wb"))
st.save_file, st.load_file, safetensors.torch = save_file, load_file, st
sys.modules.update({"torch": torch, "safetensors": safetensors, "safetensors.torch": st})
torch.Tensor, Tensor.__module__ = Tensor, "torch"
)";

// The message's lines of Python, run on weights whose head shares memory with the embedding; by PyTorch if
// installed.
TEST(pytorch_weights_alone) {
    const string python = getenv("PYTHON") ? getenv("PYTHON") : "/usr/bin/python3";
    const bool real = run(python + " -c 'import torch, safetensors.torch'").code == 0;
    const string dir = hf_folder("py torch"), script = folder("convert.py"), stubs = real ? "" : kStubs;
    const Ran before = evaluate("before", "'" + dir + "'");
    std::ofstream(script) << stubs << "import torch; from safetensors.torch import load_file\n"
                          << "d = load_file('" << dir << "/model.safetensors')\n"
                          << "d['lm_head.weight'] = d['transformer.wte.weight']\n"
                          << "torch.save(d, '" << dir << "/pytorch_model.bin')\n";
    const Ran made = run(python + " " + script + " && rm '" + dir + "/model.safetensors'");
    const Ran ran = evaluate("convert", "'" + dir + "'");
    refused("pytorch_model.bin", ran, {"pytorch_model.bin", "model.safetensors"});
    string lines;
    for (size_t at = ran.err.find("       import "); at != string::npos && at < ran.err.size();) {
        const size_t end = ran.err.find('\n', at);
        const string line = ran.err.substr(at + 7, end - at - 7);
        if (line.starts_with("(rank")) break;
        lines += line + "\n";
        at = ran.err.compare(end + 1, 7, "       ") ? string::npos : end + 1;
    }
    std::ofstream(script) << stubs << lines;
    const Ran converted = run(python + " " + script);
    EXPECT(made.code == 0 && converted.code == 0, "'%s' '%s' by '%s'", made.err.c_str(),
           converted.err.c_str(), lines.c_str());
    const Ran after = evaluate("after", "'" + dir + "'");
    EXPECT(before.code == 0 && after.code == 0, "'%s' '%s'", before.err.c_str(), after.err.c_str());
    EXPECT(rows_of("before", "val").at(0)["loss"] == rows_of("after", "val").at(0)["loss"], "another loss");
}

// What is resident at most while a large embedding is imported.
TEST(importing_stays_within_the_plan) {
    if (kAddressSanitizer) return skip("AddressSanitizer keeps what is freed");
    const Size size{.layers = 2, .channels = 256, .vocab = 60000};
    const Change tied = [](Matrices& all) { all["lm_head.weight"] = all["wte.weight"]; };
    const string dir = hf_folder("large", tied, json::object(), size);
    for (const char* precision : {"fp32", "bf16"}) {
        const string name = string("within_") + precision;
        const Ran ran = evaluate(name, dir, string("--run.precision=") + precision, size);
        EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
        const double plan = rows_of(name, "start").at(0)["plan_bytes"],
                     peak = rows_of(name, "done").at(0)["peak_bytes"];
        EXPECT(plan > 30e6 && peak <= plan, "%s: %.0f bytes planned, %.0f taken", precision, plan, peak);
    }
}

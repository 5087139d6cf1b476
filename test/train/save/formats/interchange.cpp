// Models of other programs: exports are read back equal, by this program and by readers written here from the
// formats' descriptions; variants from other writers are read as well.
#include "llmc/train/save/formats/formats.h"

#include <cstring>
#include <filesystem>
#include <map>

#include "llmc/io/files/safetensors.h"
#include "test/gguf.h"

using std::string;
using test::folder, test::rows_of, test::run, test::train_gpt, test::tiny_program_config, test::text_of;
using test::Ran;

// A run of 5 steps with a checkpoint, made once. The vocabulary is a multiple of nothing.
static const string& trained() {
    static const string config = test::trained_config(
        "base", {{"model", {{"vocab", 509}}}, {"train", {{"steps", 5}}}, {"checkpoint", {{"every", 5}}}});
    return config;
}

static Ran export_to(const string& what, const string& args = "") {
    return train_gpt(trained(), "--export=" + what + " " + args);
}

// The validation loss of weights that model.init names.
static double loss_of(const string& init, const string& args = "") {
    static int count = 0;
    const string name = "eval" + std::to_string(count++);
    const Ran ran = train_gpt(tiny_program_config(name, {{"model", {{"vocab", 509}}}}),
                              "--train.steps=0 --model.init=" + init + " " + args);
    EXPECT(ran.code == 0, "%s: code %d, '%s'", init.c_str(), ran.code, ran.err.c_str());
    const auto rows = rows_of(name, "val");
    return rows.empty() ? 0 : double(rows.at(0)["loss"]);
}

TEST(every_format_evaluates_as_the_run_did) {
    const string saved = (trained(), folder("base") + "/step_5");
    const double own = rows_of("base", "val").back()["loss"];
    EXPECT(loss_of(saved) == own, "the checkpoint itself");
    for (const string& what : {"hf:" + folder("hf"), "llmc:" + folder("m.bin")}) {
        const Ran ran = export_to(what);
        EXPECT(ran.code == 0 && has(ran.out, "computes the same"), "code %d, '%s'", ran.code,
               ran.err.c_str());
        EXPECT(loss_of(what) == own, "%s: loss %.17g, not %.17g", what.c_str(), loss_of(what), own);
    }
    // bf16: llm.c's version 5
    const Ran ran = export_to("llmc:" + folder("m5.bin"), "--run.precision=bf16");
    int32_t header[8] = {};
    memcpy(header, text_of(folder("m5.bin")).data(), sizeof header);
    EXPECT(ran.code == 0 && header[0] == 20240326 && header[1] == 5, "code %d, version %d", ran.code,
           header[1]);
    EXPECT_NEAR(loss_of("llmc:" + folder("m5.bin")), own, 2e-2);
}

TEST(gguf_is_as_its_format_says) {
    EXPECT(export_to("gguf:" + folder("m.gguf")).code == 0, "export");
    test::Gguf g = test::read_gguf(folder("m.gguf"));
    EXPECT(g.version == 3, "version %u", g.version);
    for (const auto& [key, expected] : std::map<string, string>{
             {"general.architecture", "gpt2"}, {"gpt2.block_count", "2"}, {"gpt2.embedding_length", "64"},
             {"gpt2.attention.head_count", "2"}, {"gpt2.context_length", "32"},
             {"gpt2.feed_forward_length", "256"}, {"gpt2.attention.layer_norm_epsilon", "0.000010"}})
        EXPECT(g.value[key] == expected, "%s is '%s'", key.c_str(), g.value[key].c_str());
    for (const auto& [name, t] : g.tensors) EXPECT((t.offset & 31) == 0, "%s is not aligned", name.c_str());
    EXPECT((g.tensors["token_embd.weight"].shape == std::vector<uint64_t>{64, 509}), "the fastest is first");
    EXPECT((g.tensors["blk.1.ffn_up.weight"].shape == std::vector<uint64_t>{64, 256}), "in, out");
}

// PyTorch computes the same from the checkpoint and from what was exported.
TEST(the_reference_reads_both) {
    const string python = getenv("PYTHON") ? getenv("PYTHON") : "/usr/bin/python3";
    if (run(python + " -c 'import torch'").code != 0) return test::skip("no PyTorch");
    EXPECT(export_to("hf:" + folder("hf6")).code == 0, "export");
    const string judge = python + " dev/reference.py --tokens=3,1,4,1,5,9,2,6 --";
    const Ran saved = run(judge + "checkpoint=" + folder("base") + "/step_5");
    const Ran hf = run(judge + "export=" + folder("hf6"));
    EXPECT(saved.code == 0 && hf.code == 0 && saved.out == hf.out && has(hf.out, "logits"), "'%s' '%s'",
           saved.err.c_str(), hf.err.c_str());
}

// ---------------------------------------------------------------------------------------------------------
// what others write

// Hugging Face's older files: names without "transformer.", masks, half precision where asked.
TEST(older_files_of_hugging_face) {
    EXPECT(export_to("hf:" + folder("hf3")).code == 0, "export");
    const string old = folder("old");
    run("mkdir -p " + old + " && cp " + folder("hf3") + "/config.json " + old);
    const SafetensorsFile in(folder("hf3") + "/model.safetensors");
    std::vector<TensorInfo> infos;
    for (TensorInfo t : in.tensors) t.name = t.name.substr(strlen("transformer.")), infos.push_back(t);
    infos.push_back({.name = "h.0.attn.bias", .dtype = "U8", .shape = {1, 1, 32, 32}});
    {
        SafetensorsWriter out(old + "/model.safetensors", infos);
        for (const TensorInfo& t : in.tensors) {
            std::vector<char> bytes(static_cast<size_t>(t.bytes()));
            in.read(t, bytes.data());
            out.write(bytes.data(), bytes.size());
        }
        const std::vector<char> mask(32 * 32, 1);
        out.write(mask.data(), mask.size());
        out.close();
    }
    const double own = rows_of("base", "val").back()["loss"];
    EXPECT(loss_of("hf:" + old) == own, "another loss");
}

TEST(a_shorter_context_and_training_from_it) {
    const string init = "hf:" + folder("hf4");
    EXPECT(export_to(init).code == 0, "export");
    EXPECT(loss_of(init, "--model.context=16 --train.batch_tokens=256") > 0, "a shorter context");
    const string config = tiny_program_config("fine", {{"model", {{"vocab", 0}}}});
    const Ran ran = train_gpt(config, "--model.init=" + init);
    const auto rows = rows_of("fine", "val");
    EXPECT(ran.code == 0 && rows.size() == 3, "code %d, '%s'", ran.code, ran.err.c_str());
    const double base = rows_of("base", "val").back()["loss"];
    const double first = rows.at(0)["loss"], last = rows.at(2)["loss"];
    EXPECT(first == base && last < first, "from %g to %g, the model has %g", first, last, base);
}

// A hand-made file of llm.c by the documented layout, from the tensors of the export for Hugging Face: header
// of 256 int32, embeddings with the vocabulary padded to 128, then each tensor of the blocks over every
// layer, (out, in).
static string llmc_by_hand(const string& hf, int version) {
    const SafetensorsFile file(hf + "/model.safetensors");
    const auto get = [&](const string& name) {
        const TensorInfo* t = file.find("transformer." + name);
        CHECK(t, "no {}", name);
        std::vector<float> values(size_t(t->bytes()) / 4);
        file.read(*t, values.data());
        return values;
    };
    const int32_t C = 64, L = 2, V = 509, Vp = 512;
    int32_t header[256] = {20240326, version, 32, V, L, 2, C, Vp};
    string out(reinterpret_cast<const char*>(header), sizeof header);
    const auto put = [&](const std::vector<float>& values) {
        for (const float v : values) {
            uint32_t bits;
            memcpy(&bits, &v, sizeof bits);
            if (version == 3) out.append(reinterpret_cast<const char*>(&bits), 4);
            else bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16,
                 out.append(reinterpret_cast<const char*>(&bits), 2);
        }
    };
    std::vector<float> wte = get("wte.weight");
    wte.resize(size_t(Vp) * C);
    put(wte), put(get("wpe.weight"));
    struct Stack { const char* name; int in, out; };       // in = 0: a vector
    for (const Stack& s : {Stack{"ln_1.weight", 0, C}, {"ln_1.bias", 0, C}, {"attn.c_attn.weight", C, 3 * C},
                           {"attn.c_attn.bias", 0, 3 * C}, {"attn.c_proj.weight", C, C},
                           {"attn.c_proj.bias", 0, C}, {"ln_2.weight", 0, C}, {"ln_2.bias", 0, C},
                           {"mlp.c_fc.weight", C, 4 * C}, {"mlp.c_fc.bias", 0, 4 * C},
                           {"mlp.c_proj.weight", 4 * C, C}, {"mlp.c_proj.bias", 0, C}})
        for (int l = 0; l < L; l++) {
            const std::vector<float> values = get("h." + std::to_string(l) + "." + s.name);
            if (!s.in) { put(values); continue; }
            std::vector<float> turned;                      // Conv1D keeps (in, out)
            for (int o = 0; o < s.out; o++)
                for (int i = 0; i < s.in; i++) turned.push_back(values[size_t(i * s.out + o)]);
            put(turned);
        }
    put(get("ln_f.weight")), put(get("ln_f.bias"));
    return out;
}

TEST(llmc_files_are_as_llmc_says) {
    EXPECT(export_to("hf:" + folder("hf7")).code == 0, "export");
    const double own = rows_of("base", "val").back()["loss"];
    for (const int version : {3, 5}) {
        const string bin = folder(version == 3 ? "hand3.bin" : "hand5.bin");
        std::ofstream(bin, std::ios::binary) << llmc_by_hand(folder("hf7"), version);
        EXPECT_NEAR(loss_of("llmc:" + bin), own, version == 3 ? 0.0 : 2e-2);
        // what is written has the same bytes
        const string args = version == 3 ? "" : "--run.precision=bf16", ours = folder("ours.bin");
        EXPECT(export_to("llmc:" + ours, args).code == 0, "export");
        EXPECT(text_of(ours) == text_of(bin), "version %d: other bytes", version);
    }
}

// Older folders have the tokenizer in two files.
TEST(a_tokenizer_of_two_files) {
    std::ofstream(folder("words.txt")) << string(3000, 'a') + " few words to take bytes from\n";
    const string json = folder("t.json"), hf = folder("hf8");
    const Ran made = run("./tokenize train --vocab=300 --out=" + json + " " + folder("words.txt"));
    EXPECT(made.code == 0, "'%s'", made.err.c_str());
    EXPECT(export_to("hf:" + hf, "--data.tokenizer=" + json).code == 0, "export");
    const string say = "--sample.tokens=12 --sample.temperature=0 --generate='a few' --model.init=hf:" + hf;
    const Ran with = train_gpt(trained(), say);
    run("rm " + hf + "/tokenizer.json");
    const Ran without = train_gpt(trained(), say);
    EXPECT(with.code == 0 && without.code == 0 && with.out == without.out && has(with.out, "a few"),
           "'%s' '%s' '%s'", with.out.c_str(), without.out.c_str(), without.err.c_str());
    run("rm " + hf + "/merges.txt");
    EXPECT(train_gpt(trained(), say).code == 78, "a tokenizer from nowhere");
}

TEST(what_does_not_fit_is_said) {
    const string hf = folder("hf5"), bin = folder("cut.bin");
    EXPECT(export_to("hf:" + hf).code == 0 && export_to("llmc:" + bin).code == 0, "export");
    const auto refused = [](const string& args, std::vector<string> words) {
        const Ran ran = train_gpt(tiny_program_config("refused"), "--train.steps=0 " + args);
        EXPECT(ran.code == 78, "%s: code %d, '%s'", args.c_str(), ran.code, ran.err.c_str());
        for (const string& w : words) EXPECT(has(ran.err, w), "no '%s' in '%s'", w.c_str(), ran.err.c_str());
    };
    refused("--model.init=hf:" + hf + " --model.layers=3", {"model.layers = 3", "has 2"});
    refused("--model.init=hf:" + hf + " --model.vocab=509 --model.context=64", {"model.context = 64", "32"});
    refused("--model.init=hf:/nowhere", {"/nowhere", "config.json"});
    // a field that llm.c leaves 0: an untied head would use the field
    run("printf '\\001' | dd of=" + bin + " bs=1 seek=80 conv=notrunc 2>&1");
    refused("--model.init=llmc:" + bin, {"cut.bin", "field 20 of the header is 1"});
    run("printf '\\000' | dd of=" + bin + " bs=1 seek=80 conv=notrunc 2>&1; truncate -s -4 " + bin);
    refused("--model.init=llmc:" + bin, {"cut.bin", "expected"});
    run("printf '<!DOCTYPE html>' > " + bin);
    refused("--model.init=llmc:" + bin, {"cut.bin"});
    run("sed -i 's/gelu_new/relu/' " + hf + "/config.json");
    refused("--model.init=hf:" + hf, {"activation_function", "relu", "gelu_new"});
}

// Everything in a folder, by content.
static std::map<string, string> contents(const string& dir) {
    std::map<string, string> all;
    for (const auto& e : std::filesystem::recursive_directory_iterator(dir))
        if (e.is_regular_file()) all[e.path()] = text_of(e.path());
    return all;
}

TEST(files_that_are_read_are_no_place_for_an_export) {
    namespace fs = std::filesystem;
    trained();
    const string run_dir = folder("base"), link = folder("base_link"), hf = folder("hf_init");
    fs::create_directory_symlink(run_dir, link);
    fs::create_directories(folder("aside"));
    fs::create_symlink(run_dir + "/metrics.jsonl", folder("aside/rows"));
    EXPECT(export_to("hf:" + hf).code == 0, "export");
    const string init = " --model.init=hf:" + hf, step = run_dir + "/step_5";
    const auto before = contents(run_dir), model = contents(hf);
    const string config = text_of(trained());
    for (const string& what :
         {"hf:" + run_dir, "hf:" + step, "hf:" + link, "hf:" + folder("aside/../base/step_5/new"),
          "hf:" + run_dir + "/step_9", "llmc:" + step + "/rank_00000.safetensors",
          "llmc:" + step + "/new.bin",
          "llmc:" + link + "/metrics.jsonl", "gguf:" + run_dir + "/checkpoints.jsonl",
          "gguf:" + folder("aside/rows"), "llmc:" + trained(), "llmc:" + folder("t_train.bin"),
          "llmc:" + link + "/../t_val.bin", "hf:" + hf + init, "llmc:" + hf + "/model.safetensors" + init,
          "hf:" + hf + " --data.tokenizer=" + hf + "/config.json"}) {
        const Ran ran = export_to(what);
        EXPECT(ran.code == 78 && has(ran.err, "--export="), "%s: code %d, '%s'", what.c_str(), ran.code,
               ran.err.c_str());
        EXPECT(contents(run_dir) == before && contents(hf) == model && text_of(trained()) == config,
               "%s: files have changed", what.c_str());
    }
    for (const string& what : {"hf:" + run_dir + "/hf", "llmc:" + run_dir + "/model.bin"})
        for (int again = 0; again < 2; again++)
            EXPECT(export_to(what).code == 0, "%s: refused, time %d", what.c_str(), again);
}

// The config of a run on many ranks exports on one.
TEST(the_mesh_of_the_run_does_not_matter) {
    const string one = folder("one.bin"), many = folder("many.bin");
    EXPECT(export_to("llmc:" + one).code == 0);
    const Ran ran = train_gpt(trained(), "--export=llmc:" + many +
                              " --parallel.ranks=4 --parallel.tp=2 --parallel.pp=2 --parallel.zero=3");
    EXPECT(ran.code == 0 && text_of(one) == text_of(many), "code %d, '%s'", ran.code, ran.err.c_str());
}

// --export reads the table of formats, and --help lists it.
TEST(formats_are_named) {
    const string help = train_gpt("--help").out;
    for (const string name : {"hf:DIR", "gguf:FILE", "llmc:FILE"}) {
        EXPECT(has(help, name), "--help without %s", name.c_str());
        for (const string bad : {"x", "onnx:x", "hf"}) {
            const Ran ran = export_to(bad);
            EXPECT(ran.code == 78 && has(ran.err, "--export=" + bad) && has(ran.err, name), "%s: '%s'",
                   bad.c_str(), ran.err.c_str());
        }
        const string empty = name.substr(0, name.find(':') + 1);
        const Ran ran = export_to(empty);
        EXPECT(ran.code == 78 && has(ran.err, "path is missing"), "%s: '%s'", empty.c_str(), ran.err.c_str());
    }
}

// A model that was tuned to answer, as users hand it on: tokenizer, BOS, EOS and chat template go through
// checkpoints, Hugging Face's folders and GGUF files, and --chat answers from each.
#include "llmc/io/files/gguf.h"
#include "llmc/io/text/tokenizer.h"
#include "test/gguf.h"

using namespace test;
using std::string;

static const string kTemplate =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static Ran ok(const Ran& ran) {
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    return ran;
}

// The text of text_config(), by the model's tokenizer.
static json own_text() { return {{"train", folder("own_train_*.bin")}, {"val", folder("own_val_*.bin")}}; }

// A small Llama that was trained for a few steps, with more ids than its tokenizer has.
static const string& trained() {
    static const string config = [] {
        json all = text_config();
        json tokenizer = json::parse(text_of(folder("tokenizer.json")));
        for (const auto& [id, name] : {std::pair{300, "<|im_start|>"}, {301, "<|im_end|>"}})
            tokenizer["added_tokens"].push_back({{"id", id}, {"content", name}, {"special", true}});
        tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {
            {{"type", "Digits"}, {"individual_digits", true}}, tokenizer["pre_tokenizer"]}}};
        std::filesystem::create_directory(folder("own"));
        std::ofstream(folder("own") + "/tokenizer.json") << tokenizer.dump();
        std::ofstream(folder("own") + "/tokenizer_config.json")
            << json({{"bos_token", "<|im_start|>"}, {"eos_token", "<|im_end|>"},
                     {"chat_template", kTemplate}}).dump();
        ok(run("./tokenize encode --tokenizer=" + folder("own") + " --val=0.1 --out=" + folder("own") + " " +
               folder("text.txt")));
        all["data"] = own_text();
        all["data"]["tokenizer"] = folder("own");
        all["train"]["steps"] = 4, all["checkpoint"]["every"] = 4;
        all["model"] = {{"vocab", 310}, {"norm", "rmsnorm"}, {"bias", false}, {"position", "rope"},
                        {"heads", 4}, {"activation", "swiglu"}, {"kv_heads", 2}, {"ffn_channels", 96}};
        const string path = tiny_program_config("chat", all);
        ok(train_gpt(path));
        return path;
    }();
    return config;
}

static const string& exported(const string& format) {
    static std::map<string, string> all;
    if (!all.contains(format)) {
        const string to = format + ":" + folder(format == "hf" ? "chat_hf" : "chat_model");
        ok(train_gpt(trained(), "--export=" + to));
        all[format] = to;
    }
    return all.at(format);
}

// A config that names neither a model nor a tokenizer.
static string bare(const string& name) {
    json all = text_config();
    all["data"] = own_text();
    all.erase("model");
    all["run"] = {{"dir", folder(name)}, {"seed", 7}, {"threads", 1}, {"precision", "fp32"}};
    all["train"] = {{"steps", 2}, {"batch_tokens", 64}, {"micro_batch", 2}};
    all["eval"] = {{"every", 2}, {"batches", 2}}, all["sample"] = {{"every", 2}, {"tokens", 5}};
    all["checkpoint"] = {{"every", 2}};
    std::ofstream(folder(name + ".json")) << all.dump(1);
    return folder(name + ".json");
}

TEST(one_answer_from_every_form) {
    const string ask = " --sample.tokens=40 --generate='the small ", chat = ask + "model' --chat",
                 plain = ask + "model'";
    const Ran own = ok(train_gpt(trained(), chat)), text = ok(train_gpt(trained(), plain));
    EXPECT(!has(own.out, "the small model") && own.out != "\n" && own.err.empty(), "'%s' '%s'",
           own.out.c_str(), own.err.c_str());
    EXPECT(text.out.starts_with("the small model") && has(text.err, "note: this model answers") &&
           no_message(text.err).empty(), "'%s' '%s'", text.out.c_str(), text.err.c_str());
    for (const string& init : {exported("hf"), exported("gguf"), folder("chat") + "/step_4"}) {
        const string from = "--model.init=" + init;
        EXPECT(ok(train_gpt(bare("none"), from + chat)).out == own.out, "%s: another answer", init.c_str());
        EXPECT(ok(train_gpt(bare("none"), from + plain)).out == text.out, "%s: another text", init.c_str());
    }
    const string rhyme = ok(train_gpt(trained(), chat + " --system='the small model rhymes'")).out;
    EXPECT(rhyme != own.out, "the system message changes nothing");
}

TEST(training_on_from_a_gguf_file_keeps_the_tokenizer) {
    const string init = " --model.init=" + exported("gguf");
    const Ran ran = ok(train_gpt(bare("tuned"), init + " --optimizer.warmup=0"));
    EXPECT(ran.err.empty() && rows_of("tuned", "sample").size() == 1, "'%s'", ran.err.c_str());
    EXPECT(rows_of("tuned", "val").at(0).contains("bits_per_byte"), "no bits per byte");
    const string here = folder("tuned") + "/step_2/tokenizer.json";
    EXPECT(Tokenizer::load(here).hash() == Tokenizer::load(folder("own") + "/tokenizer.json").hash());
    EXPECT(ok(train_gpt(bare("tuned"), "--sample.tokens=20 --generate=the --chat")).err.empty());
}

TEST(what_the_exports_say) {
    const Gguf g = read_gguf(exported("gguf").substr(5));
    for (const auto& [key, value] : std::map<string, string>{
             {"pre", "smollm"}, {"model", "gpt2"}, {"tokens", "310"}, {"bos_token_id", "300"},
             {"eos_token_id", "301"}, {"add_bos_token", "0"}})
        EXPECT(g.value.at("tokenizer.ggml." + key) == value, "%s is '%s'", key.c_str(),
               g.value.at("tokenizer.ggml." + key).c_str());
    EXPECT(g.value.at("tokenizer.chat_template") == kTemplate);
    const string hf = exported("hf").substr(3);
    const json said = json::parse(text_of(hf + "/tokenizer_config.json"));
    EXPECT(said["tokenizer_class"] == "PreTrainedTokenizerFast" && said["bos_token"] == "<|im_start|>" &&
           said["eos_token"] == "<|im_end|>" && said["chat_template"] == kTemplate, "%s",
           said.dump().c_str());
    const json config = json::parse(text_of(hf + "/config.json"));
    EXPECT(config["bos_token_id"] == 300 && config["eos_token_id"] == 301, "%s", config.dump().c_str());
    EXPECT(!there(hf + "/merges.txt"), "files of GPT-2's tokenizer, which splits no digits");
}

TEST(a_model_that_does_not_chat) {
    const auto refused = [](const string& args, std::vector<string> words) {
        const Ran ran = train_gpt(bare("none"), args);
        EXPECT(ran.code == 78 && no_message(ran.err).empty(), "%s: code %d, '%s'", args.c_str(), ran.code,
               ran.err.c_str());
        for (const string& w : words) EXPECT(has(ran.err, w), "no '%s' in '%s'", w.c_str(), ran.err.c_str());
    };
    exported("hf");
    const string dir = folder("mute"), init = "--model.init=hf:" + dir;
    run("cp -r " + folder("chat_hf") + " " + dir + " && rm " + dir + "/tokenizer_config.json");
    refused(init + " --generate=a --chat", {"--chat: the model has no chat template", "leave --chat out"});
    std::ofstream(dir + "/chat_template.jinja") << "{{ messages }}";
    refused(init + " --generate=a --chat", {"--chat: the model's chat template is unknown here", "ChatML"});
    const Ran plain = ok(train_gpt(bare("none"), init + " --generate=a"));
    const string note = "note: the text is continued as it stands: the model's chat template is unknown";
    EXPECT(plain.out.starts_with("a") && has(plain.err, note), "'%s'", plain.err.c_str());
    refused(init + " --chat", {"--chat is for a message", "--generate=MESSAGE --chat"});
    refused(init + " --generate=a --chat=yes", {"--chat takes no value"});
    refused(init + " --generate=a --system=b", {"--system is for a conversation", "--chat --system=TEXT"});
    refused(init + " --generate=a --chatt", {"Did you mean --chat?"});
}

// The model's text goes on without a tokenizer; --generate says why it cannot.
TEST(a_gguf_file_with_another_tokenizer) {
    const string file = exported("gguf").substr(5), odd = folder("odd.gguf");
    string bytes = text_of(file);
    const size_t at = bytes.find("smollm");
    std::ofstream(odd, std::ios::binary) << bytes.replace(at, 6, "tekken");
    const Ran ran = train_gpt(bare("none"), "--generate=a --model.init=gguf:" + odd);
    EXPECT(ran.code == 78 && has(ran.err, "tokenizer.ggml.pre is \"tekken\"") &&
           has(ran.err, "data.tokenizer") && no_message(ran.err).empty(), "code %d, '%s'", ran.code,
           ran.err.c_str());
}

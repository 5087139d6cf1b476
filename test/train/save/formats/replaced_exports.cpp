// Exports onto files that are there: without --overwrite only this program's are replaced, and an export that
// ends early changes nothing. Weights that are not finite are named.
#include <filesystem>
#include <map>

#include "test/task_file.h"

using namespace test;
using std::string;
namespace fs = std::filesystem;

static const string& trained() {
    static const string config =
        test::trained_config("base", {{"train", {{"steps", 2}}}, {"checkpoint", {{"every", 2}}}});
    return config;
}

static Ran export_to(const string& to, const string& args = "", const string& limit = "") {
    return run(limit + "./train_gpt " + trained() + " --export=" + to + " " + args);
}

static std::map<string, string> contents(const string& path) {
    std::map<string, string> all;
    if (fs::is_regular_file(path)) all[path] = text_of(path);
    else for (const auto& e : fs::recursive_directory_iterator(path))
        if (e.is_regular_file()) all[e.path()] = text_of(e.path());
    return all;
}

TEST(an_export_that_ends_early_changes_nothing) {
    for (const string& to : {"hf:" + folder("dir"), "gguf:" + folder("m.gguf"), "llmc:" + folder("m.bin")}) {
        const string path = to.substr(to.find(':') + 1);
        EXPECT(export_to(to).code == 0, "%s", to.c_str());
        const auto before = contents(path);
        const Ran cut = export_to(to, "", "ulimit -f 40; ");
        EXPECT(cut.code != 0 && contents(path) == before, "%s: code %d, '%s'", to.c_str(), cut.code,
               cut.err.c_str());
        // what a killed export leaves
        fs::create_directories(path + ".unfinished/");
        const string half = path + ".unfinished/" + fs::path(path).filename().string();
        if (to[0] == 'h') fs::create_directories(half);
        std::ofstream(to[0] == 'h' ? half + "/model.safetensors" : half) << "half";
        const Ran again = export_to(to);
        EXPECT(again.code == 0 && has(again.out, "replacing what was there") && contents(path) == before &&
               !there(path + ".unfinished"), "%s: code %d, '%s'", to.c_str(), again.code, again.err.c_str());
        // a folder of the user
        fs::create_directories(path + ".unfinished");
        std::ofstream(path + ".unfinished/thesis.txt") << "years";
        const Ran mine = export_to(to);
        EXPECT(mine.code == 78 && has(mine.err, "thesis.txt is in the way") && contents(path) == before &&
               text_of(path + ".unfinished/thesis.txt") == "years", "code %d, '%s'", mine.code,
               mine.err.c_str());
    }
}

TEST(files_of_others_are_replaced_only_by_name) {
    const string hf = folder("theirs"), gguf = folder("theirs.gguf"), llmc = folder("theirs.bin");
    fs::create_directories(hf);
    std::ofstream(hf + "/README.md") << "about";
    std::ofstream(hf + "/config.json") << "{}";
    std::ofstream(hf + "/model.safetensors") << "theirs";
    std::ofstream(hf + "/chat_template.jinja") << "theirs";
    std::ofstream(gguf) << "theirs";
    std::ofstream(llmc) << "theirs";
    for (const string& to : {"hf:" + hf, "gguf:" + gguf, "llmc:" + llmc}) {
        const string path = to.substr(to.find(':') + 1);
        const auto before = contents(path);
        const Ran refused = export_to(to);
        EXPECT(refused.code == 78 && has(refused.err, "is no export of this program") &&
               has(refused.err, "--overwrite") && contents(path) == before, "%s: code %d, '%s'", to.c_str(),
               refused.code, refused.err.c_str());
        const Ran ran = export_to(to, "--overwrite");
        EXPECT(ran.code == 0 && has(ran.out, "replacing what was there"), "%s: code %d, '%s'", to.c_str(),
               ran.code, ran.err.c_str());
    }
    EXPECT(text_of(hf + "/README.md") == "about" && !there(hf + "/chat_template.jinja") &&
           !there(hf + "/unfinished"), "other files");
    const Ran alone = train_gpt(trained(), "--overwrite");
    EXPECT(alone.code == 78 && has(alone.err, "--overwrite is for --export"), "'%s'", alone.err.c_str());
    // saved again by another program: without the mark of this one
    string file = text_of(hf + "/model.safetensors");
    const size_t at = file.find("train_gpt");
    EXPECT(at != string::npos, "no mark");
    std::ofstream(hf + "/model.safetensors", std::ios::binary) << file.replace(at, 9, "otherwise");
    EXPECT(export_to("hf:" + hf).code == 78, "a model that another program saved");
}

// Links to a folder stay links.
TEST(a_link_to_a_folder) {
    fs::create_directories(folder("v1"));
    fs::create_directory_symlink(folder("v1"), folder("latest"));
    for (const char* end : {"/", ""})
        EXPECT(export_to("hf:" + folder("latest") + end).code == 0, "'%s'", end);
    EXPECT(fs::is_symlink(folder("latest")) && there(folder("v1/config.json")) &&
           !there(folder("v1.unfinished")), "the link is gone");
    EXPECT(export_to("hf:" + folder("v1/config.json")).code == 78, "a file in the place of a folder");
    EXPECT(export_to("gguf:" + folder("v1")).code == 78, "a folder in the place of a file");
}

// The same in every format and program: 77 and the tensor, and no row of a score.
TEST(weights_that_are_not_finite_are_named) {
    const string tokenizer = folder("t.json");
    std::ofstream(folder("words.txt")) << string(3000, 'a') + " few words to take bytes from\n";
    EXPECT(run("./tokenize train --vocab=300 --out=" + tokenizer + " " + folder("words.txt")).code == 0);
    const string task = task_file("nan_task", "\"accuracy\": \"sum\"", {{"a few", {" words", " bytes"}}});
    for (const auto& [to, tensor] : {std::pair{"hf:" + folder("nan"), "transformer.ln_f.weight"},
                                     {"gguf:" + folder("nan.gguf"), "output_norm.weight"},
                                     {"llmc:" + folder("nan.bin"), "lnfw"}}) {
        EXPECT(export_to(to).code == 0, "%s", to.c_str());
        const string path = to.substr(to.find(':') + 1) + (to[0] == 'h' ? "/model.safetensors" : "");
        string bytes = text_of(path);
        const float nan = NAN;
        size_t at = bytes.size() - 2 * 64 * 4;                          // llmc: lnfw, lnfb
        if (to[0] == 'h') {
            const size_t entry = bytes.find("\"transformer.ln_f.weight\"");
            const size_t offsets = bytes.find("[", bytes.find("data_offsets", entry));
            uint64_t header;
            memcpy(&header, bytes.data(), 8);
            at = 8 + header + std::stoull(bytes.substr(offsets + 1));
        }
        if (to[0] == 'g') at -= 512 * 64 * 4;                           // and the second head
        memcpy(&bytes[at], &nan, 4);
        std::ofstream(path, std::ios::binary) << bytes;
        for (const string& args : {string("--generate=a"), "--evaluate=" + task,
                                   "--export=llmc:" + folder("out.bin"), string("--train.steps=0")}) {
            const Ran ran = train_gpt(trained(), "--run.dir=" + folder("nan_run") + " --data.tokenizer=" +
                                      tokenizer + " --model.init=" + to + " " + args);
            EXPECT(ran.code == 77 && has(ran.err, string("'") + tensor + "'"), "%s %s: code %d, '%s'",
                   to.c_str(), args.c_str(), ran.code, ran.err.c_str());
            EXPECT(!there(folder("nan_run/evals.jsonl")) && !there(folder("out.bin")), "%s", args.c_str());
        }
    }
}

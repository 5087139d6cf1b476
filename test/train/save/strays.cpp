// ./train_gpt with links and strays in run.dir, with a run.dir that goes away, and with closed descriptors.
#include <cstring>
#include <filesystem>

#include "test/program.h"

namespace fs = std::filesystem;
using namespace test;
using std::string;

static json saving(int steps) {
    return {{"train", {{"steps", steps}}},
            {"checkpoint", {{"every", 2}, {"keep_last", 0}, {"async", false}}}};
}

// ---------------------------------------------------------------------------------------------------------
// closed descriptors

// Screen text lands in no file. A run that goes on opens its files in another order.
TEST(closed_descriptors_change_no_file) {
    const string config = tiny_program_config("closed", saving(6));
    const auto starts = [&](const string& name, const string& closed) {
        const string start = "./train_gpt " + config + " --log.every=1 --run.dir=" + folder(name);
        const string more = " --train.steps=10 --checkpoint.override='[\"train.steps\"]' ";
        return run(start + " " + closed).code == 0 && run(start + more + closed).code == 0;
    };
    EXPECT(starts("open", ">/dev/null"), "a plain run");
    for (const char* closed : {"<&- >&- 2>&-", ">&-", "2>&-", ">&- 2>&-"}) {
        fs::remove_all(folder("shut"));
        EXPECT(starts("shut", closed), "%s: exit code", closed);
        EXPECT(timeless("shut") == timeless("open"), "%s: rows", closed);
        for (int step = 2; step <= 10; step += 2) {
            const string file = fmt::format("/step_{}/rank_00000.safetensors", step);
            const string tensors = text_of(folder("open") + file);
            const bool same = !tensors.empty() && tensors == text_of(folder("shut") + file);
            EXPECT(same, "%s: step %d", closed, step);
        }
    }
}

TEST(closed_descriptors_change_no_shard) {
    text_config();
    const string encode = "./tokenize encode --tokenizer=" + folder("tokenizer.json") + " " +
                          folder("text.txt") + " --out=" + folder("");
    const auto set = [](const char* name) { return text_of(folder(name) + "_train_000000.bin"); };
    EXPECT(run(encode + "open_set").code == 0, "a plain set");
    for (const char* closed : {"<&- >&- 2>&-", ">&-", ">&- 2>&-"}) {
        EXPECT(run(encode + "shut_set " + closed).code == 0, "%s: exit code", closed);
        EXPECT(!set("shut_set").empty() && set("shut_set") == set("open_set"), "%s", closed);
    }
}

// ---------------------------------------------------------------------------------------------------------
// run.dir

// Beside strays and leftovers that are links a start goes on; strays and targets keep their content.
TEST(strays_block_no_start) {
    const string config = tiny_program_config("strays", saving(4)), dir = folder("strays"),
                 others = folder("others");
    EXPECT(train_gpt(config).code == 0, "the first start");
    fs::create_directories(others + "/sub"), fs::create_directories(dir + "/step_0012/sub");
    std::ofstream(others + "/sub/file") << "precious";
    std::ofstream(dir + "/step_0012/sub/file") << "precious";
    std::ofstream(dir + "/step_14") << "precious";
    fs::create_symlink("step_12", dir + "/step_12");
    for (const char* link : {"/step_1.tmp-1", "/shared.tmp-1", "/step_4/link"})
        fs::create_directory_symlink(others, dir + link);
    fs::rename(dir + "/step_2", others + "/step_2");
    fs::create_directory_symlink(others + "/step_2", dir + "/step_2");
    const Ran again = train_gpt(config, "--train.steps=8 --checkpoint.override='[\"train.steps\"]'"
                                        " --checkpoint.keep_last=1");
    EXPECT(again.code == 0, "'%s'", again.err.c_str());
    EXPECT((steps_of("strays", "train") == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}), "rows");
    EXPECT(!fs::is_symlink(dir + "/step_2") && !fs::exists(dir + "/step_4"), "both are pruned");
    EXPECT(there(others + "/step_2/manifest.json"), "what step_2 pointed to is emptied");
    for (const string& file : {others + "/sub/file", dir + "/step_0012/sub/file", dir + "/step_14"})
        EXPECT(text_of(file) == "precious", "%s", file.c_str());
    EXPECT(fs::read_symlink(dir + "/step_12") == "step_12", "the link");
}

TEST(strays_alone_are_no_run) {
    const string config = tiny_program_config("only_strays", saving(2)), dir = folder("only_strays");
    fs::create_directories(dir + "/step_0012"), fs::create_directories(dir + "/step_7x");
    const Ran ran = train_gpt(config, "--checkpoint.resume=never");
    EXPECT(ran.code == 0 && there(dir + "/step_2/manifest.json"), "'%s'", ran.err.c_str());
}

// The run stops itself, its folder is renamed, and perhaps another takes the name; the run goes on.
static Ran moved_away(const string& name, const string& then) {
    const string config = tiny_program_config(name, saving(8)), stamp = folder(name + ".stamp");
    return run("FAULT=train:5:stop FAULT_STAMP=" + stamp + " ./train_gpt " + config + " & pid=$!\n"
               "i=0; until [ -e " + stamp + " ]; do sleep 0.02; i=$((i+1)); [ $i -lt 1500 ] || break; done\n"
               "mv " + folder(name) + " " + folder(name + "_away") + "\n" + then + "\n"
               "while kill -0 $pid 2>/dev/null; do kill -CONT $pid; sleep 0.05; done\n"
               "wait $pid; echo \"exit code $?\"");
}

TEST(a_run_dir_that_goes_away) {
    const Ran ran = moved_away("gone", "");
    EXPECT(has(ran.out, "exit code 78") && has(ran.err, "was it moved or removed?"), "'%s'", ran.err.c_str());
    EXPECT(!has(ran.err, " PB ") && !has(ran.err, "are free"), "'%s'", ran.err.c_str());
    EXPECT(!fs::exists(folder("gone")), "it is made again");
    EXPECT((steps_of("gone_away", "train") == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}), "rows of all steps");
}

TEST(another_folder_in_the_place_of_run_dir) {
    const Ran ran = moved_away("replaced", "mkdir " + folder("replaced"));
    EXPECT(has(ran.out, "exit code 78") && has(ran.err, "is another folder than at the start"), "'%s'",
           ran.err.c_str());
    EXPECT(fs::is_empty(folder("replaced")), "the run saves in another's folder");
}

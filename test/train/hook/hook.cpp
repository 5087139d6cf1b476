// checkpoint.hook: each checkpoint is given to a command, which never stops training.
#include <filesystem>

#include "llmc/train/save/save.h"
#include "test/program.h"

using std::string;
using namespace test;
namespace fs = std::filesystem;

// Four steps, a checkpoint after each of them, of which one is kept.
static Ran train_with(const string& name, const string& command, const string& more = "") {
    const json changes = {{"train", {{"steps", 4}}}, {"eval", {{"every", 0}}}, {"sample", {{"every", 0}}},
                          {"checkpoint", {{"every", 1}, {"keep_last", 1}, {"async", false},
                                          {"hook", command}}}};
    return train_gpt(tiny_program_config(name, changes), more);
}

static void expect_trained(const string& name, const Ran& ran) {
    EXPECT(ran.code == 0 && rows_of(name, "train").size() == 4, "%s: code %d, '%s'", name.c_str(), ran.code,
           ran.err.c_str());
    EXPECT(saved_steps(posix_disk(), folder(name)) == std::vector<int64_t>{4}, "%s: other checkpoints",
           name.c_str());
}

// keep_last waits: while the command has step N, training has gone on and would remove it.
TEST(a_command_gets_each_checkpoint_while_the_folder_is_whole) {
    const string calls = folder("hook_calls.txt");
    const Ran ran = train_with("hooked", "f() { sleep 0.3; (cd \"$1\" && ls manifest.json config.json && "
                                         "echo \"$1\" >>" + calls + "); }; f");
    expect_trained("hooked", ran);
    string expected;
    for (int step = 1; step <= 4; step++) expected += folder("hooked") + fmt::format("/step_{}\n", step);
    EXPECT(text_of(calls) == expected, "'%s', not '%s'", text_of(calls).c_str(), expected.c_str());
    EXPECT(ran.err.starts_with("warning: 2 checkpoints wait") && ran.err.find('\n') == ran.err.size() - 1,
           "'%s'", ran.err.c_str());
}

TEST(a_command_that_fails_is_a_line) {
    const Ran ran = train_with("hook_fails", "echo broken; exit 3 #");
    expect_trained("hook_fails", ran);
    EXPECT(ran.err.find("hook_fails/step_4 ended with exit code 3") != string::npos, "'%s'", ran.err.c_str());
    EXPECT(text_of(folder("hook_fails") + "/hook.log").starts_with("broken\n"), "no output");
}

TEST(a_command_that_hangs_is_killed_with_all_its_children) {
    const string alive = folder("hook_alive.txt");
    const Ran ran = train_with("hook_hangs", "(sleep 3; touch " + alive + ") & sleep 600; true",
                               "--checkpoint.hook_timeout=1 --checkpoint.every=4");
    expect_trained("hook_hangs", ran);
    EXPECT(ran.err.find("was killed at checkpoint.hook_timeout") != string::npos, "'%s'", ran.err.c_str());
    run("sleep 3");
    EXPECT(!fs::exists(alive), "a child of the command lives");
}

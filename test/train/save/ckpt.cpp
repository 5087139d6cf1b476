// dev/ckpt, as a user calls it.
#include <filesystem>

#include "test/program.h"

namespace fs = std::filesystem;
using namespace test;
using std::string;

static Ran ckpt(const string& args) { return run("dev/ckpt " + args); }

// A run with checkpoints of steps 2 and 4, and a run of two ranks that resumed step 4 without a step.
static const string& trained() {
    static const string dir = [] {
        const json changes = {{"train", {{"steps", 4}}}, {"eval", {{"every", 0}}},
                              {"checkpoint", {{"every", 2}}}};
        const Ran one = train_gpt(tiny_program_config("one", changes));
        const Ran two = train_gpt(tiny_program_config("two", changes),
                                  "--checkpoint.resume=" + folder("one") + "/step_4 --parallel.ranks=2 "
                                  "--parallel.transport=threads --parallel.zero=1");
        EXPECT(one.code == 0 && two.code == 0, "'%s' '%s'", one.err.c_str(), two.err.c_str());
        return folder("one");
    }();
    return dir;
}

TEST(list) {
    const Ran ran = ckpt("list " + trained());
    EXPECT(ran.code == 0 && has(ran.out, "\n   2 ") && has(ran.out, "\n   4 ") && has(ran.out, "\"ranks\":1"),
           "code %d, '%s'", ran.code, ran.out.c_str());
    EXPECT(has(ckpt("list /nowhere").out, "holds no checkpoint"), "of no run");
}

TEST(describe) {
    const Ran ran = ckpt("describe " + folder("two") + "/step_4");
    for (const char* word : {"step 4", "\"ranks\":2", "h.1.fcw", "256 x 64", "master", "F32",
                             "rank_00001.safetensors"})
        EXPECT(ran.code == 0 && has(ran.out, word), "no '%s' in '%s'", word, ran.out.c_str());
    EXPECT(ckpt("describe " + trained()).code == 78, "of a folder that is no checkpoint");
}

TEST(diff) {
    const Ran same = ckpt("diff " + trained() + "/step_4 " + folder("two") + "/step_4");
    EXPECT(same.code == 0 && has(same.out, "are equal, bit for bit") && fs::exists(folder("two") +
           "/step_4/rank_00001.safetensors"), "another mesh: code %d, '%s' '%s'", same.code, same.out.c_str(),
           same.err.c_str());
    const Ran other = ckpt("diff " + trained() + "/step_2 " + trained() + "/step_4");
    EXPECT(other.code == 1 && has(other.out, "\n0 of "), "other steps: code %d, '%s'", other.code,
           other.out.c_str());
}

// The last value of the file: of the last moment of the last tensor.
TEST(one_changed_value) {
    const string good = trained() + "/step_4", bad = folder("changed");
    fs::copy(good, bad, fs::copy_options::recursive);
    std::fstream file(bad + "/rank_00000.safetensors", std::ios::binary | std::ios::in | std::ios::out);
    const float value = 3;
    file.seekp(-4, std::ios::end).write(reinterpret_cast<const char*>(&value), 4);
    file.close();
    const Ran diff = ckpt("diff " + good + " " + bad), verified = ckpt("verify " + good + " " + bad);
    const size_t row = diff.out.find("lnfb");
    EXPECT(diff.code == 1 && row != string::npos, "code %d, '%s'", diff.code, diff.out.c_str());
    if (row != string::npos) {
        std::istringstream words(diff.out.substr(row));
        string name, part, differ, of, largest, at;
        words >> name >> part >> differ >> of >> largest >> at;
        EXPECT(part == "v" && differ == "1" && of == "64" && largest == "3" && at == "63", "'%s'",
               diff.out.c_str());
    }
    EXPECT(verified.code == 79 && has(verified.out, good + ": whole") &&
           has(verified.out, bad + "/rank_00000.safetensors") && has(verified.out, "of h.1.fcprojw"),
           "code %d, '%s'", verified.code, verified.out.c_str());
    EXPECT(ckpt("verify " + good).code == 0, "the good one");
}

TEST(without_arguments_it_shows_how) {
    EXPECT(ckpt("").code == 78 && has(ckpt("").err, "usage"), "code %d", ckpt("").code);
    EXPECT(ckpt("diff " + trained()).code == 78, "one folder only");
}

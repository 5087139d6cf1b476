// Sets of shards: readers accept a whole set only, wherever ./tokenize encode stopped while replacing a set.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "llmc/io/files/shard_writer.h"
#include "llmc/train/run/run_data.h"
#include "test/shards.h"

using std::string;
using std::vector;
using test::write_shard;
namespace fs = std::filesystem;

// Shards of 20 tokens below the prefix; returns their names, of training first.
static vector<string> write_set(const string& prefix, uint64_t seed, size_t train, size_t val) {
    make_directories(parent_directory(prefix));
    ShardWriter halves[] = {{prefix + "_train", 500, 7, 20}, {prefix + "_val", 500, 7, 20}};
    for (size_t h = 0; h < 2; h++) {
        const auto ids = test::random_ids((h ? val : train) * 20, 500, seed + h);
        halves[h].append(vector<uint16_t>(ids.begin(), ids.end()));
        halves[h].close();
    }
    publish(halves);
    vector<string> paths = halves[0].paths;
    paths.insert(paths.end(), halves[1].paths.begin(), halves[1].paths.end());
    return paths;
}

static string content_of(const vector<string>& paths) {
    string all;
    for (const string& path : paths) all += read_file(path);
    return all;
}

static vector<ShardInfo> infos_of(const vector<string>& paths) {
    vector<ShardInfo> infos;
    for (const string& path : paths) infos.push_back(open_shard_file(path).info);
    return infos;
}

static vector<string> shards_of(const string& glob) { return glob_files(test::folder(glob)); }

// A run trains on one set and validates on the other.
static Fatal fatal_of_run(const string& train, const string& val) {
    Config cfg;
    cfg.model = {.layers = 1, .heads = 1, .channels = 8, .context = 10, .vocab = 500, .init = "random"};
    cfg.data.train = {{test::folder(train)}}, cfg.data.val = {{test::folder(val)}};
    cfg.train.batch_tokens = 10;
    return test::fatal_of([&] { open_run_data(cfg); });
}

// The steps of encode where a set of that name exists: the mark, renames, removal of the rest of the earlier
// set, removal of the mark.
struct Replacement {
    string folder, mark = replacement_mark(folder + "/s");
    vector<std::pair<string, string>> steps;        // from, or "": remove; to

    Replacement(const string& name, const vector<string>& old, const vector<string>& fresh)
        : folder(test::folder(name)) {
        make_directories(folder);
        for (const string& path : old) fs::copy(path, here(path));
        write_file(test::folder(name + ".empty"), "");
        steps.push_back({test::folder(name + ".empty"), mark});
        for (const string& path : fresh) steps.push_back({path, here(path)});
        for (const string& path : old)
            if (std::none_of(steps.begin(), steps.end(), [&](auto& s) { return s.second == here(path); }))
                steps.push_back({"", here(path)});
        steps.push_back({"", mark});
    }
    string here(const string& path) const { return folder + path.substr(path.rfind('/')); }
    void step(size_t i) const {
        if (steps[i].first.empty()) unlink(steps[i].second.c_str());
        else fs::copy(steps[i].first, steps[i].second, fs::copy_options::overwrite_existing);
    }
};

static void replace(const string& name, size_t train, size_t val) {
    const auto old = write_set(test::folder(name + "_old/s"), 1, 4, 2),
               fresh = write_set(test::folder(name + "_new/s"), 3, train, val);
    const Replacement r(name, old, fresh);
    for (size_t k = 0; k <= r.steps.size(); k++) {
        if (k) r.step(k - 1);
        const vector<string> found = shards_of(name + "/s_*.bin");
        const Fatal f = test::fatal_of([&] { check_sets(infos_of(found)); });
        EXPECT(f.code == (k == 0 || k == r.steps.size() ? 0 : kExitConfig), "%s, stopped after %zu: %d %s",
               name.c_str(), k, f.code, f.what());
        if (f.code == 0) EXPECT(content_of(found) == content_of(k ? fresh : old), "%s, %zu", name.c_str(), k);
        const Fatal run = fatal_of_run(name + "/s_train_*.bin", name + "/s_val_*.bin");
        if (val) EXPECT(run.code == f.code, "%s: training after %zu: %d", name.c_str(), k, run.code);
    }
}

TEST(a_shorter_set_replaces_a_longer_one) { replace("shorter", 2, 1); }
TEST(a_longer_set_replaces_a_shorter_one) { replace("longer", 6, 3); }
TEST(a_set_of_training_alone_replaces_one_with_validation) { replace("alone", 3, 0); }

TEST(sets_that_may_be_read) {
    write_set(test::folder("two/a"), 1, 3, 1), write_set(test::folder("two/b"), 5, 2, 1);
    const auto readable = [](const vector<string>& paths) {
        const Fatal f = test::fatal_of([&] { check_sets(infos_of(paths)); });
        EXPECT(f.code == 0 && !paths.empty(), "%zu shards: %s", paths.size(), f.what());
    };
    readable(shards_of("two/*.bin"));                   // two corpora
    readable(shards_of("two/a_train_00000[01].bin"));   // part of a set
    EXPECT(fatal_of_run("two/a_train_*.bin", "two/b_val_*.bin").code == 0, "validation of another corpus");
    write_shard(test::folder("two/a_train_000003.bin"), test::random_ids(20, 500));  // llm.c's, no set
    readable(shards_of("two/a_train_*.bin"));
    write_file(replacement_mark(test::folder("two/b")), "");
    readable(shards_of("two/a_*.bin"));                 // another set is replaced
    const Fatal f = test::fatal_of([&] { check_sets(infos_of(shards_of("two/b_*.bin"))); });
    EXPECT(f.code == kExitConfig && strstr(f.what(), "b.replacing"), "%d '%s'", f.code, f.what());
}

// A call that is killed between two renames is refused; the next call mends the set and leaves no mark.
TEST(encode_mends_a_mixture) {
    const string t = " --tokenizer=test/data/tokenizer/hf.tiktoken ", d = test::folder("mend");
    make_directories(d);
    const auto encode = [&](const string& out, const char* options) {
        const auto r = test::run("./tokenize encode" + t + "--val=0.3 --out=" + d + "/" + out + " " +
                                 options + " test/data/tokenizer/corpus.txt");
        EXPECT(r.code == 0, "%s", r.err.c_str());
        return content_of(glob_files(d + "/" + out + "_*.bin"));
    };
    const string first = encode("a", "--shard-tokens=4000"), again = encode("b", "--shard-tokens=4000");
    EXPECT(first == again && !fs::exists(d + "/a.replacing"), "the same input gives other bytes");
    write_file(d + "/a.replacing", "");
    const string train = d + "/a_train_*.bin";
    for (const char* command : {"decode", "info"}) {
        const auto r = test::run(string("./tokenize ") + command + (command[0] == 'd' ? t : " ") + train);
        EXPECT(r.code == kExitConfig && r.err.find("a_train_000000.bin") != r.err.npos &&
                   (command[0] == 'i' || r.out.empty()), "%s: %d '%s'", command, r.code, r.err.c_str());
    }
    EXPECT(encode("a", "--shard-tokens=4000") == first, "encoding again gives other bytes");
    const auto info = test::run("./tokenize info " + train);
    EXPECT(info.code == 0 && !fs::exists(d + "/a.replacing"), "%s%s", info.out.c_str(), info.err.c_str());
}

// data.rows=documents as a user sees it: the start, the settings, ranks, a resumed run, and rows of a known
// loss.
#include "test/even_documents.h"

using std::string;
using std::vector;
using namespace test;

// Documents of 20 and 13 tokens, a byte each: a pair fills a row of T = 32. more: and as many of 41.
static json documents_config(bool more = false) {
    const string prefix = folder(more ? "more" : "pairs");
    std::ofstream rows(prefix + ".jsonl");
    for (int i = 0; i < 80; i++)
        for (const int letters : {19, 12, more ? 40 : 0})
            if (letters) rows << R"({"text": ")" << string(size_t(letters), char('a' + (i + letters) % 26))
                              << "\"}\n";
    rows.close();
    json data = data_of_bytes(prefix, "--shard-tokens=1000");
    data["rows"] = "documents";
    return {{"run", {{"precision", "fp64"}}},
            {"model", {{"vocab", 0}, {"layers", 1}}},
            {"data", data},
            {"train", {{"steps", 6}, {"batch_tokens", 128}, {"micro_batch", 1}}},
            {"eval", {{"every", 2}, {"batches", 0}}}};
}

TEST(the_start_tells_the_share) {
    const Ran pairs = train_gpt(tiny_program_config("pairs", documents_config()), "--train.steps=1");
    const string told = "rows    begin with documents: cut off are 0.0% of the tokens, 0.0% for validation\n";
    EXPECT(pairs.code == 0 && has(pairs.out, told), "%s%s", pairs.out.c_str(), pairs.err.c_str());
    const string config = tiny_program_config("more", documents_config(true));
    const Ran more = train_gpt(config, "--train.steps=1");      // 41 tokens are a row of 33
    EXPECT(more.code == 0 && has(more.out, "cut off are 10.8"), "%s", more.out.c_str());
    const Ran stream = train_gpt(config, "--train.steps=1 --data.rows=stream --run.dir=" + folder("stream"));
    EXPECT(stream.code == 0 && !has(stream.out, "\nrows "), "%s%s", stream.out.c_str(), stream.err.c_str());
    EXPECT(has(train_gpt(config, "--plan").out, "\"rows\": \"documents\""), "the resolved settings");
    const Ran wrong = train_gpt(config, "--data.rows=document");
    EXPECT(wrong.code == 78 && has(wrong.err, "data.rows") && has(wrong.err, "stream, documents"), "%s",
           wrong.err.c_str());
}

TEST(an_index_and_a_scan_train_alike) {
    const string config = tiny_program_config("scanned", documents_config(true));
    const Ran scanned = train_gpt(config);
    const string rows = timeless("scanned");
    EXPECT(index_shards(folder("more_train_*.bin")) > 3, "few shards");
    train_gpt(config, "--run.dir=" + folder("indexed"));
    EXPECT(rows.size() > 500 && timeless("indexed") == rows, "%s", scanned.err.c_str());
    write_file(folder("more_train_000001.idx"), "no index");
    const Ran wrong = train_gpt(config, "--run.dir=" + folder("wrong"));
    EXPECT(wrong.code == 78 && has(wrong.err, "more_train_000001.idx: no index of documents"),
           "code %d, '%s'", wrong.code, wrong.err.c_str());
    EXPECT(no_message(wrong.err).empty(), "%s", no_message(wrong.err).c_str());
}

TEST(ranks_see_the_same_rows) {
    const string config = tiny_program_config("ranks", documents_config(true)), few = "--train.steps=2 ";
    train_gpt(config, few + "--run.dir=" + folder("ranks_1"));
    for (const string mesh : {"2 --parallel.zero=1", "4"}) {
        const Ran ran = train_gpt(config, few + "--parallel.transport=threads --parallel.ranks=" + mesh +
                                  " --run.dir=" + folder("ranks_n"));
        EXPECT(ran.code == 0, "%s: %s", mesh.c_str(), ran.err.c_str());
        for (const char* event : {"train", "val"}) {
            const vector<json> one = rows_of("ranks_1", event), more = rows_of("ranks_n", event);
            EXPECT(one.size() == more.size() && one.size() == 2, "%zu and %zu", one.size(), more.size());
            for (size_t i = 0; i < one.size() && i < more.size(); i++)
                EXPECT_NEAR(one[i]["loss"].get<double>(), more[i]["loss"].get<double>(), 1e-10);
        }
        std::filesystem::remove_all(folder("ranks_n"));
    }
}

TEST(a_resumed_run_goes_on_with_the_next_row) {
    const string config = tiny_program_config("straight", documents_config(true));
    const string resumed = " --run.dir=" + folder("resumed") + " --checkpoint.every=1 ";
    train_gpt(config, resumed + "--train.steps=3 --optimizer.schedule=constant");
    const Ran other = train_gpt(config, resumed + "--optimizer.schedule=constant --data.rows=stream");
    EXPECT(other.code == 78 && has(other.err, "data.rows"), "code %d, '%s'", other.code, other.err.c_str());
    const Ran ran = train_gpt(config, resumed + "--optimizer.schedule=constant");
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    train_gpt(config, "--run.dir=" + folder("whole") + " --optimizer.schedule=constant");
    const auto losses = [](const string& name) {
        vector<double> all;
        for (const json& row : rows_of(name, "train")) all.push_back(row["loss"]);
        return all;
    };
    EXPECT(losses("whole").size() == 6 && losses("resumed") == losses("whole"), "%zu and %zu steps",
           losses("resumed").size(), losses("whole").size());
}

// Shards without an index of their documents are read through by rank 0 alone.
#include <algorithm>
#include <cstring>
#include <fstream>

#include "llmc/base/progress.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/train/run/run_data.h"
#include "test/shards.h"

using std::string, std::vector;
using test::folder;

constexpr int32_t kEot = 50256;

// Documents of 20 tokens.
static string shard_of(const string& name, size_t tokens) {
    vector<int32_t> ids(tokens);
    for (size_t i = 0; i < tokens; i++) ids[i] = i % 20 ? int32_t(i % 1000) + 1 : kEot;
    return test::write_shard(folder(name), ids);
}

TEST(a_scan_that_is_known_is_not_made_again) {
    const string path = shard_of("known.bin", 200);
    DocumentScans scans;
    const RowRule rule = {.kind = RowKind::Documents, .eot = kEot, .scans = &scans};
    const Dataset first = open_dataset("data.train", {{path}}, 9, 1, false, rule);
    EXPECT(scans.size() == 1 && scans.begin()->first == std::pair(path, kEot), "%zu scans", scans.size());
    const DocumentIndex& found = scans.begin()->second;
    EXPECT(found.eot == kEot && found.starts.size() == 10 && found.starts[3] == 60 && first.rows() == 10,
           "%zu documents", found.starts.size());
    scans.begin()->second.starts = {40, 100};           // as if the shard had these alone
    const Dataset second = open_dataset("data.train", {{path}}, 9, 1, false, rule);
    EXPECT(second.rows() == 2, "%zu rows", size_t(second.rows()));
}

// A tokenizer whose template adds BOS; shards of earlier encodings begin documents with end-of-text.
TEST(documents_begin_with_the_first_token_of_a_set) {
    constexpr int32_t kBos = 7;
    const RowRule rule = {.kind = RowKind::Documents, .eot = kBos, .other = kEot, .masks = true};
    for (const int32_t begin : {kBos, kEot}) {
        vector<int32_t> ids(200);
        for (size_t i = 0; i < ids.size(); i++) ids[i] = i % 20 ? 100 : begin;
        const string path = test::write_shard(folder(fmt::format("begin_{}.bin", begin)), ids);
        const Dataset set = open_dataset("data.train", {{path}}, 9, 1, false, rule);
        const TokenStream& s = set.streams[0];
        EXPECT(s.begin == begin && set.mask_eot == begin && s.packed->eot == begin && set.rows() == 10,
               "%d: %d, %zu rows", begin, set.mask_eot, size_t(set.rows()));
    }
    const vector<Corpus> both = {{folder("begin_7.bin")}, {folder("begin_50256.bin")}};
    const Fatal f = test::fatal_of([&] { open_dataset("data.train", both, 9, 1, false, rule); });
    EXPECT(f.code == kExitConfig && strstr(f.what(), "begin with id 7") && strstr(f.what(), "50256"), "%s",
           f.what());
}

// Bytes that this thread has read; none: this kernel does not count them.
static std::optional<uint64_t> bytes_read() {
    std::ifstream in("/proc/thread-self/io");
    string key;
    uint64_t bytes;
    if (in >> key >> bytes && key == "rchar:") return bytes;
    return std::nullopt;
}

TEST(other_ranks_take_the_scans_of_rank_0) {
    if (!bytes_read()) return test::skip("this kernel does not count what a thread reads");
    constexpr size_t kTokens = 1'000'000;
    Config cfg;
    cfg.model = {.layers = 1, .heads = 1, .channels = 8, .context = 32, .vocab = 60000, .init = "random"};
    cfg.run.threads = 1;
    cfg.parallel.ranks = 3;
    cfg.data.rows = RowKind::Documents, cfg.train.batch_tokens = 96, cfg.train.micro_batch = 1;
    cfg.data.train = {{shard_of("many_0.bin", kTokens)}, {shard_of("many_1.bin", kTokens / 2)}};
    cfg.data.val = {{shard_of("many_val.bin", 4000)}};
    vector<uint64_t> bytes(3);
    vector<PackedRows> rows(3);
    run_threads(cfg, [&](const Config& c, const Mesh& mesh) {
        const uint64_t before = *bytes_read();
        const RunData data = open_run_data(c, mesh.world);
        bytes[size_t(mesh.rank)] = *bytes_read() - before;
        rows[size_t(mesh.rank)] = *data.train.streams.at(1).packed;
        EXPECT(data.val.streams.at(0).packed->rows() == 100, "%zu rows to validate",
               size_t(data.val.streams[0].packed->rows()));
        return 0;
    });
    EXPECT(bytes[0] > 2 * kTokens, "rank 0 has read %zu bytes", size_t(bytes[0]));
    for (size_t r = 1; r < 3; r++) {
        EXPECT(bytes[r] < kTokens / 2, "rank %zu has read %zu bytes", r, size_t(bytes[r]));
        const vector<Passage>&mine = rows[r].passages, &first = rows[0].passages;
        EXPECT(mine.size() == first.size() && mine.size() > 20000 && rows[r].first == rows[0].first &&
               !memcmp(mine.data(), first.data(), mine.size() * sizeof(Passage)), "rank %zu: other rows", r);
    }
}

TEST(the_line_of_progress_says_how_far) {
    const string line = test::captured(2, [] {
        Progress progress("documents", "B", 8'000'000);
        progress.terminal = false;
        progress.started -= 100, progress.drawn -= 100;
        progress.update(2'000'000);
        progress.update(3'000'000);                     // too early for another line
    });
    EXPECT(line.starts_with("documents   25%  2.0 MB  0.0 MB/s  3") && line.ends_with(" s left\n") &&
           std::count(line.begin(), line.end(), '\n') == 1, "'%s'", line.c_str());
}

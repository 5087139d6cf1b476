#include "llmc/train/run/run_data.h"

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/comm/votes.h"
#include "llmc/io/text/tokenizer_pipeline.h"
#include "llmc/train/score/requests.h"

inline namespace runs {

std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt) {
    std::vector<int32_t> ids = tokenizer.encode(prompt);
    if (tokenizer.adds_bos()) ids.insert(ids.begin(), int32_t(tokenizer.bos()));
    if (ids.empty()) ids.push_back(int32_t(tokenizer.eot()));
    return ids;
}

std::vector<int32_t> document_ids(const Tokenizer& tokenizer, std::string_view text) {
    std::vector<int32_t> ids = tokenizer.encode(text);
    ids.insert(ids.begin(), int32_t(tokenizer.document_begin()));
    return ids;
}

int vocab_of(const Config& cfg, const std::optional<Tokenizer>& tokenizer) {
    if (!tokenizer) return cfg.model.vocab;
    const int size = int(tokenizer->vocab_size());
    CHECK_INPUT(cfg.model.vocab == 0 || cfg.model.vocab >= size,
                "model.vocab = {}, but data.tokenizer '{}' has {} ids{}; set model.vocab to {}, or to 0",
                cfg.model.vocab, cfg.data.tokenizer, size, tokenizer->about_end(), size);
    return cfg.model.vocab ? cfg.model.vocab : size;
}

static void check_size(const Config& cfg, const Dataset& train) {
    const uint64_t T = uint64_t(cfg.model.context), rows = uint64_t(cfg.train.batch_tokens) / T;
    const std::optional<double> cut = cut_off(train);
    const std::string needed = cut ? fmt::format("and {:.1f}% of the tokens are cut off", *cut * 100)
                                   : fmt::format("so at least {} tokens", rows * T + 1);
    CHECK_INPUT(train.rows() >= rows,
                "data.train = '{}'{}: {} tokens make {} rows of model.context = {}, "
                "but a step of train.batch_tokens = {} takes {} rows, "
                "{}; use more text or a smaller batch",
                cfg.data.train[0].path, cfg.data.train.size() > 1 ? " and the others" : "",
                train.tokens(), train.rows(), T, cfg.train.batch_tokens, rows, needed);
}

static std::vector<ShardInfo> shards_of(std::initializer_list<const Dataset*> sets) {
    std::vector<ShardInfo> all;
    for (const Dataset* set : sets)
        for (const TokenStream& stream : set->streams)
            for (const ShardFile& shard : stream.shards) all.push_back(shard.info);
    return all;
}

// tokenizer_config.json has what tokenizer.json does not say, if there is something.
static std::vector<ExtraFile> files_of(const Vocabulary& v) {
    std::vector<ExtraFile> files = {{"tokenizer.json", shared_text(json_of_vocabulary(v))}};
    Json::Members more = tokenizer_config(v);
    if (!more.empty())
        files.push_back({"tokenizer_config.json", shared_text(to_text(std::move(more), 2) + "\n")});
    return files;
}

static RowRule rule_of(const Config& cfg, const std::optional<Tokenizer>& t, DocumentScans& scans) {
    RowRule rule = {.kind = cfg.data.rows, .masks = cfg.model.document_mask, .scans = &scans};
    if (!t) return rule;
    rule.eot = t->document_begin();
    if (t->eot() != t->document_begin()) rule.other = t->eot();
    return rule;
}

static void warn_of_begin(const Dataset& set, const RowRule& rule, const std::optional<Tokenizer>& t) {
    for (const TokenStream& s : set.streams)
        if (s.begin != rule.eot)
            warning("the documents of {} = '{}' begin with {}, and texts of the tokenizer with {}, by its "
                    "template. Encode the text again for documents that begin so.", set.key, s.glob,
                    t->vocabulary.text_of(uint32_t(s.begin)), t->vocabulary.text_of(uint32_t(rule.eot)));
}

// scan: bytes of shards to read in search of ids outside the vocabulary
static RunData open(const Config& cfg, uint64_t scan, DocumentScans& scans) {
    RunData data;
    const uint64_t seed = uint64_t(cfg.run.seed);
    if (!cfg.data.tokenizer.empty()) data.tokenizer = Tokenizer::load(cfg.data.tokenizer);
    if (data.tokenizer) {
        data.prompt = document_ids(*data.tokenizer, cfg.sample.prompt);
        data.tokenizer_files = files_of(data.tokenizer->vocabulary);
    }
    const int T = cfg.model.context;
    const RowRule rule = rule_of(cfg, data.tokenizer, scans);
    if (cfg.train.steps > 0)
        data.train = open_dataset("data.train", cfg.data.train, T, seed, cfg.data.shuffle, rule);
    if (cfg.eval.every > 0) data.val = open_dataset("data.val", cfg.data.val, T, seed, false, rule);
    check_sets(shards_of({&data.train, &data.val}));
    for (const Dataset* set : {&data.train, &data.val}) warn_of_begin(*set, rule, data.tokenizer);
    // every row once: corpora share the samples as they share the rows
    const uint64_t rows = data.val.rows(), batch_rows = uint64_t(cfg.train.batch_tokens / T);
    const bool whole = cfg.eval.batches <= 0 && cfg.eval.rows_of(rows, batch_rows, uint64_t(T)) == rows;
    for (size_t s = 0; whole && s < data.val.streams.size(); s++)
        data.val.weights[s] = data.val.streams[s].rows;
    if (cfg.train.steps > 0) check_size(cfg, data.train);

    data.vocab = vocab_of(cfg, data.tokenizer);
    if (!data.vocab) data.vocab = std::max(vocab_of(data.train), vocab_of(data.val));
    CHECK_INPUT(data.vocab > 0,
                "model.vocab = 0: neither data.tokenizer nor the shards say how many ids there are; "
                "set model.vocab (50257 for GPT-2's shards)");
    KnownTokenizer known = tokenizer_of(data.train);
    if (!known.hash) known = tokenizer_of(data.val);
    if (data.tokenizer) known = {data.tokenizer->hash(), "data.tokenizer"};
    validate_ids(data.train, data.vocab, known, validate_ids(data.val, data.vocab, known, scan));
    for (uint32_t id = 0; data.tokenizer && id < data.tokenizer->vocab_size(); id++)
        data.bytes.push_back(uint16_t(std::min<size_t>(65535, data.tokenizer->text_bytes(id))));
    return data;
}

static void take_scans(const Axis& ranks, DocumentScans& scans) {
    std::vector<char> paths;            // each ends with a 0
    std::vector<int64_t> numbers;       // end-of-text and documents of each
    std::vector<int32_t> starts;
    for (const auto& [key, index] : scans) {
        paths.insert(paths.end(), key.first.c_str(), key.first.c_str() + key.first.size() + 1);
        numbers.insert(numbers.end(), {key.second, int64_t(index.starts.size())});
        starts.insert(starts.end(), index.starts.begin(), index.starts.end());
    }
    take_from_rank_0(ranks, paths);
    take_from_rank_0(ranks, numbers);
    take_from_rank_0(ranks, starts);
    const char* path = paths.data();
    auto at = starts.begin();
    for (size_t i = 0; i < numbers.size(); i += 2) {
        const auto end = at + numbers[i + 1];
        scans[{path, int32_t(numbers[i])}] = {int32_t(numbers[i]), {at, end}};
        path += strlen(path) + 1;
        at = end;
    }
}

static Contents contents_of(const RunData& data, const std::function<void()>& read) {
    Contents all;
    for (const Dataset* set : {&data.train, &data.val})
        if (!set->streams.empty()) all[set->key] = contents_of(*set, read);
    if (data.tokenizer)
        all["data.tokenizer"] = {{.name = "tokenizer", .size = data.tokenizer->vocab_size(),
                                  .hash = data.tokenizer->hash()}};
    for (const EvalTask& t : data.tasks) {
        all["eval.tasks"].push_back(content_of_file(t.path));
        all["eval.tasks"].back().name = t.name;
        read();
    }
    return all;
}

// By rank 0 alone; the other ranks see its heartbeat.
static Contents contents_of(const RunData& data, const Axis& ranks) {
    std::string text;
    run_on_rank_0(ranks, [&](const Heartbeat& heartbeat) {
        text = to_text(json_of(contents_of(data, heartbeat)));
    });
    take_from_rank_0(ranks, text);
    const Json all = parse_json(text);
    return contents_of_json(&all);
}

// The other ranks follow rank 0: errors that all meet are reported once, and shards are read through once.
RunData open_run_data(const Config& cfg, const Axis& ranks) {
    DocumentScans scans;
    RunData data;
    const auto read = [&](uint64_t bytes_to_scan) {
        data = open(cfg, bytes_to_scan, scans);
        data.tasks = load_tasks(cfg, data.tokenizer);
    };
    run_on_rank_0(ranks, [&](const Heartbeat&) { read(kScanBytes); });
    if (ranks.size > 1) take_scans(ranks, scans);
    if (ranks.index > 0) read(0);
    data.contents = contents_of(data, ranks);
    return data;
}

static std::string describe(const Dataset& set) {
    return counted(int64_t(set.tokens()), "token") + " in " + counted(int64_t(set.shards()), "shard");
}

std::string RunData::describe(uint64_t evaluated) const {
    std::string text = train.streams.empty() ? "none" : ::describe(train);
    if (val.streams.empty()) return text;
    const bool part = evaluated < val.rows();
    if (part) return text + ", validation " + grouped(int64_t(evaluated) * val.T) + " of " + ::describe(val);
    return text + ", validation " + ::describe(val);
}

std::string RunData::describe_rows() const {
    std::string text;
    for (const Dataset* set : {&train, &val})
        if (const auto cut = cut_off(*set))
            text += fmt::format("{} {:.1f}%{}", text.empty() ? "begin with documents: cut off are" : ",",
                                *cut * 100, set == &val ? " for validation" : " of the tokens");
    return text;
}

std::unique_ptr<Loader> open_loader(const Config& cfg, const RunData& data, const Mesh& mesh,
                                    int64_t sample) {
    if (cfg.train.steps == 0) return nullptr;
    const int B = cfg.train.micro_batch;
    const Position& dp = mesh.dp;
    const Deal deal = {.B = B, .rank = dp.index, .ranks = dp.size,
                       .rounds = int(micros_of_step(cfg, dp.size, B)),
                       .rows = uint64_t(cfg.train.batch_tokens / cfg.model.context),
                       .part = {mesh.cp.index, mesh.cp.size}};
    return std::make_unique<Loader>(data.train, deal, uint64_t(sample));
}

}  // namespace runs

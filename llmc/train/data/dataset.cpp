#include "llmc/train/data/dataset.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/numbers/rng.h"

inline namespace data {

uint64_t permute(uint64_t i, uint64_t n, uint64_t key, uint64_t stream) {
    const int half = std::max(1, (int(std::bit_width(n - 1)) + 1) / 2);
    const uint64_t mask = (uint64_t(1) << half) - 1;
    do {    // a permutation of [0, 4^half), less than four times n: a few rounds at most on average
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            const Philox f = philox(key, stream * 8 + round, right);
            left ^= (uint64_t(f.x[0]) << 32 | f.x[1]) & mask;
            std::swap(left, right);
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

Pick pick(uint64_t i, const std::vector<uint64_t>& weights) {
    // The list is halved by weight. The left half receives round(i left / total) of the first i samples, half
    // a sample off at most; recursion divides each half.
    size_t low = 0, high = weights.size();
    uint64_t total = 0;
    for (uint64_t w : weights) total += w;
    while (high - low > 1) {
        size_t middle = low + 1;
        uint64_t left = weights[low];
        while (middle + 1 < high && left + weights[middle] / 2 < total / 2) left += weights[middle++];
        const auto taken = [&](uint64_t count) {
            return uint64_t(((unsigned __int128)count * left + total / 2) / total);
        };
        const uint64_t before = taken(i);
        if (taken(i + 1) > before) {
            high = middle;
            total = left;
            i = before;
        } else {
            low = middle;
            total -= left;
            i -= before;
        }
    }
    return {low, i};
}

void TokenStream::read(uint64_t i, size_t count, int vocab, int32_t* out) const {
    size_t s = size_t(std::upper_bound(first.begin(), first.end(), i) - first.begin()) - 1;
    for (size_t done = 0; done < count; s++) {
        const uint64_t at = i + done - first[s];
        const size_t n = size_t(std::min<uint64_t>(count - done, first[s + 1] - first[s] - at));
        read_tokens(shards[s], at, n, out + done);
        for (size_t k = done; vocab && k < done + n; k++)
            CHECK_INPUT(out[k] < vocab && out[k] >= 0,
                        "{}: token {} is id {}, but the vocabulary (model.vocab) has {} ids; "
                        "set model.vocab to the tokenizer's size",
                        shards[s].info.path, at + (k - done), out[k], vocab);
        done += n;
    }
}

void TokenStream::read_row(uint64_t row, int T, int vocab, int32_t* out) const {
    if (!packed) return read(row * uint64_t(T), size_t(T) + 1, vocab, out);
    const char* const remedy = "a shard, or its index (NAME.idx), has changed or is damaged; remove the "
                               "index, and start again";
    for (const Passage& p : packed->row(row)) {
        read(p.start(), p.length(), vocab, out);
        CHECK_INPUT(*out == packed->eot,
                    "data.rows = documents: token {} of '{}' is id {}, expected end-of-text {}: {}",
                    p.start(), glob, *out, packed->eot, remedy);
        const size_t next = size_t(std::find(out + 1, out + p.length(), packed->eot) - out);
        CHECK_INPUT(next == p.length(),
                    "data.rows = documents: token {} of '{}' is end-of-text, and no document is known to "
                    "begin there: {}", p.start() + next, glob, remedy);
        out += p.length();
    }
}

void Dataset::sample(uint64_t i, int32_t* out) const {
    const Pick p = pick(i, weights);
    const TokenStream& stream = streams[p.stream];
    const uint64_t epoch = p.index / stream.rows, at = p.index % stream.rows;
    // each corpus and epoch its own: 8 bits of the corpus, 40 of the epoch, what the corpus has beyond
    const uint64_t s = p.stream, order = stream_of("shuffle") + (s >> 8 << 48) + (epoch << 8) + (s & 255);
    const uint64_t row = shuffle ? permute(at, stream.rows, seed, order) : at;
    stream.read_row(row, T, vocab, out);
}

uint64_t Dataset::rows() const {
    uint64_t n = 0;
    for (const auto& s : streams) n += s.rows;
    return n;
}

uint64_t Dataset::tokens() const {
    uint64_t n = 0;
    for (const auto& s : streams) n += s.tokens();
    return n;
}

size_t Dataset::shards() const {
    size_t n = 0;
    for (const auto& s : streams) n += s.shards.size();
    return n;
}

std::vector<Epochs> epochs_of(const Dataset& set, double samples) {
    std::vector<Epochs> all;
    for (size_t s = 0; s < set.streams.size(); s++)
        all.push_back({set.streams[s].glob,
                       samples * double(set.weights[s]) * 0x1p-32 / double(set.streams[s].rows)});
    return all;
}

std::optional<double> cut_off(const Dataset& set) {
    if (set.streams.empty() || !set.streams[0].packed) return std::nullopt;
    return 1 - double(set.rows()) * (double(set.T) + 1) / double(set.tokens());
}

static void pack(const std::string& key, TokenStream& stream, int T, const RowRule& rule) {
    std::vector<ShardInfo> infos;
    for (const ShardFile& s : stream.shards) infos.push_back(s.info);
    check_sets(infos);          // an interrupted replacement leaves indexes of other shards: say the cause
    stream.packed = pack_documents(fmt::format("{} = '{}'", key, stream.glob), stream.shards, stream.first, T,
                                   stream.begin, rule.scans);
    stream.rows = stream.packed->rows();
}

static int64_t begin_of(const TokenStream& stream, const RowRule& rule) {
    for (const ShardFile& shard : stream.shards) {
        if (rule.other < 0 || shard.info.tokens == 0) continue;
        int32_t id = 0;
        read_tokens(shard, 0, 1, &id);
        return id == rule.other ? rule.other : rule.eot;
    }
    return rule.eot;
}

static TokenStream open_stream(const std::string& key, const std::string& glob, int T, const RowRule& rule) {
    TokenStream stream{.glob = glob, .shards = {}, .first = {0}, .packed = {}};
    CHECK_INPUT(!is_directory(glob), "{} = '{}' is a folder. Expected a glob of token shards, such as '{}'",
                key, glob, (glob + (glob.ends_with("/") ? "*.bin" : "/*.bin")));
    for (const std::string& path : shard_files(glob)) {
        stream.shards.push_back(open_shard_file(path));
        stream.first.push_back(stream.first.back() + stream.shards.back().info.tokens);
    }
    CHECK_INPUT(!stream.shards.empty(),
                "{} = '{}': no file is there. Make token shards with ./tokenize encode, "
                "or see data/README.md", key, glob);
    stream.rows = stream.tokens() ? (stream.tokens() - 1) / uint64_t(T) : 0;
    stream.begin = begin_of(stream, rule);
    if (rule.kind == RowKind::Documents && stream.rows > 0) pack(key, stream, T, rule);
    return stream;
}

// The id that begins a document, for model.document_mask: that of data.tokenizer, or where rows begin with
// documents of every corpus.
static int32_t mask_eot(const Dataset& set) {
    const auto begin = [](const TokenStream& s) { return s.packed ? int64_t(s.packed->eot) : s.begin; };
    const TokenStream& first = set.streams[0];
    CHECK_INPUT(begin(first) >= 0, "model.document_mask: which id is end-of-text is not known; set "
                "data.tokenizer to the tokenizer of {} = '{}'", set.key, first.glob);
    for (const TokenStream& s : set.streams)
        CHECK_INPUT(begin(s) == begin(first), "{}: model.document_mask, but documents begin with id {} "
                    "in '{}' and {} in '{}'; encode one of them again with the tokenizer of the other",
                    set.key, begin(first), first.glob, begin(s), s.glob);
    return int32_t(begin(first));
}

Dataset open_dataset(const std::string& key, const std::vector<Corpus>& corpora, int T, uint64_t seed,
                     bool shuffle, const RowRule& rule) {
    Dataset set{.key = key, .streams = {}, .weights = {}, .T = T, .seed = seed, .shuffle = shuffle};
    // Scaled by a power of two, which is exact, to a largest weight below 1: their sum is finite.
    double largest = 0, sum = 0;
    int exponent = 0;
    for (const Corpus& c : corpora) largest = std::max(largest, c.weight);
    CHECK_INPUT(largest > 0, "{}: no corpus with a weight above 0", key);
    std::frexp(largest, &exponent);
    const auto scaled = [&](const Corpus& c) { return std::ldexp(c.weight, -exponent); };
    for (const Corpus& c : corpora) sum += scaled(c);
    uint64_t given = 0;
    for (const Corpus& c : corpora) {
        if (c.weight == 0) continue;
        set.streams.push_back(open_stream(key, c.path, T, rule));
        set.weights.push_back(std::max<uint64_t>(1, uint64_t(std::llround(scaled(c) / sum * 0x1p32))));
        given += set.weights.back();
        const TokenStream& s = set.streams.back();
        CHECK_INPUT(s.rows > 0,
                    "{} = '{}': {} tokens in {}, "
                    "but one row of model.context = {} needs {}; use more text or a smaller model.context",
                    key, c.path, s.tokens(),
                    counted(int64_t(s.shards.size()), "shard"), T, T + 1);
    }
    // rounding, at most 2^-32 per corpus: the largest weight absorbs the difference
    *std::max_element(set.weights.begin(), set.weights.end()) += (uint64_t(1) << 32) - given;
    if (rule.masks) set.mask_eot = mask_eot(set);
    return set;
}

int vocab_of(const Dataset& set) {
    uint32_t vocab = 0;
    for (const auto& stream : set.streams)
        for (const auto& shard : stream.shards) vocab = std::max(vocab, shard.info.vocab);
    return int(vocab);
}

// The first `tokens` of a shard.
static void scan(const ShardFile& shard, uint64_t tokens, int vocab) {
    std::vector<int32_t> ids(1 << 20);
    for (uint64_t at = 0; at < tokens; at += ids.size()) {
        const size_t n = size_t(std::min<uint64_t>(ids.size(), tokens - at));
        read_tokens(shard, at, n, ids.data());
        beat();
        const auto worst = std::max_element(ids.begin(), ids.begin() + std::ptrdiff_t(n),
                                            [](int32_t a, int32_t b) { return uint32_t(a) < uint32_t(b); });
        CHECK_INPUT(*worst < vocab && *worst >= 0,
                    "{}: token {} is id {}, but the vocabulary (model.vocab) has {} ids; "
                    "set model.vocab to the tokenizer's size, or encode the text with this run's tokenizer",
                    shard.info.path, at + uint64_t(worst - ids.begin()), *worst, vocab);
    }
}

KnownTokenizer tokenizer_of(const Dataset& set) {
    for (const auto& stream : set.streams)
        for (const auto& shard : stream.shards)
            if (shard.info.tokenizer_hash) return {shard.info.tokenizer_hash, shard.info.path};
    return {};
}

uint64_t validate_ids(Dataset& set, int vocab, const KnownTokenizer& tokenizer, uint64_t budget) {
    set.vocab = vocab;
    for (const auto& stream : set.streams)
        for (const auto& shard : stream.shards) {
            const ShardInfo& info = shard.info;
            CHECK_INPUT(!info.has_largest || int64_t(info.largest) < vocab,
                        "{}: its largest id is {}, but the vocabulary (model.vocab) has {} ids; "
                        "set model.vocab to the tokenizer's size", info.path, info.largest, vocab);
            CHECK_INPUT(!info.tokenizer_hash || !tokenizer.hash || info.tokenizer_hash == tokenizer.hash,
                        "{} was encoded by the tokenizer {:016x}, but that of {} is {:016x}; encode the "
                        "text again, or name the tokenizer that made it",
                        info.path, info.tokenizer_hash, tokenizer.said_by, tokenizer.hash);
            if (info.has_largest) continue;
            const uint64_t tokens = std::min(info.tokens, budget / uint64_t(info.id_bytes));
            scan(shard, tokens, vocab);
            budget -= tokens * uint64_t(info.id_bytes);
        }
    return budget;
}

}  // namespace data

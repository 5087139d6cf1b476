#include "llmc/train/data/packing.h"

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/progress.h"

inline namespace data {

constexpr int64_t kGpt2EndOfText = 50256;

void Packer::add(uint64_t start, uint64_t tokens) {
    const uint64_t key = Passage::of(Passage::kMostTokens - start, std::min(tokens, length)).bits;
    buffer.insert(std::lower_bound(buffer.begin(), buffer.end(), key), key);
    if (buffer.size() == kBuffer) place();
}

// Takes a document out of the buffer. The last key of up to `most` tokens is the longest that fits; if none
// fits, the last of the length that comes first is the shortest.
void Packer::place() {
    const auto last_up_to = [&](uint64_t most) {
        const uint64_t key = Passage::of(Passage::kMostTokens, most).bits;
        return std::upper_bound(buffer.begin(), buffer.end(), key);
    };
    auto after = last_up_to(rest);
    if (after == buffer.begin()) after = last_up_to(Passage{buffer.front()}.length());
    const Passage chosen{after[-1]};
    buffer.erase(after - 1);
    const uint64_t taken = std::min<uint64_t>(chosen.length(), rest);
    packed.passages.push_back(Passage::of(Passage::kMostTokens - chosen.start(), taken));
    rest -= taken;
    if (rest > 0) return;
    packed.first.push_back(packed.passages.size());
    rest = length;
}

PackedRows Packer::finish() {
    while (!buffer.empty()) place();
    packed.passages.resize(packed.first.back());      // without the row that is not full
    return std::move(packed);
}

namespace {
// Documents of shards in their order, each complete once the next begins.
struct Documents {
    Packer packer;
    uint64_t begin = 0, count = 0;

    explicit Documents(int T) : packer(T) {}
    void begins(uint64_t at) {
        ends(at);
        begin = at;
        if (++count % (1 << 20) == 0) beat();
    }
    void ends(uint64_t at) {
        if (count > 0) packer.add(begin, at - begin);
    }
};
}  // namespace

// Bytes of a corpus' first shards whose indexes are compared with them at the start, on rank 0. Of the others
// a row that does not fit its index is an error when it is read.
constexpr uint64_t kComparedBytes = 1'000'000'000;

static uint64_t bytes_of(const ShardFile& s) { return s.info.tokens * uint64_t(s.info.id_bytes); }

static bool is_compared(const ShardFile& shard, uint64_t& budget) {
    if (context.rank != 0 || bytes_of(shard) > budget) return false;
    budget -= bytes_of(shard);
    return true;
}

// Bytes of shards that are read through; takes an unknown eot from the first index.
static uint64_t look_for_indexes(std::span<const ShardFile> shards, int64_t& eot) {
    uint64_t bytes = 0, budget = kComparedBytes;
    for (const ShardFile& s : shards) {
        const bool has_index = file_exists(index_path(s.info.path));
        if (!has_index || is_compared(s, budget)) bytes += bytes_of(s);
        if (has_index && eot < 0) eot = read_index(s)->eot;
    }
    return bytes;
}

static void check_eot(const DocumentIndex& index, const ShardFile& shard, int64_t eot) {
    CHECK_INPUT(index.eot == eot,
                "{}: its end-of-text is id {}, but that of data.tokenizer, or of an index before, is {}; "
                "encode the text again, or name the tokenizer that made it",
                index_path(shard.info.path), index.eot, eot);
}

PackedRows pack_documents(const std::string& name, std::span<const ShardFile> shards,
                          std::span<const uint64_t> first, int T, int64_t eot, DocumentScans* scans) {
    CHECK_INPUT(first.back() <= Passage::kMostTokens,
                "{}: {} tokens, but data.rows = documents counts {} of a corpus at most; make several of it",
                name, first.back(), Passage::kMostTokens);
    Progress progress("documents", "B", look_for_indexes(shards, eot));
    if (eot < 0) eot = kGpt2EndOfText;
    uint64_t done = 0;
    const auto read = [&](uint64_t bytes) {
        beat();
        done += bytes;
        if (context.rank == 0) progress.update(done);
    };
    DocumentScans own;
    if (!scans) scans = &own;
    const auto scanned = [&](const ShardFile& shard) -> const DocumentIndex& {
        const auto [it, is_new] = scans->try_emplace({shard.info.path, int32_t(eot)});
        if (is_new) it->second = scan_documents(shard, int32_t(eot), read);
        return it->second;
    };
    Documents documents(T);
    uint64_t budget = kComparedBytes;
    for (size_t s = 0; s < shards.size(); s++) {
        const std::optional<DocumentIndex> beside = read_index(shards[s]);
        const DocumentIndex& index = beside ? *beside : scanned(shards[s]);
        check_eot(index, shards[s], eot);
        if (beside && is_compared(shards[s], budget)) compare_index(index, shards[s], read);
        for (const uint32_t start : index.starts) documents.begins(first[s] + start);
    }
    documents.ends(first.back());
    CHECK_INPUT(documents.count > 0,
                "{}: no token of {} is end-of-text, id {}, which begins a document; set data.rows to "
                "stream{}", name, first.back(), eot,
                eot == kGpt2EndOfText ? ", or data.tokenizer to the tokenizer of these shards" : "");
    PackedRows packed = documents.packer.finish();
    packed.eot = int32_t(eot);
    CHECK_INPUT(packed.rows() > 0,
                "{}: documents of {} tokens in all, but no row of model.context + 1 = {} of them is full; "
                "use more text or a smaller model.context", name, first.back(), T + 1);
    return packed;
}

}  // namespace data

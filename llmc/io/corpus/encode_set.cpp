#include "llmc/io/corpus/encode_set.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/glob.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/progress.h"
#include "llmc/io/corpus/ordered_jobs.h"
#include "llmc/io/files/shard_writer.h"
#include "llmc/io/text/text_encoder.h"

inline namespace corpus {

// Removes PREFIX_NNNNNN with an ending, except `written`. The prefix is a plain name: [ and * are no
// wildcards.
static uint64_t remove_others(const std::string& prefix, const std::string& ending,
                              const std::vector<std::string>& written) {
    const std::string pattern = glob_escaped(prefix) + "_[0-9][0-9][0-9][0-9][0-9][0-9]" + ending;
    uint64_t removed = 0;
    for (const std::string& path : glob_files(pattern))
        if (std::find(written.begin(), written.end(), path) == written.end())
            removed += unlink(path.c_str()) == 0;
    return removed;
}

template <class Id> struct EncodeJob {
    TextChunk chunk;
    IdBuffer<Id> ids[2];            // for training, for validation
    size_t bytes() const { return chunk.size; }
};

template <class Id>
static void encode_span(const Tokenizer& t, Encoder<Id>& encoder, const DocumentSpan& p,
                        const TextChunk& chunk, IdBuffer<Id>& ids) {
    if (p.starts_document) ids.push(Id(t.document_begin()));
    encoder.encode(chunk.text.data() + p.begin, p.end - p.begin, ids, p.starts_document);
    if (p.ends_document && t.document_end() >= 0) ids.push(Id(t.document_end()));
}

template <class Id>
static EncodeResult encode_as(const Tokenizer& tokenizer, DocumentReader& reader,
                              const EncodeOptions& options) {
    using Job = EncodeJob<Id>;
    const auto writer = [&](const char* half) {
        ShardWriter w(options.prefix + half, tokenizer.vocab_size(), tokenizer.hash(), options.shard_tokens,
                      tokenizer.document_begin());
        w.indexed_tokens = options.indexed_tokens;
        return w;
    };
    ShardWriter sets[2] = {writer("_train"), writer("_val")};
    for (const ShardWriter& s : sets)
        for (const std::string end : {".bin", kIndexSuffix}) remove_others(s.prefix, end + kUnfinished, {});
    std::vector<std::unique_ptr<Encoder<Id>>> encoders(size_t(std::max(options.threads, 1)));
    EncodeResult result = {};
    const std::string_view own = tokenizer.vocabulary.text_of(tokenizer.eot());
    if (own != kEndOfText) reader.ends.push_back({std::string(own)});
    Progress progress("encode", "B", reader.total_bytes);
    reader.cut_for(tokenizer);
    reader.waiting = [&] { progress.update(reader.position()); };
    run_ordered_jobs<Job>(
        options.threads,
        [&](Job& job) {
            reader.waiting();
            return reader.next(job.chunk);
        },
        [&](int thread, Job& job) {
            auto& encoder = encoders[size_t(thread)];
            if (!encoder) encoder = std::make_unique<Encoder<Id>>(tokenizer);
            for (const DocumentSpan& p : job.chunk.spans) {
                IdBuffer<Id>& ids = job.ids[p.validation];
                encode_span(tokenizer, *encoder, p, job.chunk, ids);
            }
        },
        [&](Job& job) {
            for (const DocumentSpan& p : job.chunk.spans) result.bytes += p.end - p.begin;
            for (int s = 0; s < 2; s++) {
                sets[s].append(std::span<const Id>(job.ids[s].data.get(), job.ids[s].count));
                job.ids[s].count = 0;
            }
        });
    reader.waiting = nullptr;
    CHECK_INPUT(reader.documents > 0, "the input has no document ({}, {}); earlier shards {}_*.bin stay",
                counted(int64_t(reader.skipped.count), "bad line"),
                counted(int64_t(reader.empty.count), "empty text"), options.prefix);
    for (ShardWriter& s : sets) s.close();
    const std::string mark = replacement_mark(options.prefix);
    write_file(mark, "");
    publish(sets);
    for (ShardWriter& s : sets) {
        result.removed += remove_others(s.prefix, ".bin", s.paths);
        remove_others(s.prefix, kIndexSuffix, s.indexes);
        result.shards.insert(result.shards.end(), s.paths.begin(), s.paths.end());
    }
    unlink(mark.c_str());
    result.documents = reader.documents;
    result.train_tokens = sets[0].total;
    result.val_tokens = sets[1].total;
    return result;
}

EncodeResult encode_set(const Tokenizer& tokenizer, DocumentReader& reader, const EncodeOptions& options) {
    make_directories(parent_directory(options.prefix));
    return tokenizer.vocab_size() <= 65536 ? encode_as<uint16_t>(tokenizer, reader, options)
                                           : encode_as<uint32_t>(tokenizer, reader, options);
}

}  // namespace corpus

// Shards of short documents, a byte a token, for tests of rows with several documents.
#pragma once
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/io/files/document_index.h"
#include "test/program.h"

namespace test {

// Encodes PREFIX.jsonl, a byte a token, end-of-text behind each document; settings of `data`. The vocabulary
// has 257 ids.
inline json data_of_bytes(const std::string& prefix, const std::string& args = "") {
    const std::string tokenizer = folder("bytes.json");
    std::ofstream(folder("letters.txt")) << "abc";
    const Ran a = run("./tokenize train --vocab=257 --out=" + tokenizer + " " + folder("letters.txt"));
    const Ran b = run("./tokenize encode --tokenizer=" + tokenizer + " --out=" + prefix + " " + args + " " +
                      prefix + ".jsonl");
    EXPECT(a.code == 0 && b.code == 0, "'%s' '%s'", a.err.c_str(), b.err.c_str());
    return {{"train", prefix + "_train_*.bin"}, {"val", prefix + "_train_*.bin"}, {"tokenizer", tokenizer}};
}

// Writes an index beside each shard, as ./tokenize does for larger shards; returns the number of shards.
inline size_t index_shards(const std::string& pattern, int32_t eot = 256) {
    const std::vector<std::string> paths = glob_files(pattern);
    for (const std::string& path : paths) {
        const ShardFile shard = open_shard_file(path);
        write_file(index_path(path), index_text(scan_documents(shard, eot), shard.info.tokens));
    }
    return paths.size();
}

// 97 documents of 16 tokens, end-of-text included.
inline json even_documents() {
    const std::string prefix = folder("even");
    std::ofstream rows(prefix + ".jsonl");
    for (int i = 0; i < 97; i++) {
        std::string text;
        for (int j = 0; j < 15; j++) text += char('a' + (i * 7 + j * j) % 26);
        rows << R"({"text": ")" << text << "\"}\n";
    }
    rows.close();
    json data = data_of_bytes(prefix);
    data["shuffle"] = false;
    return data;
}

}  // namespace test

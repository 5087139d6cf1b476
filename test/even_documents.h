// Shards of short documents of one length, for tests of rows with several documents.
#pragma once
#include "test/program.h"

namespace test {

// 97 documents of 16 tokens, a byte each, end-of-text included; settings of `data`. The vocabulary has 257
// ids.
inline json even_documents() {
    const std::string prefix = folder("even"), t = folder("bytes.json");
    std::ofstream rows(prefix + ".jsonl");
    for (int i = 0; i < 97; i++) {
        std::string text;
        for (int j = 0; j < 15; j++) text += char('a' + (i * 7 + j * j) % 26);
        rows << R"({"text": ")" << text << "\"}\n";
    }
    rows.close();
    std::ofstream(folder("letters.txt")) << "abc";
    const Ran a = run("./tokenize train --vocab=257 --out=" + t + " " + folder("letters.txt"));
    const Ran b = run("./tokenize encode --tokenizer=" + t + " --out=" + prefix + " " + prefix + ".jsonl");
    EXPECT(a.code == 0 && b.code == 0, "'%s' '%s'", a.err.c_str(), b.err.c_str());
    return {{"train", prefix + "_train_*.bin"}, {"val", prefix + "_train_*.bin"}, {"tokenizer", t},
            {"shuffle", false}};
}

}  // namespace test

// Ids of a text whose added tokens become their ids: the leftmost, of several the longest.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

#include "llmc/io/text/tokenizer.h"

namespace test {

inline std::vector<int32_t> encode_with_added(const Tokenizer& t, std::string_view text) {
    std::vector<std::pair<std::string_view, uint32_t>> added;
    for (uint32_t id = 0; id < t.vocab_size(); id++)
        if (t.vocabulary.added[id]) added.emplace_back(t.vocabulary.text_of(id), id);
    std::vector<int32_t> ids;
    const auto add_text = [&](std::string_view part) {
        const std::vector<int32_t> more = t.encode(part);
        ids.insert(ids.end(), more.begin(), more.end());
    };
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
        size_t bytes = 0;
        uint32_t found = 0;
        for (const auto& [name, id] : added) {
            if (name.size() <= bytes || !text.substr(at).starts_with(name)) continue;
            bytes = name.size();
            found = id;
        }
        at += std::max<size_t>(bytes, 1);
        if (!bytes) continue;
        add_text(text.substr(begin, at - bytes - begin));
        ids.push_back(int32_t(found));
        begin = at;
    }
    add_text(text.substr(begin));
    return ids;
}

}  // namespace test

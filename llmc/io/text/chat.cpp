#include "llmc/io/text/chat.h"

#include <optional>

#include "llmc/base/check.h"

namespace {

struct Family {
    const char* name;
    std::vector<std::string> texts;     // in quotes in every template of the family, or parts of these
    std::vector<std::string> others;    // words of other templates
    std::vector<std::string> tokens;    // added tokens, written as such; the last ends a turn
    std::string system, user, answer;   // how each turn begins
    std::string end;                    // of the turns of system and user
    bool trims;                         // white space around a message is left out
    std::string dates;                  // the system turn of every conversation; empty: see the template
};

// The header of Llama 3's turns.
std::string header(const std::string& role) {
    return "<|start_header_id|>" + role + "<|end_header_id|>\n\n";
}

const std::vector<Family>& families() {
    static const std::string cutoff = "Cutting Knowledge Date: December 2023\n", date = "26 Jul 2024";
    static const Family chatml = {
        .name = "ChatML", .texts = {"<|im_start|>", "<|im_end|>"}, .others = {"set system", "trim"},
        .tokens = {"<|im_start|>", "<|im_end|>"}, .system = "<|im_start|>system\n",
        .user = "<|im_start|>user\n", .answer = "<|im_start|>assistant", .end = "<|im_end|>\n",
        .trims = false, .dates = {}};
    static const Family llama3 = {
        .name = "Llama 3", .texts = {"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"},
        .others = {"set system", "Knowledge Date"},
        .tokens = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, .system = header("system"),
        .user = header("user"), .answer = "<|start_header_id|>assistant", .end = "<|eot_id|>",
        .trims = true, .dates = {}};
    static const std::vector<Family> all = [] {
        Family dated = llama3;
        dated.name = "Llama 3.1";
        dated.others.clear();
        dated.texts.insert(dated.texts.end(), {cutoff, "Today Date: ", date});
        dated.dates = dated.system + cutoff + "Today Date: " + date + "\n\n" + dated.end;
        return std::vector<Family>{chatml, llama3, dated};
    }();
    return all;
}

// A text in quotes within {{ }} or {% %}, without its escapes, and where it ends.
struct Quoted { std::string text; size_t end; };

// None: there is text outside of the tags too, which no family has.
std::optional<std::vector<Quoted>> quoted_in(std::string_view t) {
    std::vector<Quoted> all;
    for (size_t at = 0; at < t.size();) {
        if (t[at] == ' ' || t[at] == '\n' || t[at] == '\r' || t[at] == '\t') { at++; continue; }
        const std::string_view open = t.substr(at, 2);
        if (open != "{{" && open != "{%" && open != "{#") return std::nullopt;
        if (open == "{#") {
            at = t.find("#}", at);
            if (at == t.npos) return std::nullopt;
            at += 2;
            continue;
        }
        const std::string_view close = open == "{{" ? "}}" : "%}";
        for (at += 2; at < t.size() && t.substr(at, 2) != close; at++) {
            const char quote = t[at];
            if (quote != '\'' && quote != '"') continue;
            std::string text;
            for (at++; at < t.size() && t[at] != quote; at++) {
                const bool escaped = t[at] == '\\' && at + 1 < t.size();
                if (escaped) at++;
                text += escaped && t[at] == 'n' ? '\n' : escaped && t[at] == 't' ? '\t' : t[at];
            }
            if (at == t.size()) return std::nullopt;
            all.push_back({std::move(text), at + 1});
        }
        if (at == t.size()) return std::nullopt;
        at += 2;
    }
    return all;
}

bool any_has(const std::vector<Quoted>& all, const std::string& part) {
    for (const Quoted& q : all)
        if (q.text.find(part) != q.text.npos) return true;
    return false;
}

// What follows the beginning of an answer: the end of the template, or what Qwen3 puts there where thoughts
// are turned off.
bool is_end(std::string_view rest) {
    std::string dense;
    for (const char c : rest)
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t' && c != '-') dense += c;
    const std::string off = "{%ifenable_thinkingisdefinedandenable_thinkingisfalse%}"
                            "{{'<think>\\n\\n</think>\\n\\n'}}{%endif%}";
    for (const std::string& end : {std::string(), off})
        for (const char* condition : {"", "{%endif%}"})
            if (dense == "}}" + end + condition) return true;
    return false;
}

struct Read {
    const Family* family = nullptr;         // nullptr: unknown
    std::string system, answer;             // the system turn, and the beginning of an answer
};

std::optional<Read> read_as(const Family& f, std::string_view t, const std::vector<Quoted>& quoted) {
    for (const std::string& text : f.texts)
        if (!any_has(quoted, text)) return std::nullopt;
    for (const std::string& word : f.others)
        if (t.find(word) != t.npos) return std::nullopt;
    Read read = {.family = &f, .system = f.dates, .answer = {}};
    size_t end = 0;
    for (const Quoted& q : quoted) {
        if (q.text.starts_with(f.answer)) read.answer = q.text, end = q.end;
        if (!f.dates.empty() || !q.text.starts_with(f.system) || q.text == f.system) continue;
        if (!q.text.ends_with(f.end)) return std::nullopt;
        read.system = q.text;
    }
    if (!end || !is_end(t.substr(end))) return std::nullopt;
    return read;
}

Read read_template(std::string_view t) {
    if (const auto quoted = quoted_in(t))
        for (const Family& f : families())
            if (auto read = read_as(f, t, *quoted)) return *read;
    return {};
}

std::string_view without_space(std::string_view text) {
    const char* space = " \t\n\r\f\v";
    const size_t first = text.find_first_not_of(space);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(space) + 1 - first);
}

// Ids of text with tokens: what lies between two tokens is encoded in one piece.
struct Ids {
    const Tokenizer& tokenizer;
    const Family& family;
    std::vector<int32_t> ids = {};
    std::string text = {};                  // not yet encoded

    void flush() {
        const std::vector<int32_t> more = tokenizer.encode(text);
        ids.insert(ids.end(), more.begin(), more.end());
        text.clear();
    }
    void add(std::string_view part) {
        for (size_t at = 0; at < part.size();) {
            const std::string* token = nullptr;
            for (const std::string& name : family.tokens)
                if (part.substr(at).starts_with(name)) token = &name;
            if (!token) { text += part[at++]; continue; }
            flush();
            ids.push_back(int32_t(tokenizer.vocabulary.find_added(*token)));
            at += token->size();
        }
    }
};

bool begins_with_bos(std::string_view t) {
    return t.find("bos_token") != t.npos || t.find("<|begin_of_text|>") != t.npos;
}

}  // namespace

std::string no_chat(const Tokenizer& tokenizer) {
    const Vocabulary& v = tokenizer.vocabulary;
    if (v.chat_template.empty()) return "the model has no chat template";
    const Read read = read_template(v.chat_template);
    std::string known;
    for (const Family& f : families()) known += (known.empty() ? "" : ", ") + std::string(f.name);
    if (!read.family) return "the model's chat template is unknown here, expected one of " + known;
    for (const std::string& name : read.family->tokens)
        if (v.find_added(name) < 0)
            return fmt::format("the model's chat template is {}'s, but {} is no added token of the tokenizer",
                               read.family->name, name);
    if (begins_with_bos(v.chat_template) && v.bos < 0)
        return "the model's chat template begins with BOS, and the tokenizer has none";
    return "";
}

Chat chat_of(const Tokenizer& tokenizer, std::string_view message) {
    const std::string why = no_chat(tokenizer);
    CHECK_INPUT(why.empty(), "--chat: {}; leave --chat out to continue the text as it stands", why);
    const Read read = read_template(tokenizer.vocabulary.chat_template);
    const Family& f = *read.family;
    Ids out{.tokenizer = tokenizer, .family = f};
    if (begins_with_bos(tokenizer.vocabulary.chat_template)) out.ids.push_back(int32_t(tokenizer.bos()));
    out.add(read.system);
    out.add(f.user);
    out.text += f.trims ? without_space(message) : message;
    out.add(f.end);
    out.add(read.answer);
    out.flush();
    return {std::move(out.ids), int32_t(tokenizer.vocabulary.find_added(f.tokens.back()))};
}

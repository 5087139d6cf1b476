#include "llmc/io/text/chat.h"

#include <cstring>

#include "llmc/base/check.h"

inline namespace text {

namespace {

struct Family {
    const char* name;
    std::vector<std::string> texts;     // texts, or parts of texts, in every template of the family
    std::vector<std::string> others;    // words of other templates
    std::vector<std::string> tokens;    // added tokens in templates; the last ends a turn
    std::string system, user, answer;   // how each turn begins
    std::string end;                    // of the turns of system and user
    bool trims;                         // white space around a message is left out
    std::string dates;                  // beginning of each conversation's system turn; may be empty
    bool bare;                          // every text is of tokens alone, and a conversation begins with BOS
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
        .trims = false, .dates = {}, .bare = false};
    static const Family llama3 = {
        .name = "Llama 3", .texts = {"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"},
        .others = {"set system", "Knowledge Date"},
        .tokens = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, .system = header("system"),
        .user = header("user"), .answer = "<|start_header_id|>assistant", .end = "<|eot_id|>",
        .trims = true, .dates = {}, .bare = false};
    static const Family nanochat = {
        .name = "nanochat", .texts = {"<|user_start|>", "<|user_end|>", "<|assistant_start|>"},
        .others = {"trim", "<|system_start|>", "<|developer_start|>"},
        .tokens = {"<|user_start|>", "<|user_end|>", "<|assistant_start|>", "<|assistant_end|>"},
        .system = {}, .user = "<|user_start|>", .answer = "<|assistant_start|>", .end = "<|user_end|>",
        .trims = false, .dates = {}, .bare = true};
    static const std::vector<Family> all = [] {
        Family dated = llama3;
        dated.name = "Llama 3.1";
        dated.others.clear();
        dated.texts.insert(dated.texts.end(), {cutoff, "Today Date: ", date});
        dated.dates = dated.system + cutoff + "Today Date: " + date + "\n\n";
        return std::vector<Family>{chatml, llama3, dated, nanochat};
    }();
    return all;
}

std::string_view without_space(std::string_view text) {
    const char* space = " \t\n\r\f\v";
    const size_t first = text.find_first_not_of(space);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(space) + 1 - first);
}

// A text in quotes within {{ }} or {% %}, without escapes, and its end; outside: a text between tags.
struct Quoted { std::string text; size_t end; bool outside = false; };

// The text from `at` to the next tag, less white space beside a tag with a minus; white space alone is no
// text.
Quoted outside_text(std::string_view t, size_t at) {
    size_t end = at;
    while (end < t.size() && (t[end] != '{' || !strchr("{%#", end + 1 < t.size() ? t[end + 1] : ' '))) end++;
    std::string text(t.substr(at, end - at));
    const bool left = at >= 3 && t[at - 3] == '-', right = end + 2 < t.size() && t[end + 2] == '-';
    const std::string inner(without_space(text));
    if (left) text.erase(0, text.find(inner));
    if (right) text.resize(text.find(inner) + inner.size());
    return {inner.empty() ? "" : text, end, true};
}

// Fails if a tag, or a text in quotes, does not end.
// The character that a template writes as a backslash and c.
char escaped_by(char c) {
    if (c == 'n') return '\n';
    return c == 't' ? '\t' : c;
}

std::optional<std::vector<Quoted>> texts_in(std::string_view t) {
    std::vector<Quoted> all;
    for (size_t at = 0; at < t.size();) {
        const Quoted before = outside_text(t, at);
        if (!before.text.empty()) all.push_back(before);
        at = before.end;
        if (at == t.size()) return all;
        const std::string_view open = t.substr(at, 2);
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
                text += escaped ? escaped_by(t[at]) : t[at];
            }
            if (at == t.size()) return std::nullopt;
            all.push_back({std::move(text), at + 1, false});
        }
        if (at == t.size()) return std::nullopt;
        at += 2;
    }
    return all;
}

bool any_has(const std::vector<Quoted>& all, const std::string& word) {
    for (const Quoted& q : all)
        if (q.text.find(word) != q.text.npos) return true;
    return false;
}

// Whether the rest after the beginning of an answer is the end of the template, or Qwen3's text for thoughts
// turned off.
bool is_end(std::string_view rest, bool outside) {
    std::string dense;
    for (const char c : rest)
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t' && c != '-') dense += c;
    const std::string off = "{%ifenable_thinkingisdefinedandenable_thinkingisfalse%}"
                            "{{'<think>\\n\\n</think>\\n\\n'}}{%endif%}";
    for (const std::string& end : {std::string(), off})
        for (const char* condition : {"", "{%endif%}"})
            if (dense == (outside ? "" : "}}") + end + condition) return true;
    return false;
}

struct Read {
    const Family* family = nullptr;         // nullptr: unknown
    std::string system, answer;             // the system turn, and the beginning of an answer
    bool takes_system = true;
};

// "<|a|><|b|>"
bool is_of_tokens(std::string_view text) {
    while (!text.empty()) {
        const size_t end = text.find("|>");
        if (!text.starts_with("<|") || end == text.npos || text.substr(0, end).find(' ') != text.npos)
            return false;
        text.remove_prefix(end + 2);
    }
    return true;
}

bool texts_fit(const Family& f, const std::vector<Quoted>& texts) {
    for (const Quoted& q : texts) {
        const bool has_token = q.outside || q.text.find("<|") != q.text.npos;
        if (has_token && (f.bare ? !is_of_tokens(q.text) : q.outside)) return false;
    }
    return true;
}

std::optional<Read> read_as(const Family& f, std::string_view t, const std::vector<Quoted>& quoted) {
    for (const std::string& text : f.texts)
        if (!any_has(quoted, text)) return std::nullopt;
    if (!texts_fit(f, quoted)) return std::nullopt;
    for (const std::string& word : f.others)
        if (t.find(word) != t.npos) return std::nullopt;
    Read read = {.family = &f, .system = f.dates.empty() ? "" : f.dates + f.end, .answer = {}};
    if (f.bare) read.takes_system = t.find("system") != t.npos && any_has(quoted, "\n\n");
    const Quoted* last = nullptr;
    for (const Quoted& q : quoted) {
        if (q.text.starts_with(f.answer)) last = &q;
        if (!f.dates.empty() || f.bare || !q.text.starts_with(f.system) || q.text == f.system) continue;
        if (!q.text.ends_with(f.end)) return std::nullopt;
        read.system = q.text;
    }
    if (!last || !is_end(t.substr(last->end), last->outside)) return std::nullopt;
    read.answer = last->text;
    return read;
}

Read read_template(std::string_view t) {
    if (const auto quoted = texts_in(t))
        for (const Family& f : families())
            if (auto read = read_as(f, t, *quoted)) return *read;
    return {};
}

// Ids of text with tokens: the text between two tokens is encoded as a whole.
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
    void add(std::string_view more) {
        for (size_t at = 0; at < more.size();) {
            const std::string* token = nullptr;
            for (const std::string& name : family.tokens)
                if (more.substr(at).starts_with(name)) token = &name;
            if (!token) { text += more[at++]; continue; }
            flush();
            ids.push_back(int32_t(tokenizer.vocabulary.find_added(*token)));
            at += token->size();
        }
    }
};

bool begins_with_bos(const Family& f, std::string_view t) {
    return f.bare || t.find("bos_token") != t.npos || t.find("<|begin_of_text|>") != t.npos;
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
    if (begins_with_bos(*read.family, v.chat_template) && v.bos < 0)
        return "the model's chat template begins with BOS, and the tokenizer has none";
    return "";
}

Chat chat_of(const Tokenizer& tokenizer, std::string_view message, const std::optional<std::string>& system) {
    const std::string why = no_chat(tokenizer);
    CHECK_INPUT(why.empty(), "--chat: {}; leave --chat out to continue the text as it stands", why);
    const Read read = read_template(tokenizer.vocabulary.chat_template);
    const Family& f = *read.family;
    CHECK_INPUT(!system || read.takes_system, "--system: the model's chat template has no place for a system "
                "message");
    Ids out{.tokenizer = tokenizer, .family = f};
    if (begins_with_bos(f, tokenizer.vocabulary.chat_template)) out.ids.push_back(int32_t(tokenizer.bos()));
    const auto add_turn = [&](const std::string& begin, std::string_view text) {
        out.add(begin);
        out.text += f.trims ? without_space(text) : text;
        out.add(f.end);
    };
    if (!system) out.add(read.system);
    else if (!f.bare) add_turn(f.dates.empty() ? f.system : f.dates, *system);
    add_turn(f.user, system && f.bare ? *system + "\n\n" + std::string(message) : std::string(message));
    out.add(read.answer);
    out.flush();
    return {std::move(out.ids), int32_t(tokenizer.vocabulary.find_added(f.tokens.back()))};
}

}  // namespace text

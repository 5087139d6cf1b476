#include "llmc/io/text/tokenizer_pipeline.h"

#include <charconv>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/json/json_file.h"

inline namespace text {

// The steps of a Sequence, or the single step; none for null.
static Json::List sequence_of(const Json& step, const char* list) {
    if (step.is_null()) return {};
    if (step.get("type") != "Sequence") return {step};
    const Json& steps = step.get(list);
    return steps.is_list() ? steps.list() : Json::List();
}

// "single" of TemplateProcessing: special tokens, and "A" for the text.
static void read_template(const Json& step, const std::string& name, Vocabulary& v) {
    const Json& single = step.get("single");
    CHECK_INPUT(single.is_list(), "{}: post_processor: a TemplateProcessing without the list \"single\"",
                name);
    bool text = false;
    for (const Json& item : single.list()) {
        if (item.find("Sequence")) {
            text = true;
            continue;
        }
        const Json& token = item.get("SpecialToken").get("id");
        const int64_t id = token.is_string() ? v.find_added(token.string()) : -1;
        bool& adds = text ? v.adds_eos : v.adds_bos;
        CHECK_INPUT(id >= 0 && !adds,
                    "{}: post_processor has {}, expected one added token before the text, one after it, or "
                    "none", name, to_text(item));
        (text ? v.eos : v.bos) = id;
        adds = true;
    }
}

void read_pipeline(const Json& file, const std::string& name, Vocabulary& v) {
    for (const Json& step : sequence_of(file.get("normalizer"), "normalizers")) {
        CHECK_INPUT(step.get("type") == "NFC",
                    "{}: the normalizer {:.200} is not supported, expected NFC or null", name, to_text(step));
        v.nfc = true;
    }
    for (const Json& step : sequence_of(file.get("post_processor"), "processors")) {
        if (step.get("type") == "ByteLevel") continue;       // moves offsets, not ids
        CHECK_INPUT(step.get("type") == "TemplateProcessing",
                    "{}: post_processor has {:.200}, expected ByteLevel or TemplateProcessing", name,
                    to_text(step));
        read_template(step, name, v);
    }
}

Json json_of_normalizer(const Vocabulary& v) {
    if (!v.nfc) return Json();
    return Json::Members{{"type", "NFC"}};
}

Json json_of_template(const Vocabulary& v) {
    if (!v.adds_bos && !v.adds_eos) return Json();
    const auto sequence = [](const char* which, int type) {
        return Json(Json::Members{{"Sequence", Json::Members{{"id", which}, {"type_id", type}}}});
    };
    Json::Members tokens;
    const auto token = [&](int64_t id) {
        const std::string name(v.text_of(uint32_t(id)));
        if (tokens.empty() || tokens[0].first != name)
            tokens.emplace_back(name, Json::Members{{"id", name}, {"ids", Json::List{id}},
                                                    {"tokens", Json::List{name}}});
        return Json(Json::Members{{"SpecialToken", Json::Members{{"id", name}, {"type_id", 0}}}});
    };
    Json::List single, pair;
    const auto both = [&](const Json& item) {
        single.push_back(item);
        pair.push_back(item);
    };
    if (v.adds_bos) both(token(v.bos));
    both(sequence("A", 0));
    pair.push_back(sequence("B", 1));
    if (v.adds_eos) both(token(v.eos));
    return Json::Members{{"type", "TemplateProcessing"}, {"single", std::move(single)},
                         {"pair", std::move(pair)}, {"special_tokens", std::move(tokens)}};
}

// A template by itself, or a list of several with names.
static std::string default_template(const Json& value) {
    if (value.is_string()) return value.string();
    if (!value.is_list()) return "";
    for (const Json& named : value.list())
        if (named.get("name") == "default" && named.get("template").is_string())
            return named.get("template").string();
    return "";
}

// null: no such file
static Json json_in(const std::string& folder, const char* name) {
    const std::string path = folder + "/" + name;
    return file_exists(path) ? parse_json_file(path) : Json();
}

Json tokenizer_config_of(const std::string& folder) { return json_in(folder, "tokenizer_config.json"); }

std::string special_token(const Json& config, const char* key) {
    const Json &value = config.get(key), &token = value.is_object() ? value.get("content") : value;
    return token.is_string() ? token.string() : "";
}

EndOfText end_named_in(const std::string& folder) {
    EndOfText end;
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
        if (end.text.empty()) end.text = special_token(json_in(folder, name), "eos_token");
    for (const char* name : {"generation_config.json", "config.json"}) {
        if (end.id >= 0) continue;
        const Json file = json_in(folder, name);
        const Json& ids = file.get("eos_token_id");
        const Json& id = ids.is_list() && !ids.list().empty() ? ids.list()[0] : ids;
        if (id.is_natural()) end.id = int64_t(id.natural());
    }
    return end;
}

// An id as the key of an object; null: no number.
static Json natural_of(const std::string& text) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return Json();
    return number;
}

// Names stand as text, or as objects with flags; in lists and objects of several as well.
static void add_special(const Json& token, Json::List& list) {
    if (token.is_list())
        for (const Json& one : token.list()) add_special(one, list);
    if (token.is_object() && !token.find("content"))
        for (const auto& [key, one] : token.members()) add_special(one, list);
    const Json& content = token.is_object() ? token.get("content") : token;
    if (!content.is_string()) return;
    Json::Members entry = {{"content", content}};
    if (token.is_object()) entry = token.members();
    std::erase_if(entry, [](const auto& member) { return member.first == "special"; });
    entry.emplace_back("special", true);
    list.push_back(std::move(entry));
}

static const Json* of_content(const Json::List& list, const std::string& content) {
    for (const Json& token : list)
        if (token.get("content") == content) return &token;
    return nullptr;
}

FolderTokens added_tokens_in(const std::string& folder, const Json& config) {
    FolderTokens tokens;
    for (const Json& file : {json_in(folder, "special_tokens_map.json"), config}) {
        if (!file.is_object()) continue;
        for (const auto& [key, token] : file.members())
            if (key.ends_with("_token") || key.ends_with("_special_tokens"))
                add_special(token, tokens.special);
    }
    const Json &decoder = config.get("added_tokens_decoder"), &list = json_in(folder, "added_tokens.json");
    if (decoder.is_object() && !decoder.members().empty()) {
        for (const auto& [id, token] : decoder.members()) {
            Json::Members entry = {{"id", natural_of(id)}};
            if (token.is_object()) entry.insert(entry.end(), token.members().begin(), token.members().end());
            tokens.added.push_back(std::move(entry));
        }
        return tokens;
    }
    if (!list.is_object()) return tokens;
    for (const auto& [content, id] : list.members()) {
        const Json* special = of_content(tokens.special, content);
        Json::Members entry = {{"content", content}, {"special", false}, {"normalized", true}};
        if (special) entry = special->members();
        entry.emplace_back("id", id);
        tokens.added.push_back(std::move(entry));
    }
    return tokens;
}

std::string end_of_template(const Json& post_processor) {
    std::string end;
    for (const Json& step : sequence_of(post_processor, "processors")) {
        const Json& single = step.get("single");
        if (!single.is_list() || single.list().empty()) continue;
        const Json& token = single.list().back().get("SpecialToken").get("id");
        if (token.is_string() && single.list().size() > 1) end = token.string();
    }
    return end;
}

void read_tokenizer_config(const Json& config, const std::string& folder, Vocabulary& v) {
    const std::string alone = folder + "/chat_template.jinja";
    if (file_exists(alone)) v.chat_template = read_file(alone);
    const Json names = json_in(folder, "special_tokens_map.json");
    const auto read = [&](const char* key, int64_t& id) {
        const std::string name = special_token(config, key);
        const int64_t found = v.find_added(name.empty() ? special_token(names, key) : name);
        if (found >= 0) id = found;
    };
    if (!v.adds_bos) read("bos_token", v.bos);
    if (!v.adds_eos) read("eos_token", v.eos);
    if (v.chat_template.empty()) v.chat_template = default_template(config.get("chat_template"));
}

Json::Members tokenizer_config(const Vocabulary& v) {
    Json::Members members;
    if (v.bos >= 0) members.emplace_back("bos_token", v.text_of(uint32_t(v.bos)));
    if (v.eos >= 0) members.emplace_back("eos_token", v.text_of(uint32_t(v.eos)));
    if (!v.chat_template.empty()) members.emplace_back("chat_template", v.chat_template);
    return members;
}

}  // namespace text

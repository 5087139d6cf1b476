#include "llmc/io/text/tokenizer_pipeline.h"

#include "llmc/base/check.h"
#include "llmc/base/files.h"
#include "llmc/base/json_file.h"

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
        CHECK_INPUT(id >= 0 && !(v.adds_bos && !text),
                    "{}: post_processor has {}, expected one added token before the text, one after it, or "
                    "none", name, to_text(item));
        if (text) v.eos = id;
        else v.bos = id;
        v.adds_bos = v.adds_bos || !text;
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
    if (!v.adds_bos) return Json();
    const uint32_t id = uint32_t(v.bos);
    const std::string name(v.text_of(id));
    const auto sequence = [](const char* which, int type) {
        return Json(Json::Members{{"Sequence", Json::Members{{"id", which}, {"type_id", type}}}});
    };
    const Json begin = Json::Members{{"SpecialToken", Json::Members{{"id", name}, {"type_id", 0}}}};
    const Json token = Json::Members{{"id", name}, {"ids", Json::List{id}}, {"tokens", Json::List{name}}};
    return Json::Members{{"type", "TemplateProcessing"},
                         {"single", Json::List{begin, sequence("A", 0)}},
                         {"pair", Json::List{begin, sequence("A", 0), sequence("B", 1)}},
                         {"special_tokens", Json::Members{{name, token}}}};
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

Json tokenizer_config_of(const std::string& folder) {
    const std::string path = folder + "/tokenizer_config.json";
    return file_exists(path) ? parse_json_file(path) : Json();
}

std::string special_token(const Json& config, const char* key) {
    const Json &value = config.get(key), &token = value.is_object() ? value.get("content") : value;
    return token.is_string() ? token.string() : "";
}

void read_tokenizer_config(const Json& config, const std::string& folder, Vocabulary& v) {
    const std::string alone = folder + "/chat_template.jinja";
    if (file_exists(alone)) v.chat_template = read_file(alone);
    const auto read = [&](const char* key, int64_t& id) {
        const int64_t found = v.find_added(special_token(config, key));
        if (found >= 0) id = found;
    };
    if (!v.adds_bos) read("bos_token", v.bos);
    read("eos_token", v.eos);
    if (v.chat_template.empty()) v.chat_template = default_template(config.get("chat_template"));
}

Json::Members tokenizer_config(const Vocabulary& v) {
    Json::Members members;
    if (v.bos >= 0) members.emplace_back("bos_token", v.text_of(uint32_t(v.bos)));
    if (v.eos >= 0) members.emplace_back("eos_token", v.text_of(uint32_t(v.eos)));
    if (!v.chat_template.empty()) members.emplace_back("chat_template", v.chat_template);
    return members;
}

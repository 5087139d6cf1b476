#include "llmc/train/save/formats/formats.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"

// The table; each row is in the file of its name.
extern const Format kHf, kGguf, kLlmc;
static const Format* const kFormats[] = {&kHf, &kGguf, &kLlmc};

const Format* format_of(const std::string& name) {
    for (const Format* f : kFormats)
        if (name.starts_with(std::string(f->prefix) + ":")) return f;
    return nullptr;
}

std::string path_of(const std::string& name) { return name.substr(name.find(':') + 1); }

static std::string list_of(bool only_imported, const char* between) {
    std::string text;
    for (const Format* f : kFormats)
        if (f->imported || !only_imported)
            text += (text.empty() ? "" : between) + std::string(f->prefix) + ":" + f->place;
    return text;
}

std::string list_of_exports(const char* between) { return list_of(false, between); }
std::string list_of_imports(const char* between) { return list_of(true, between); }

std::string help_on_formats() {
    std::string text;
    for (const Format* f : kFormats)
        text += fmt::format("{:>37}{:<10} {}\n", "", (std::string(f->prefix) + ":" + f->place), f->meaning);
    return text;
}

std::string meant_import(const std::string& path) {
    for (const Format* f : kFormats)
        if (const std::string meant = f->meant(path); !meant.empty()) return meant;
    return "";
}

bool is_foreign(const std::string& init) {
    const Format* f = format_of(init);
    return f && f->imported;
}

ForeignModel open_foreign(const std::string& from) {
    const std::string path = path_of(from);
    CHECK_INPUT(!path.empty(), "model.init = '{}': a path is missing after the colon", from);
    ForeignModel m = format_of(from)->open(path);
    m.from = from;
    return m;
}

void check_export_format(const std::string& to) {
    CHECK_INPUT(format_of(to), "--export={}: expected {}", to, list_of_exports(", "));
    CHECK_INPUT(!path_of(to).empty(), "--export={}: a path is missing after the colon", to);
}

void check_export_kind(const std::string& to, const ModelConfig& model) {
    Config own, gpt2;
    const ModelConfig& m = model;
    gpt2.model = with_sizes({.layers = m.layers, .heads = m.heads, .channels = m.channels,
                             .context = m.context, .vocab = m.vocab, .init = m.init,
                             .init_kind = m.init_kind});
    own.model = with_sizes(model);
    const std::vector<Field> ours = fields(own), theirs = fields(gpt2);
    for (size_t i = 0; i < ours.size(); i++) {
        const std::string value = value_json(ours[i].value), expected = value_json(theirs[i].value);
        CHECK_INPUT(value == expected, "--export={}: the model has {} = {}, the format holds GPT-2 with {}",
                    to, ours[i].path(), value, expected);
    }
}

void export_to(const OwnModel& m, const std::string& to) { format_of(to)->write(m, path_of(to)); }

std::vector<std::string> files_of_export(const std::string& to) {
    return format_of(to)->files(path_of(to), true);
}

void remove_export(const std::string& to, bool tokenizer) {
    for (const std::string& file : format_of(to)->files(path_of(to), tokenizer))
        CHECK_INPUT(unlink(file.c_str()) == 0 || errno == ENOENT, "{}: cannot be removed: {}", file,
                    strerror(errno));
}

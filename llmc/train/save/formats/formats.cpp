#include "llmc/train/save/formats/formats.h"

#include "llmc/base/check.h"
#include "llmc/train/save/formats/kind.h"

// The table; each row is in the file of its name.
extern const Format kHf, kGguf, kLlmc;
static const Format* const kFormats[] = {&kHf, &kGguf, &kLlmc};

const Format* format_of(const std::string& name) {
    for (const Format* f : kFormats)
        if (name.starts_with(std::string(f->prefix) + ":")) return f;
    return nullptr;
}

std::string path_of(const std::string& name) { return name.substr(name.find(':') + 1); }

std::string list_of_formats(const char* between) {
    std::string text;
    for (const Format* f : kFormats)
        text += (text.empty() ? "" : between) + std::string(f->prefix) + ":" + f->place;
    return text;
}

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

bool is_foreign(const std::string& init) { return format_of(init) != nullptr; }

ForeignModel open_foreign(const std::string& from) {
    const std::string path = path_of(from);
    CHECK_INPUT(!path.empty(), "model.init = '{}': a path is missing after the colon", from);
    ForeignModel m = format_of(from)->open(path);
    m.from = from;
    return m;
}

void check_head(const ForeignModel& m, const Tensor& wte) {
    const Format& f = *format_of(m.from);
    CHECK_INPUT(head_is_embedding(m, wte), "model.init = '{}': its {} is not its embedding, {}", m.from,
                f.head, f.other_head);
}

void check_export_format(const std::string& to) {
    CHECK_INPUT(format_of(to), "--export={}: expected {}", to, list_of_formats(", "));
    CHECK_INPUT(!path_of(to).empty(), "--export={}: a path is missing after the colon", to);
}

void check_export_kind(const std::string& to, const ModelConfig& model) {
    const std::vector<const ForeignKind*> kinds = format_of(to)->kinds();
    const ForeignKind* nearest = nullptr;
    std::vector<std::string> least;
    for (const ForeignKind* kind : kinds) {
        const std::vector<std::string> why = in_the_way(model, *kind);
        if (why.empty()) return;
        if (nearest && why.size() >= least.size()) continue;
        nearest = kind;
        least = why;
    }
    std::string has;
    for (const std::string& why : least) has += (has.empty() ? "" : "; ") + why;
    CHECK_INPUT(false, "--export={}: no model of this format has the settings of yours. {} comes nearest, "
                "and has {}", to, nearest->name, has);
}

void export_to(const OwnModel& m, const std::string& to) { format_of(to)->write(m, path_of(to)); }

std::vector<std::string> files_of_export(const std::string& to) {
    return format_of(to)->files(path_of(to), true);
}

void remove_export(const std::string& to, bool tokenizer) {
    for (const std::string& file : format_of(to)->files(path_of(to), tokenizer)) remove_file(file);
}

#include "llmc/train/save/formats/formats.h"

#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/train/save/formats/aside.h"
#include "llmc/train/save/formats/kind.h"

inline namespace formats {

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

ForeignModel open_foreign(const std::string& from, Opens opens) {
    const std::string path = path_of(from);
    CHECK_INPUT(!path.empty(), "model.init = '{}': a path is missing after the colon", from);
    ForeignModel m = format_of(from)->open(path, opens);
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

// Why no kind of the format holds the model; empty: one does.
static std::string in_the_way_of(const Format& format, const ModelConfig& model) {
    const ForeignKind* nearest = nullptr;
    std::vector<std::string> least;
    for (const ForeignKind* kind : format.kinds()) {
        const std::vector<std::string> why = in_the_way(model, *kind);
        if (why.empty()) return "";
        if (nearest && why.size() >= least.size()) continue;
        nearest = kind;
        least = why;
    }
    std::string has;
    for (const std::string& why : least) has += (has.empty() ? "" : "; ") + why;
    return fmt::format("{} comes nearest, and has {}", nearest->name, has);
}

void check_export_kind(const std::string& to, const ModelConfig& model) {
    const std::string why = in_the_way_of(*format_of(to), model);
    CHECK_INPUT(why.empty(), "--export={}: no model of this format has the settings of yours. {}", to, why);
}

std::string exports_of(const ModelConfig& model) {
    std::string text;
    for (const Format* f : kFormats)
        if (in_the_way_of(*f, model).empty()) text += (text.empty() ? "" : ", ") + std::string(f->prefix);
    return text.empty() ? "none, because " + in_the_way_of(*kFormats[0], model) : text;
}

// False as well for files that cannot be read.
static bool is_own_export(const Format& format, const std::string& path, const ModelConfig& model) {
    const bool before = std::exchange(context.throw_on_fatal, true);
    bool own = false;
    try {
        own = format.is_own(path, model);
    } catch (const Fatal&) {}
    context.throw_on_fatal = before;
    return own;
}

bool replaces_export(const std::string& to, const ModelConfig& model, bool overwrite) {
    const Format& format = *format_of(to);
    const std::string path = path_of(to);
    const bool folder = format.place == std::string("DIR");
    CHECK_INPUT(!file_exists(path) || (folder ? is_directory(path) : is_regular_file(path)),
                "--export={}: {} is no {}", to, path, folder ? "folder" : "file");
    for (const std::string& file : format.files(path)) {
        if (!file_exists(file)) continue;
        CHECK_INPUT(overwrite || is_own_export(format, path, model), "--export={}: {} is there, and is no "
                    "export of this program. Name another place, or replace it by --overwrite", to, file);
        return true;
    }
    return false;
}

void export_to(const OwnModel& m, const std::string& to,
               const std::function<void(const std::string& copy)>& verify) {
    const Format& format = *format_of(to);
    Aside aside(format, path_of(to));
    format.write(m, aside.copy);
    if (verify) verify(aside.name());
    aside.put_in_place();
}

std::vector<std::string> files_of_export(const std::string& to) {
    return format_of(to)->files(path_of(to));
}

}  // namespace formats

#include "llmc/io/corpus/inputs.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/glob.h"
#include "llmc/io/files/shard.h"

inline namespace corpus {

static bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.ends_with(end); });
}

// The name without .gz or .zst.
static std::string_view unpacked_name(std::string_view name) {
    for (const std::string_view end : {".gz", ".zst"})
        if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
    return name;
}

static std::optional<InputKind> kind_of(const std::string& path, As as) {
    const std::string_view name = unpacked_name(path);
    if (name.ends_with(".jsonl")) return InputKind::JsonLines;
    if (name.ends_with(".txt")) return InputKind::Text;
    if (as == As::Text) return InputKind::Text;
    if (as == As::JsonLines) return InputKind::JsonLines;
    return path == "-" ? std::optional(InputKind::Text) : std::nullopt;
}

static bool is_table(std::string_view name) {
    return ends_with_any(name, {".parquet", ".arrow", ".feather"});
}
static bool is_packed(std::string_view name) {
    return ends_with_any(name, {".bz2", ".xz", ".lz4", ".zip", ".tar", ".tgz", ".7z"});
}

// What to do about a file of an unknown kind.
static std::string remedy_of(const std::string& path) {
    const std::string_view name = unpacked_name(path);
    if (ends_with_any(name, {".json", ".ndjson", ".jsonlines"}))
        return "--as=jsonl reads it as a JSON object a line";
    if (is_table(name))
        return "data/README.md has the lines that write a table's column of text as .jsonl";
    if (is_packed(name))
        return "unpack it, or name - and send it the text: xz -dc FILE | ./tokenize ... -";
    return "--as=text reads it as .txt, --as=jsonl as .jsonl";
}

uint64_t Inputs::count(InputKind kind) const {
    return uint64_t(
        std::count_if(files.begin(), files.end(), [&](const Input& i) { return i.kind == kind; }));
}

std::string Inputs::summary() const {
    const int64_t texts = int64_t(count(InputKind::Text)), lines = int64_t(count(InputKind::JsonLines));
    std::string text = texts ? counted(texts, "text file") : "";
    if (lines) {
        if (texts) text += ", ";
        text += grouped(lines) + (lines == 1 ? " file of JSON lines" : " files of JSON lines");
    }
    if (left_out) text += fmt::format("; of other kinds, left out: {}", counted(int64_t(left_out), "file"));
    return text;
}

static void add_folder(const std::string& folder, As as, Inputs& inputs) {
    const std::vector<std::string> paths = files_below(folder);
    const size_t before = inputs.files.size();
    for (const std::string& path : paths) {
        // what lies beside texts: shards of an earlier call, archives, pipes
        const bool other = ends_with_any(path, {".bin", kIndexSuffix}) || is_table(path) || is_packed(path);
        const auto kind = other || !is_regular_file(path) ? std::nullopt : kind_of(path, as);
        if (kind) inputs.files.push_back({path, *kind});
        else inputs.left_out++;
    }
    CHECK_INPUT(
        inputs.files.size() > before,
        "{}: a folder without .txt or .jsonl files among its {}; --as=text or --as=jsonl takes files of "
        "any suffix",
        folder, counted(int64_t(paths.size()), "file"));
}

Inputs find_inputs(const std::vector<std::string>& names, As as) {
    Inputs inputs;
    for (const std::string& name : names) {
        const auto found = name == "-" ? std::vector<std::string>{"-"} : glob_files(name);
        CHECK_INPUT(!found.empty(), "{}: no such file, and no file of such a name", name);
        const bool below = name.find("**") != name.npos;  // such a pattern meets what is in a folder, too
        for (const std::string& path : found) {
            const bool folder = path != "-" && is_directory(path);
            if (folder && !below) add_folder(path, as, inputs);
            if (folder) continue;
            const auto kind = kind_of(path, as);
            CHECK_INPUT(kind,
                        "{}: expected .txt, .jsonl, either with .gz or .zst, a folder, or - for standard "
                        "input;\n       {}",
                        path, remedy_of(path));
            inputs.files.push_back({path, *kind});
        }
    }
    CHECK_INPUT(!inputs.files.empty(),
                "no input: expected .txt or .jsonl files, folders of them, or - for standard input");
    return inputs;
}

}  // namespace corpus

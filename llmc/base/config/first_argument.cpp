#include "llmc/base/config/first_argument.h"

#include <algorithm>
#include <filesystem>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/disk/files.h"

inline namespace config {

namespace fs = std::filesystem;

static FirstArgument of_folder(std::string folder) {
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    const std::string config = folder + "/config.json", run = parent_directory(folder);
    CHECK_INPUT(file_exists(config), "'{}' is a folder without config.json: expected a config, a preset's "
                "name, the folder of a run, or a folder step_N that a run has saved", folder);
    if (!file_exists(folder + "/manifest.json")) return {.config = config, .run_dir = folder, .step = {}};
    const bool in_run = file_exists(run + "/config.json");
    return {.config = config, .run_dir = in_run ? run : "", .step = folder};
}

// Names of presets, those nearest to `name` first. A preset says what it is about; scripts/ has other files
// of JSON.
static std::string presets_near(const std::string& name) {
    std::vector<std::pair<int, std::string>> all;
    const std::string folder = parent_directory(beside_program("scripts/quickstart.json"));
    for (const std::string& path : glob_files(folder + "/*.json"))
        if (read_file(path).find("\"about\"") != std::string::npos)
            all.emplace_back(0, fs::path(path).stem());
    for (auto& [distance, preset] : all) distance = edit_distance(name.substr(0, 64), preset);
    std::sort(all.begin(), all.end());
    std::string names;
    for (size_t i = 0; i < std::min<size_t>(all.size(), 3); i++) names += (i ? ", " : "") + all[i].second;
    return names;
}

static std::string preset_of(const std::string& name) { return beside_program("scripts/" + name + ".json"); }

static bool is_name(const std::string& given) {
    return given.find('/') == given.npos && !given.ends_with(".json");
}

bool is_first_argument(const std::string& given) {
    return given.starts_with('{') || !is_name(given) || file_exists(given) || file_exists(preset_of(given));
}

FirstArgument first_argument(const std::string& given) {
    if (given.starts_with('{') || given.empty()) return {.config = given, .run_dir = {}, .step = {}};
    if (is_directory(given)) return of_folder(given);
    if (!file_exists(given) && is_name(given)) {
        const std::string preset = preset_of(given);
        CHECK_INPUT(file_exists(preset), "'{}' is no config file, and no preset has this name (the nearest: "
                    "{})", given, presets_near(given));
        return {.config = preset, .run_dir = {}, .step = {}};
    }
    return {.config = given, .run_dir = {}, .step = {}};
}

}  // namespace config

#include "llmc/train/explore/presets.h"

#include <algorithm>
#include <tuple>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/disk/files.h"
#include "llmc/model/depth.h"
#include "llmc/train/explore/address_settings.h"

inline namespace explorer {

// Texts without their quotes, as on the command line.
static std::string as_option(const Value& v) {
    const std::string text = value_json(v);
    return text.starts_with('"') ? text.substr(1, text.size() - 2) : text;
}

static Preset preset_of(Config cfg, const std::string& name) {
    Preset preset = {.name = name, .about = cfg.about, .settings = {}};
    const std::vector<std::string> named = cfg.named;
    for (const Field& f : fields(cfg)) {
        const bool is_named = std::find(named.begin(), named.end(), f.path()) != named.end();
        const bool trains = f.section == "train" || f.path() == "optimizer.kind";
        if (is_named && (f.section == "model" || trains) && stands_in_an_address(f.path()))
            preset.settings.emplace_back(f.path(), as_option(f.value));
    }
    apply_depth(cfg);
    preset.size = double(cfg.model.layers) * cfg.model.channels * cfg.model.channels;
    return preset;
}

std::vector<Preset> all_presets() {
    const std::string folder = machines_folder() + "/..";
    std::vector<Preset> all;
    for (const std::string& path : glob_files(folder + "/*.json")) {
        const std::string name = path.substr(folder.size() + 1, path.size() - folder.size() - 6);
        try {
            all.push_back(preset_of(load_config(path), name));
        } catch (const Fatal&) {}  // another program's file
    }
    const auto key = [](const Preset& p) {
        return std::tuple(p.name.substr(0, p.name.find('_')), p.size, p.name);
    };
    std::sort(all.begin(), all.end(), [&](const Preset& a, const Preset& b) { return key(a) < key(b); });
    return all;
}

}  // namespace explorer

// A config as a flat list of settings, for JSON, command line, help and echo.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "llmc/base/config/config.h"

inline namespace config {

using Value = std::variant<int*, int64_t*, double*, bool*, std::string*, Word*, std::vector<Corpus>*,
                           std::vector<std::string>*, std::vector<int>*, std::vector<int64_t>*, RopeScaling*,
                           RollbackRule*>;

struct Field {
    std::string section, key;       // the free text `about` stands in no section
    Value value;                    // points into the config
    const char* meaning;
    Limits limits;

    std::string path() const { return section.empty() ? key : section + "." + key; }
};

struct Section { std::string name; const char* meaning; };

std::vector<Field> fields(Config& cfg);
std::vector<Section> sections();

std::string value_json(const Value& v);             // as JSON text
std::string expected(const Field& f);               // "an integer of 1 to 4096", "one of auto, cpu, cuda"
bool allowed(const Field& f);                       // the value is finite and within its limits

// Fewest insertions, deletions, replacements and swaps of neighbours that turn a into b.
int edit_distance(const std::string& a, const std::string& b);

// The known paths nearest to an unknown path: "optimizer.lr" or "eval.every, log.every"; empty: no near path.
std::string nearest(const std::string& path);
std::string nearest_section(const std::string& name);

}  // namespace config

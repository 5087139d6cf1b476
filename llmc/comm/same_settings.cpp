#include "llmc/comm/same_settings.h"

#include <xxhash.h>

#include <algorithm>
#include <sstream>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/json/json.h"
#include "llmc/base/terminal.h"

inline namespace comm {

static std::string hash_of(const std::string& text) {
    return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

// A line "key=value". The hash stands for what is left out of a long value.
static std::string line_of(const std::string& key, const std::string& value) {
    static constexpr size_t kShown = 100;
    if (value.size() <= kShown) return key + "=" + value + "\n";
    return key + "=" + printable(value.substr(0, kShown)) + "... (hash " + hash_of(value) + ")\n";
}

std::string settings_text(const Config& cfg, const std::string& task) {
    Config copy = cfg;
    std::string text = line_of("what to do", json_string(task.empty() ? "train" : task));
    for (const Field& f : fields(copy)) text += line_of(f.path(), value_json(f.value));
    return text;
}

std::string settings_difference(const std::string& text_a, const std::string& text_b, const char* among,
                                const std::string& a, const std::string& b) {
    if (text_a == text_b) return "";
    std::istringstream lines_a(text_a), lines_b(text_b);
    std::string x, y;
    while (std::getline(lines_a, x) && std::getline(lines_b, y) && x == y) {}
    const size_t equal = std::min(x.find('='), x.size());
    if (x.substr(0, equal) != y.substr(0, equal))
        return fmt::format("programs of different versions run {} and {}", a, b);
    return fmt::format("{} differs between {}: {} {}, {} {}. Start all {} with the same settings",
                       x.substr(0, equal), among, x.substr(equal + 1), a, y.substr(equal + 1), b, among);
}

// The texts, thousands of bytes from each rank to each, travel only if hashes differ.
void check_same_settings(const Config& cfg, const std::string& task, const Exchange& exchange) {
    const std::string own = settings_text(cfg, task);
    const std::vector<std::string> hashes = exchange(hash_of(own));
    const auto other = [](const std::vector<std::string>& all) {
        return std::find_if(all.begin(), all.end(), [&](const std::string& s) { return s != all[0]; });
    };
    if (other(hashes) == hashes.end()) return;
    const std::vector<std::string> texts = exchange(own);
    const auto differs = other(texts);
    CHECK(differs != texts.end(), "hashes of settings differ, and no setting does");
    const std::string other_rank = fmt::format("on rank {}", differs - texts.begin());
    CHECK_INPUT(false, "{}", settings_difference(texts[0], *differs, "ranks", "on rank 0", other_rank));
}

}  // namespace comm

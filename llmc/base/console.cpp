#include "llmc/base/console.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/terminal.h"

inline namespace base {

// Three digits and a prefix of a thousand to the power k.
static std::string scaled(double v, const char* const* prefixes, int count) {
    int k = 0;
    while (k + 1 < count && std::abs(v) >= 999.5) {
        v /= 1000;
        k++;
    }
    const bool whole = k == 0 && v == std::floor(v);
    int digits = std::abs(v) >= 9.995 ? 1 : 2;
    if (whole || std::abs(v) >= 99.95) digits = 0;
    return fmt::format("{:.{}f}{}", v, digits, prefixes[k]);
}

std::string human_bytes(double bytes) {
    static const char* const units[] = {" B", " kB", " MB", " GB", " TB", " PB"};
    return scaled(bytes, units, 6);
}

std::string human_count(double count) {
    static const char* const units[] = {"", "k", "M", "G", "T"};
    return scaled(count, units, 5);
}

std::string human_seconds(double s) {
    if (!std::isfinite(s) || s < 0) return "n/a";
    if (s < 0.9995) return fmt::format("{:.0f} ms", s * 1e3);
    if (s < 59.95) return fmt::format("{:.1f} s", s);
    const auto whole = int64_t(std::min(s, 1e15) + 0.5);
    if (whole < 3600) return fmt::format("{} min {:02} s", int(whole / 60), int(whole % 60));
    if (whole < 86400) return fmt::format("{} h {:02} min", int(whole / 3600), int(whole / 60 % 60));
    return fmt::format("{} d {:02} h", whole / 86400, int(whole / 3600 % 24));
}

std::string grouped(int64_t n) {
    std::string text = std::to_string(n);
    for (ptrdiff_t i = ptrdiff_t(text.size()) - 3; i > (n < 0); i -= 3) text.insert(size_t(i), ",");
    return text;
}

std::string counted(int64_t n, const char* one) { return grouped(n) + " " + one + (n == 1 ? "" : "s"); }

std::string table(const std::vector<std::vector<std::string>>& rows, const std::string& alignment) {
    std::vector<size_t> width;
    for (const auto& row : rows) {
        width.resize(std::max(width.size(), row.size()));
        for (size_t i = 0; i < row.size(); i++) width[i] = std::max(width[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows) {
        for (size_t i = 0; i < row.size(); i++) {
            const std::string pad(width[i] - row[i].size(), ' ');
            const bool left = i < alignment.size() && alignment[i] == 'l', last = i + 1 == row.size();
            if (i) text += "  ";
            if (!left) text += pad;
            text += row[i];
            if (left && !last) text += pad;
        }
        text += "\n";
    }
    return text;
}

void print_event(const char* label, const std::string& text) {
    print("{}{:>15}  {}\n", line_start(1), label, text);
    fflush(stdout);
}

}  // namespace base

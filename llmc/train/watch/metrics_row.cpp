#include "llmc/train/watch/metrics_row.h"

#include <cmath>

#include "llmc/base/json_events.h"

static constexpr size_t kMostKeys = 64, kDeepest = 8;

namespace {
struct RowEvents final : JsonEvents {
    MetricsRow& row;
    std::vector<std::string> path;          // keys of the open objects
    std::string last;                       // the latest key
    size_t lists = 0;                       // open lists
    bool object = false;

    explicit RowEvents(MetricsRow& r) : row(r) {}
    std::string name() const {
        std::string joined;
        for (const std::string& part : path) joined += part + ".";
        return joined + last;
    }
    bool number(double v) {
        if (!lists && object && row.numbers.size() < kMostKeys && std::isfinite(v))
            row.numbers.emplace_back(path.empty() ? last : name(), v);
        return object;
    }
    bool null() override { return object; }
    bool boolean(bool v) override { return number(v); }
    bool negative(int64_t v) override { return number(double(v)); }
    bool natural(uint64_t v) override { return number(double(v)); }
    bool real(double v) override { return number(v); }
    bool string(std::string& v) override {
        if (lists || !object) return object;
        if (path.empty() && last == "event") row.event = std::move(v);
        else if (row.texts.size() < kMostKeys) row.texts.emplace_back(name(), std::move(v));
        return true;
    }
    bool key(std::string& v) override {
        last = std::move(v);
        return true;
    }
    bool start_object() override {
        if (object && !lists) path.push_back(last);
        object = true;
        return path.size() + lists < kDeepest;
    }
    bool end_object() override {
        if (!path.empty() && !lists) path.pop_back();
        return true;
    }
    bool start_list() override { return object && path.size() + ++lists < kDeepest; }
    bool end_list() override {
        lists--;
        return true;
    }
    void broken(size_t, bool, const std::string&) override {}
};
}  // namespace

std::string_view MetricsRow::text(std::string_view key) const {
    for (const auto& [name, value] : texts)
        if (name == key) return value;
    return {};
}

bool read_metrics_row(std::string_view line, MetricsRow& row) {
    row.event.clear();
    row.numbers.clear();
    row.texts.clear();
    RowEvents events(row);
    return read_json(line, events);
}

#include "llmc/train/watch/metrics_row.h"

#include <cmath>

#include "llmc/base/json_value.h"

static constexpr size_t kMostKeys = 64, kDeepest = 8;

namespace {
struct RowEvents {
    MetricsRow& row;
    std::vector<std::string> path = {};     // keys of the open objects
    std::string last = {};                  // the latest key
    size_t lists = 0;                       // open lists
    bool object = false;

    std::string name() const {
        std::string joined;
        for (const std::string& part : path) joined += part + ".";
        return joined + last;
    }
    void number(double v) {
        if (row.numbers.size() < kMostKeys && std::isfinite(v))
            row.numbers.emplace_back(path.empty() ? last : name(), v);
    }
    void value(Json& v) {
        if (v.is_boolean()) number(v.boolean());
        else if (v.is_number()) number(v.number());
        else if (auto* text = std::get_if<std::string>(&v.value)) {
            if (path.empty() && last == "event") row.event = std::move(*text);
            else if (row.texts.size() < kMostKeys) row.texts.emplace_back(name(), std::move(*text));
        }
    }
    bool take(JsonEvent& e) {
        switch (e.kind) {
        case JsonEvent::Key: last = std::move(std::get<std::string>(e.value.value)); return true;
        case JsonEvent::Value:
            if (object && !lists) value(e.value);
            return object;
        case JsonEvent::StartObject:
            if (object && !lists) path.push_back(last);
            object = true;
            return path.size() + lists < kDeepest;
        case JsonEvent::EndObject:
            if (!path.empty() && !lists) path.pop_back();
            return true;
        case JsonEvent::StartList: return object && path.size() + ++lists < kDeepest;
        case JsonEvent::EndList: lists--; return true;
        }
        return false;
    }
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
    RowEvents events{row};
    try {
        return read_json(line, [&](JsonEvent& e) { return events.take(e); });
    } catch (const JsonError&) {
        return false;
    }
}

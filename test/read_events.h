// Reads event files of TensorBoard: records, protobuf messages, scalars, texts, histograms.
#pragma once
#include <cstring>
#include <map>

#include "llmc/train/report/event_file.h"
#include "test/program.h"

namespace test {

// The parts of a protobuf message: number of the field, its bytes (of a varint or a number: the value's).
struct Part { uint64_t field; std::string value; };
inline uint64_t varint(const std::string& s, size_t& at) {
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        const uint8_t byte = uint8_t(s.at(at++));
        v |= uint64_t(byte & 0x7f) << shift;
        if (byte < 0x80) return v;
    }
}
inline std::vector<Part> parts_of(const std::string& message) {
    std::vector<Part> parts;
    for (size_t at = 0; at < message.size();) {
        const uint64_t key = varint(message, at);
        size_t bytes = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : 0;
        if (key % 8 == 0) {
            const uint64_t v = varint(message, at);
            parts.push_back({key / 8, std::string(reinterpret_cast<const char*>(&v), 8)});
            continue;
        }
        if (key % 8 == 2) bytes = varint(message, at);
        parts.push_back({key / 8, message.substr(at, bytes)});
        at += bytes;
    }
    return parts;
}
inline std::string field(const std::vector<Part>& parts, uint64_t number) {
    for (const Part& p : parts)
        if (p.field == number) return p.value;
    return "";
}
template <class T> T as(const std::string& bytes) {
    T v{};
    memcpy(&v, bytes.data(), std::min(bytes.size(), sizeof v));
    return v;
}

// "step tag value" of each scalar of a file, and "step tag text"; every checksum is verified.
inline std::vector<std::string> read_events(const std::string& path) {
    std::vector<std::string> rows;
    const std::string all = text_of(path);
    for (size_t at = 0; at < all.size();) {
        const uint64_t length = as<uint64_t>(all.substr(at, 8));
        const std::string message = all.substr(at + 12, length);
        EXPECT(as<uint32_t>(all.substr(at + 8, 4)) == masked_crc32c(all.substr(at, 8)) &&
               as<uint32_t>(all.substr(at + 12 + length, 4)) == masked_crc32c(message), "checksums");
        at += length + 16;
        const std::vector<Part> event = parts_of(message);
        const int64_t step = as<int64_t>(field(event, 2));
        if (const std::string version = field(event, 3); !version.empty()) rows.push_back(version);
        for (const Part& value : parts_of(field(event, 5))) {
            const std::vector<Part> v = parts_of(value.value);
            const std::string text = field(parts_of(field(v, 8)), 8);
            rows.push_back(fmt::format("{} {} {}", step, field(v, 1),
                                       text.empty() ? fmt::format("{}", as<float>(field(v, 2))) : text));
        }
    }
    return rows;
}

inline std::vector<double> doubles(const std::string& packed) {
    std::vector<double> all(packed.size() / 8);
    memcpy(all.data(), packed.data(), packed.size());
    return all;
}

// HistogramProto.
struct ReadHistogram {
    double min, max, num, sum, sum_squares;
    std::vector<double> limits, buckets;
};
// "step tag" -> the histogram.
inline std::map<std::string, ReadHistogram> read_histograms(const std::string& path) {
    std::map<std::string, ReadHistogram> found;
    const std::string all = text_of(path);
    for (size_t at = 0; at < all.size();) {
        const uint64_t length = as<uint64_t>(all.substr(at, 8));
        const std::vector<Part> event = parts_of(all.substr(at + 12, length));
        at += length + 16;
        for (const Part& value : parts_of(field(event, 5))) {
            const std::vector<Part> v = parts_of(value.value), h = parts_of(field(v, 5));
            if (h.empty()) continue;
            const std::string key = fmt::format("{} {}", as<int64_t>(field(event, 2)), field(v, 1));
            EXPECT(!found.contains(key), "%s twice", key.c_str());
            found[key] = {as<double>(field(h, 1)), as<double>(field(h, 2)), as<double>(field(h, 3)),
                          as<double>(field(h, 4)), as<double>(field(h, 5)), doubles(field(h, 6)),
                          doubles(field(h, 7))};
        }
    }
    return found;
}

}  // namespace test

#include "llmc/train/report/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>

#include "llmc/base/check.h"
#include "llmc/base/disk/output_file.h"

inline namespace report {

// ---------------------------------------------------------------------------------------------------------
// protobuf: a field is a varint of number * 8 + wire type, then the value

static void add_varint(std::string& out, uint64_t v) {
    for (; v >= 0x80; v >>= 7) out += char(v | 0x80);
    out += char(v);
}
template <class T> static void add_bytes(std::string& out, T v) {
    char bytes[sizeof v];
    memcpy(bytes, &v, sizeof v);                // x86 is little-endian, as the format is
    out.append(bytes, sizeof v);
}
static void add_integer(std::string& out, int field, uint64_t v) {
    add_varint(out, uint64_t(field) * 8);
    add_varint(out, v);
}
static void add_double(std::string& out, int field, double v) {
    add_varint(out, uint64_t(field) * 8 + 1);
    add_bytes(out, v);
}
static void add_float(std::string& out, int field, float v) {
    add_varint(out, uint64_t(field) * 8 + 5);
    add_bytes(out, v);
}
static void add_string(std::string& out, int field, std::string_view v) {       // and nested messages
    add_varint(out, uint64_t(field) * 8 + 2);
    add_varint(out, v.size());
    out += v;
}

static std::string event(int64_t step) {
    using namespace std::chrono;
    std::string e;
    add_double(e, 1, duration<double>(system_clock::now().time_since_epoch()).count());
    add_integer(e, 2, uint64_t(step));
    return e;
}

// ---------------------------------------------------------------------------------------------------------
// records

static constexpr std::array<uint32_t, 256> kCrcTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        table[i] = c;
    }
    return table;
}();

uint32_t masked_crc32c(std::string_view data) {
    uint32_t c = ~0u;
    for (const char byte : data) c = kCrcTable[(c ^ uint8_t(byte)) & 0xff] ^ c >> 8;
    return std::rotr(~c, 15) + 0xa282ead8u;
}

static std::string record_of(const std::string& message) {
    std::string length, record;
    add_bytes(length, uint64_t(message.size()));
    record = length;
    add_bytes(record, masked_crc32c(length));
    record += message;
    add_bytes(record, masked_crc32c(message));
    return record;
}

static uint64_t varint_at(std::string_view text, size_t& at) {
    uint64_t v = 0;
    for (int shift = 0; at < text.size() && shift < 64; shift += 7) {
        const uint8_t byte = uint8_t(text[at++]);
        v |= uint64_t(byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    return v;
}

// The step of a message written here: after wall_time. A message without a step: -1.
static int64_t step_of(std::string_view message) {
    size_t at = 9;                              // a byte of field 1, its 8 bytes
    if (at >= message.size() || message[0] != 9 || message[at++] != 16) return -1;
    return int64_t(varint_at(message, at));
}

// Bytes of the whole records up to the first of a later step.
static size_t bytes_up_to(std::string_view content, int64_t step) {
    size_t keep = 0;
    while (content.size() - keep >= 16) {
        uint64_t length;
        memcpy(&length, content.data() + keep, sizeof length);
        if (length > content.size() - keep - 16) break;
        if (step_of(content.substr(keep + 12, length)) > step) break;
        keep += length + 16;
    }
    return keep;
}

// ---------------------------------------------------------------------------------------------------------

void EventFile::open(const std::string& run_dir, int64_t step) {
    path_ = run_dir + "/" + kName;
    std::string reason;
    file_ = open_to_append(path_, reason);
    size_t keep = 0;
    if (step >= 0 && file_) keep = bytes_up_to(read_file(path_, uint64_t(1) << 34), step);
    if (file_ && ftruncate(file_.fd, off_t(keep)) != 0) reason = system_reason();
    if (!reason.empty()) {
        warning("cannot write to {}: {}. Training goes on without the file.", path_, reason);
        file_ = Fd();
        return;
    }
    if (keep) return;
    std::string first = event(0);
    add_string(first, 3, "brain.Event:2");
    write(first);
}

void EventFile::write(const std::string& message) {
    if (!file_) return;
    const std::string reason = try_append(file_.fd, record_of(message));
    if (reason.empty() || failed_) return;
    failed_ = true;
    warning("cannot write to {}: {}. Training goes on; records are missing there.", path_, reason);
}

static void add_scalar(std::string& summary, const Scalar& s) {
    std::string value;
    add_string(value, 1, s.tag);
    add_float(value, 2, float(s.value));
    add_string(summary, 1, value);
}

// The least of the elements is only known by its bin.
static std::string histogram_proto(const Spread& s) {
    const auto limit = [](int bin) { return std::ldexp(1., bin + kLowestBin + 1); };
    int first = 0, last = kSpreadBins - 1;
    while (first < last && s.zeros + s.bins[first] == 0) first++;
    while (last > first && s.bins[last] == 0) last--;
    std::string proto, limits, buckets;
    for (int bin = first; bin <= last; bin++) {
        add_bytes(limits, bin == last ? std::max(limit(bin), s.largest) : limit(bin));
        add_bytes(buckets, s.bins[bin] + (bin == 0 ? s.zeros : 0));
    }
    add_double(proto, 1, first == 0 ? 0 : limit(first - 1));
    add_double(proto, 2, s.largest);
    add_double(proto, 3, s.count - s.nonfinite);
    add_double(proto, 4, s.sum);
    add_double(proto, 5, s.squares);
    add_string(proto, 6, limits);
    add_string(proto, 7, buckets);
    return proto;
}

static void add_histogram(std::string& summary, const Histogram& h) {
    std::string value;
    add_string(value, 1, h.tag);
    add_string(value, 5, histogram_proto(h.spread));
    add_string(summary, 1, value);
}

// A tensor of one string (DT_STRING is 7), for the plugin "text".
static void add_text(std::string& summary, std::string_view tag, std::string_view text) {
    std::string dim, shape, tensor, plugin, metadata, value;
    add_integer(dim, 1, 1);
    add_string(shape, 2, dim);
    add_integer(tensor, 1, 7);
    add_string(tensor, 2, shape);
    add_string(tensor, 8, text);
    add_string(plugin, 1, "text");
    add_string(metadata, 1, plugin);
    add_string(value, 1, tag);
    add_string(value, 8, tensor);
    add_string(value, 9, metadata);
    add_string(summary, 1, value);
}

void EventFile::add(const Logged& logged) {
    if (!file_) return;
    std::string summary, message = event(logged.step);
    for (const Figure& f : figures_of(logged.figures.empty() ? "" : logged.event)) {
        const double v = value_of(f.key, logged.figures);
        const bool known = f.unknown == Figure::Shown || std::isfinite(v);
        if (known && !f.tag.empty()) add_scalar(summary, {f.tag, v});
    }
    for (const Scalar& s : logged.scalars) add_scalar(summary, s);
    for (const Histogram& h : logged.histograms) add_histogram(summary, h);
    if (logged.event == "sample") add_text(summary, "sample/text", logged.text);
    if (summary.empty()) return;
    add_string(message, 5, summary);
    write(message);
}

// The row of sinks.cpp.
Sink event_file(const Config& cfg) {
    if (!cfg.log.tensorboard) return {};
    const auto file = std::make_shared<EventFile>();
    return {.begin = [file, folder = cfg.run.dir](int64_t step) { file->open(folder, step); },
            .add = [file](const Logged& logged) { file->add(logged); }};
}

}  // namespace report

// llm.c's model_*.bin: a header of 256 int32, then the tensors one after the other, those of blocks stacked
// over the layers, in FP32 (version 3) or bf16 (version 5).
#include <cstring>
#include <map>
#include <span>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/numbers/dtype.h"
#include "llmc/train/save/formats/kind.h"

inline namespace formats {

static constexpr int32_t kMagic = 20240326, kFp32 = 3, kBf16 = 5;
static constexpr size_t kHeader = 256;

// In the order of the file; rows with those of padding.
struct Stack { std::string name; uint64_t rows, cols, layers; };

static std::vector<Stack> stacks_of(const ModelConfig& m) {
    const auto C = uint64_t(m.channels), L = uint64_t(m.layers), Vp = uint64_t(m.vocab + 127) / 128 * 128;
    return {{"wte", Vp, C, 0}, {"wpe", uint64_t(m.context), C, 0},
            {"ln1w", C, 1, L}, {"ln1b", C, 1, L}, {"qkvw", 3 * C, C, L}, {"qkvb", 3 * C, 1, L},
            {"attprojw", C, C, L}, {"attprojb", C, 1, L}, {"ln2w", C, 1, L}, {"ln2b", C, 1, L},
            {"fcw", 4 * C, C, L}, {"fcb", 4 * C, 1, L}, {"fcprojw", C, 4 * C, L}, {"fcprojb", C, 1, L},
            {"lnfw", C, 1, 0}, {"lnfb", C, 1, 0}};
}

static void put(NewFile& file, std::span<const float> values, bool bf16) {
    if (!bf16) return file.write(values.data(), values.size_bytes());
    std::vector<bfloat16> rounded(values.size());
    for (size_t i = 0; i < values.size(); i++) rounded[i] = bfloat16(values[i]);
    file.write(rounded.data(), rounded.size() * sizeof(bfloat16));
}

static void write_llmc(const OwnModel& m, const std::string& path) {
    std::map<std::string, const Tensor*> tensors;
    for (const Tensor& t : m.layout.tensors) tensors[t.name] = &t;
    NewFile file(path);
    int32_t header[kHeader] = {kMagic, m.bf16 ? kBf16 : kFp32, m.shape.context, m.shape.vocab, m.shape.layers,
                               m.shape.heads, m.shape.channels, (m.shape.vocab + 127) / 128 * 128};
    file.write(header, sizeof header);
    for (const Stack& s : stacks_of(m.shape))
        for (uint64_t l = 0; l < std::max<uint64_t>(s.layers, 1); l++) {
            const std::string name = s.layers ? "h." + std::to_string(l) + "." + s.name : s.name;
            std::vector<float> values = m.read(*tensors.at(name));
            values.resize(size_t(s.rows * s.cols));         // padding rows are zero
            put(file, values, m.bf16);
        }
    file.commit();
}

static uint64_t bytes_of(const ModelConfig& m, size_t element) {
    uint64_t elements = 0;
    for (const Stack& s : stacks_of(m)) elements += s.rows * s.cols * std::max<uint64_t>(s.layers, 1);
    return kHeader * sizeof(int32_t) + elements * element;
}

static ModelConfig shape_of_header(const int32_t* header, const std::string& path) {
    CHECK_INPUT(header[0] == kMagic, "{}: the file starts with {}, expected llm.c's magic {}: not a model of "
                "llm.c", path, header[0], kMagic);
    CHECK_INPUT(header[1] == kFp32 || header[1] == kBf16, "{}: version {}, expected {} (FP32) or {} (bf16)",
                path, header[1], kFp32, kBf16);
    for (size_t i = 8; i < kHeader; i++)
        CHECK_INPUT(header[i] == 0, "{}: field {} of the header is {}, expected 0: the file says more than "
                    "this program reads", path, i, header[i]);
    ModelConfig m;
    m.context = header[2];
    m.vocab = header[3];
    m.layers = header[4];
    m.heads = header[5];
    m.channels = header[6];
    const bool sane = m.context > 0 && m.context <= 1 << 24 && m.vocab > 0 && m.vocab <= 1 << 24 &&
                      m.layers > 0 && m.layers <= 1024 && m.channels > 0 && m.channels <= 1 << 20 &&
                      m.heads > 0 && m.channels % m.heads == 0 && header[7] == (m.vocab + 127) / 128 * 128;
    CHECK_INPUT(sane, "{}: the header says context {}, vocabulary {} padded to {}, {} layers, {} heads, {} "
                "channels: no GPT-2", path, m.context, m.vocab, header[7], m.layers, m.heads,
                m.channels);
    return m;
}

// Byte of the file where a tensor begins.
static uint64_t start_of(const Tensor& t, const ModelConfig& shape, size_t element) {
    uint64_t at = kHeader * sizeof(int32_t);
    for (const Stack& s : stacks_of(shape)) {
        const uint64_t bytes = s.rows * s.cols * element;
        if (s.name == t.param.name) return at + bytes * uint64_t(std::max(t.layer, 0));
        at += bytes * std::max<uint64_t>(s.layers, 1);
    }
    fatal(kExitInternal, __FILE__, __LINE__, "llm.c has no tensor {}", t.param.name);
}

static ForeignModel open_llmc(const std::string& path, Opens) {
    auto fd = std::make_shared<Fd>(open_read(path));
    const uint64_t size = size_of_file(fd->fd, path);
    int32_t header[kHeader];
    CHECK_INPUT(size >= sizeof header, "{}: {} bytes, too short for the header of a model of llm.c",
                path, size);
    pread_all(fd->fd, header, sizeof header, 0, path);
    ForeignModel m;
    m.shape = shape_of_header(header, path);
    const bool bf16 = header[1] == kBf16;
    const size_t element = bf16 ? sizeof(bfloat16) : sizeof(float);
    CHECK_INPUT(size == bytes_of(m.shape, element), "{}: {} bytes, expected {} for its shape: it is cut "
                "off, or not what its header says", path, size,
                bytes_of(m.shape, element));
    m.read = [fd, path, bf16, element, shape = m.shape](const Tensor& t, size_t row, size_t rows,
                                                        float* out) {
        const size_t cols = size_t(t.param.whole_cols), count = rows * cols;
        const uint64_t at = start_of(t, shape, element) + row * cols * element;
        std::vector<bfloat16> rounded(bf16 ? count : 0);
        pread_all(fd->fd, bf16 ? static_cast<void*>(rounded.data()) : out, count * element, at, path);
        std::copy(rounded.begin(), rounded.end(), out);
        check_finite(std::span<const float>(out, count), path, t.name);
    };
    return m;
}

static std::vector<const ForeignKind*> kinds_of_llmc() {
    static const ForeignKind gpt2 = {
        .name = "llm.c's GPT-2", .id = "gpt2", .blocks = "", .tensors = {},
        .keys = {{"layers", "layers"}, {"heads", "heads"}, {"channels", "channels"}, {"context", "context"},
                 {"vocab", "vocab"}},
        .others = {}, .fixed = {}};
    return {&gpt2};
}

static std::vector<std::string> files_of_llmc(const std::string& path) { return {path}; }
// A file does not say who wrote it: one of the same sizes counts.
static bool is_own_llmc(const std::string& path, const ModelConfig& m) {
    const ModelConfig there = open_llmc(path, Opens::Shape).shape;
    return there.layers == m.layers && there.heads == m.heads && there.channels == m.channels &&
           there.context == m.context && there.vocab == m.vocab;
}
static std::string meant_as_llmc(const std::string& path) {
    return path.ends_with(".bin") ? "llmc:" + path : "";
}

extern const Format kLlmc = {.prefix = "llmc", .place = "FILE",
                             .meaning = "llm.c, version 3; with run.precision=bf16 version 5",
                             .writes_bf16 = true, .open = open_llmc, .write = write_llmc, .round = nullptr,
                             .kinds = kinds_of_llmc, .files = files_of_llmc,
                             .is_own = is_own_llmc, .head = nullptr, .other_head = nullptr,
                             .meant = meant_as_llmc};

}  // namespace formats

// GGUF files, version 3: typed keys and values, then named tensors
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
//     "GGUF"  u32 version  u64 tensors  u64 keys
//     keys    string, u32 type, value               strings: u64 length, bytes
//     infos   string, u32 dimensions, u64 each (the fastest first), u32 type, u64 offset into the data
//     data    starts at a multiple of 32, and so does each tensor
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/io/files/gguf_blocks.h"

inline namespace files {

// Readers give integers of other sizes as 32 bits where these hold them, else as double.
using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                               std::vector<int32_t>, double>;
struct GgufPair { std::string key; GgufValue value; };

struct GgufTensor {
    std::string name;
    std::vector<uint64_t> shape;     // slowest dimension first, as everywhere in this project
    uint64_t offset = 0;             // bytes, from the start of the data
    GgufType type = GgufType::F32;
};

// Streams a file of tensors, in their order.
struct GgufWriter {
    NewFile file;
    std::vector<GgufType> types = {};
    uint64_t written = 0, left;

    GgufWriter(const std::string& path, const std::vector<GgufPair>& pairs, std::vector<GgufTensor> tensors);
    void write(const float* data, size_t count);     // a whole tensor, encoded as its type
    void close();
};

// An open file with a verified header: keys and names unique, every tensor of a known type, aligned, inside
// the file and in whole blocks. Lists of other elements than texts and 32-bit integers are left out. Other
// files end in CHECK_INPUT, before memory is allocated for missing data.
struct GgufFile {
    std::string path;
    Fd fd;
    std::map<std::string, GgufValue> pairs;
    std::map<std::string, GgufTensor> tensors;
    uint64_t data_start;

    explicit GgufFile(const std::string& path);
    const GgufTensor* find(const std::string& name) const;      // nullptr: not there
    // `count` elements from element `first` on, as FP32. REQUIRES: whole rows.
    void read(const GgufTensor& t, uint64_t first, size_t count, float* out) const;
};

}  // namespace files

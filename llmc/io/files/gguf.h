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

#include "llmc/base/files.h"

using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                               std::vector<int32_t>>;
struct GgufPair { std::string key; GgufValue value; };

struct GgufTensor {
    std::string name;
    std::vector<uint64_t> shape;     // slowest dimension first, as everywhere in this project
    uint64_t offset = 0;             // bytes, from the start of the data
};

// Streams a file of FP32 tensors, in their order.
struct GgufWriter {
    NewFile file;
    uint64_t written = 0, left;

    GgufWriter(const std::string& path, const std::vector<GgufPair>& pairs, std::vector<GgufTensor> tensors);
    void write(const float* data, size_t count);     // a whole tensor
    void close();
};

// Reads the writer's files: FP32 tensors, and the types of GgufValue. Other files end in CHECK_INPUT.
struct GgufFile {
    std::string path;
    Fd fd;
    std::map<std::string, GgufValue> pairs;
    std::vector<GgufTensor> tensors;
    uint64_t data_start;

    explicit GgufFile(const std::string& path);
    uint32_t number(const std::string& key) const;
    // `count` elements, from element `first` on, of a tensor of this shape.
    void read(const std::string& name, const std::vector<uint64_t>& shape, uint64_t first, size_t count,
              float* out) const;
};

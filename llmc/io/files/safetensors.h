// Safetensors files: named tensors behind a header of JSON (https://github.com/huggingface/safetensors).
//
//     u64      bytes of the header, little endian
//     header   {"__metadata__": {"key": "value"},
//               "wte": {"dtype": "F32", "shape": [V, C], "data_offsets": [begin, end]}, ...}
//     data     the tensors, row-major, little endian, in a row without gaps
//
// The writer pads the header with spaces: data starts at a multiple of 8.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"

inline namespace files {

struct TensorInfo {
    std::string name, dtype;            // dtype: "F32", "BF16", "I64", ...
    std::vector<int64_t> shape;         // {}: a scalar
    uint64_t begin = 0, end = 0;        // bytes, from the start of the data

    uint64_t bytes() const { return end - begin; }
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// Bytes of an element; 0: no such dtype.
size_t safetensors_dtype_bytes(std::string_view dtype);

// The beginning of a file, the length of the header included; fills in begin and end of the tensors.
std::string safetensors_head(std::vector<TensorInfo>& tensors, const SafetensorsMetadata& metadata = {});

// Streams a file: the header first, then the data of the tensors in their order, in spans of any size.
// The file appears under its name when close() has synced it.
struct SafetensorsWriter {
    NewFile file;
    uint64_t left;                      // bytes of data still to come

    SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors,
                      const SafetensorsMetadata& metadata = {});
    void write(const void* data, size_t bytes);
    void close();
};

// An open file with a verified header: names unique, dtypes known, shapes and offsets consistent, the data
// covered exactly. Errors end in CHECK_INPUT, before memory is allocated for missing data.
struct SafetensorsFile {
    std::string path;
    Fd fd;
    std::vector<TensorInfo> tensors;    // in the order of their data
    SafetensorsMetadata metadata;
    uint64_t data_start;                // byte of the file

    explicit SafetensorsFile(const std::string& path);

    const TensorInfo* find(std::string_view name) const;    // null: not there
    // The tensor, which has to have this dtype and shape.
    const TensorInfo& require(std::string_view name, std::string_view dtype,
                              const std::vector<int64_t>& shape) const;
    // `bytes` of the tensor from `offset` on. Reads by position: safe from several threads.
    void read(const TensorInfo& t, void* out, uint64_t offset, size_t bytes) const;
    void read(const TensorInfo& t, void* out) const { read(t, out, 0, size_t(t.bytes())); }
};

}  // namespace files

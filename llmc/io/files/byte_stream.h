// A file or standard input as a stream of bytes, unpacked on the way where its name ends in .gz or .zst.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "llmc/base/files.h"

struct Unpacker;        // zlib's or zstd's state

struct ByteStream {
    std::string path;               // "-": standard input
    Fd file;
    int fd;
    uint64_t consumed = 0;          // bytes read from the file, packed or not
    std::unique_ptr<Unpacker, void (*)(Unpacker*)> unpacker;

    explicit ByteStream(const std::string& path);
    ~ByteStream();

    bool seekable() const { return path != "-" && !unpacker && is_regular_file(fd); }
    size_t read(char* out, size_t bytes);       // fewer than `bytes` only at the end
};

// A file or standard input as a stream of bytes, unpacked on the way where its name ends in .gz or .zst. A
// zstd frame takes memory for its window, up to 2 GB (zstd --long=31).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "llmc/base/disk/files.h"

inline namespace files {

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
    // The first bytes, up to `bytes`; read() returns them again. Before the first read().
    std::string_view peek(size_t bytes);
    void skip(size_t bytes) { head.erase(0, bytes); }   // of the bytes of peek()

   private:
    std::string head;               // of peek()
    size_t read_on(char* out, size_t bytes);
};

}  // namespace files

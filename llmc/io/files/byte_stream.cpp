#include "llmc/io/files/byte_stream.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "llmc/base/check.h"

inline namespace files {

struct Unpacker {
    z_stream gzip = {};
    ZSTD_DStream* zstd = nullptr;       // null: gzip
    std::vector<char> packed = std::vector<char>(1 << 17);
    size_t begin = 0, end = 0;          // of the packed bytes left
    bool inside = false;                // of a gzip member or a zstd frame
    bool after = false;                 // a gzip member: zeros may follow, as tapes had them
};

static void free_unpacker(Unpacker* u) {
    if (!u) return;
    if (u->zstd) ZSTD_freeDStream(u->zstd);
    else inflateEnd(&u->gzip);
    delete u;
}

ByteStream::ByteStream(const std::string& path) : path(path), unpacker(nullptr, free_unpacker) {
    if (path != "-") file = open_stream(path);
    fd = path == "-" ? 0 : file.fd;
    const bool gzip = path.ends_with(".gz"), zstd = path.ends_with(".zst");
    if (!gzip && !zstd) return;
    unpacker.reset(new Unpacker);
    if (zstd) {
        unpacker->zstd = ZSTD_createDStream();
        ZSTD_DCtx_setParameter(unpacker->zstd, ZSTD_d_windowLogMax,
                               ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
    }
    else CHECK(inflateInit2(&unpacker->gzip, 15 + 16) == Z_OK, "zlib");
}

ByteStream::~ByteStream() = default;

// Ends the program: the frame is damaged, or needs what this program does not have.
static void refuse_zstd(size_t error, const std::string& path) {
    const char* why = ZSTD_getErrorName(error);
    switch (ZSTD_getErrorCode(error)) {
        case ZSTD_error_frameParameter_windowTooLarge:
        case ZSTD_error_memory_allocation:
            CHECK_INPUT(false,
                        "{}: {}: the window of this zstd file is too long for this machine;\n"
                        "       pack it again: zstd -dc --long=31 --memory=4GB OLD | zstd --long=27 -o NEW",
                        path, why);
            break;
        case ZSTD_error_dictionary_wrong:
            CHECK_INPUT(false, "{}: {}: the file was packed with a dictionary;\n"
                        "       pack it again: zstd -dc -D DICTIONARY OLD | zstd -o NEW", path, why);
            break;
        default: CHECK_INPUT(false, "{}: damaged: {}", path, why);
    }
}

// A step of unpacking: at least a byte in or out.
static size_t unpack(Unpacker& u, char* out, size_t bytes, const std::string& path) {
    if (u.zstd) {
        ZSTD_inBuffer in = {u.packed.data() + u.begin, u.end - u.begin, 0};
        ZSTD_outBuffer to = {out, bytes, 0};
        const size_t hint = ZSTD_decompressStream(u.zstd, &to, &in);
        if (ZSTD_isError(hint)) refuse_zstd(hint, path);
        u.begin += in.pos;
        u.inside = hint != 0;
        return to.pos;
    }
    while (u.after && !u.inside && u.begin < u.end && !u.packed[u.begin]) u.begin++;
    if (u.begin == u.end && !u.inside) return 0;
    const unsigned room = unsigned(std::min<size_t>(bytes, 1 << 30));
    if (!u.inside) inflateReset(&u.gzip);       // a file may have several members
    u.gzip.next_in = reinterpret_cast<Bytef*>(u.packed.data() + u.begin);
    u.gzip.avail_in = unsigned(u.end - u.begin);
    u.gzip.next_out = reinterpret_cast<Bytef*>(out);
    u.gzip.avail_out = room;
    const int rc = inflate(&u.gzip, Z_NO_FLUSH);
    CHECK_INPUT(rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR, "{}: damaged: {}", path,
                u.gzip.msg ? u.gzip.msg : "not gzip");
    u.begin = u.end - u.gzip.avail_in;
    u.inside = rc != Z_STREAM_END;
    u.after = !u.inside;
    return room - u.gzip.avail_out;
}

std::string_view ByteStream::peek(size_t bytes) {
    head.resize(bytes);
    head.resize(read_on(head.data(), bytes));
    return head;
}

size_t ByteStream::read(char* out, size_t bytes) {
    const size_t first = std::min(bytes, head.size());
    if (first == 0) return read_on(out, bytes);
    memcpy(out, head.data(), first);
    head.erase(0, first);
    return first + read_on(out + first, bytes - first);
}

size_t ByteStream::read_on(char* out, size_t bytes) {
    if (!unpacker) {
        const size_t n = read_up_to(fd, out, bytes, path);
        consumed += n;
        return n;
    }
    Unpacker& u = *unpacker;
    size_t done = 0;
    while (done < bytes) {
        // Unpacked bytes first: zstd may hold some after the end of its input.
        if (u.begin < u.end || u.inside) {
            const size_t before = u.begin, n = unpack(u, out + done, bytes - done, path);
            done += n;
            if (n || u.begin != before) continue;
        }
        u.begin = 0;
        u.end = read_up_to(fd, u.packed.data(), u.packed.size(), path);
        consumed += u.end;
        if (u.end == 0) {
            CHECK_INPUT(consumed > 0, "{}: is empty, where a packed file has a header", path);
            CHECK_INPUT(!u.inside, "{}: truncated: it ends inside a compressed part", path);
            break;
        }
    }
    return done;
}

}  // namespace files

#include "llmc/io/files/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <vector>

#include "llmc/base/check.h"

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
    if (zstd) unpacker->zstd = ZSTD_createDStream();
    else CHECK(inflateInit2(&unpacker->gzip, 15 + 16) == Z_OK, "zlib");
}

ByteStream::~ByteStream() = default;

// A step of unpacking: at least a byte in or out.
static size_t unpack(Unpacker& u, char* out, size_t bytes, const std::string& path) {
    if (u.zstd) {
        ZSTD_inBuffer in = {u.packed.data() + u.begin, u.end - u.begin, 0};
        ZSTD_outBuffer to = {out, bytes, 0};
        const size_t hint = ZSTD_decompressStream(u.zstd, &to, &in);
        CHECK_INPUT(!ZSTD_isError(hint), "{}: damaged: {}", path, ZSTD_getErrorName(hint));
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

size_t ByteStream::read(char* out, size_t bytes) {
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

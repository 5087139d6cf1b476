// manifest.json of a checkpoint: the saved state, the place of each piece of each tensor, and hashes.
//
// A tensor has up to four arrays: "weights" (unless a copy of the masters), "master", "m", "v". Each array is
// cut into rectangles in the coordinates of the whole tensor, without padding rows: any mesh can read the
// checkpoint of any other mesh.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

inline namespace files {

inline constexpr const char* kManifest = "manifest.json";
inline constexpr uint64_t kHashChunk = 1 << 20;     // bytes of a file per hash

struct SavedPiece {
    std::string tensor, array, dtype;            // "h.3.qkvw", "master", "F32"
    std::vector<int64_t> shape;                 // of the whole tensor
    std::vector<int64_t> start, extent;         // of the piece, a number per dimension
    std::string file;
    uint64_t at = 0;                            // its first byte in the file; row-major from there on

    uint64_t elements() const;
    uint64_t bytes() const;
};

struct SavedFile {
    std::string name;
    uint64_t bytes = 0;
    std::vector<uint64_t> hashes;               // XXH3 of each kHashChunk bytes
};

struct Manifest {
    int version = 1;
    std::string run;                            // id of the run
    int64_t step = 0;
    std::string config, mesh, state;            // JSON: resolved settings; the ranks that saved; other
                                                // state of the run (loader, statistics)
    std::vector<SavedFile> files;               // files of the folder, without the manifest
    std::vector<SavedPiece> pieces;
};

// The text ends with its own hash, which reveals a flipped bit anywhere in the text. with_hash(): completes
// the text of an object, which ends in a comma, with hash and brace.
std::string to_json(const Manifest& m);
std::string with_hash(const std::string& open_text);

// Empty for an invalid manifest, with the reason in *error: not JSON, a bad hash, a piece outside of its
// tensor or its file, a tensor not covered exactly by its pieces. Memory is bounded by a few times the text.
std::optional<Manifest> parse_manifest(std::string_view text, std::string* error);
// The manifest without its files and pieces (hundreds of MB in large jobs); the hash covers the whole text.
std::optional<Manifest> parse_manifest_head(std::string_view text, std::string* error);
inline constexpr uint64_t kMostManifest = uint64_t(1) << 34;        // bytes of a text

// The manifest without its files, as bytes: rank 0 verifies a checkpoint and sends these to all other ranks.
std::string packed(const Manifest& m);
Manifest unpacked(std::string_view bytes);      // REQUIRES: of packed(), by the same program

// The entries of a writing rank for the manifest, passed to the writer of the manifest. parse_note(): empty
// for an invalid text.
struct ShareNote { SavedFile file; std::vector<SavedPiece> pieces; };
std::string to_json(const ShareNote& note);
std::optional<ShareNote> parse_note(std::string_view text);

// Hashes of data, added in spans of any size.
struct ChunkHasher {
    ChunkHasher();
    ChunkHasher(const ChunkHasher&) = delete;
    ~ChunkHasher();
    void add(const void* data, size_t bytes);
    std::vector<uint64_t> finish();             // without data: the hash of an empty chunk
private:
    void* state;
    uint64_t in_chunk = 0;
    std::vector<uint64_t> done;
};

}  // namespace files

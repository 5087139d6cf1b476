#include "llmc/io/files/manifest.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "llmc/base/check.h"
#include "llmc/base/json/json.h"
#include "llmc/base/json/json_value.h"
#include "llmc/io/files/safetensors.h"

inline namespace files {

uint64_t SavedPiece::elements() const {
    uint64_t n = 1;
    for (const int64_t e : extent) n *= uint64_t(e);
    return n;
}
uint64_t SavedPiece::bytes() const { return elements() * safetensors_dtype_bytes(dtype); }

// ---------------------------------------------------------------------------------------------------------
// hashes

static XXH3_state_t* xxh(void* state) { return static_cast<XXH3_state_t*>(state); }

ChunkHasher::ChunkHasher() : state(XXH3_createState()) { XXH3_64bits_reset(xxh(state)); }
ChunkHasher::~ChunkHasher() { XXH3_freeState(xxh(state)); }

void ChunkHasher::add(const void* data, size_t bytes) {
    for (const char* at = static_cast<const char*>(data); bytes > 0;) {
        if (in_chunk == kHashChunk) {
            done.push_back(XXH3_64bits_digest(xxh(state)));
            XXH3_64bits_reset(xxh(state));
            in_chunk = 0;
        }
        const size_t n = size_t(std::min<uint64_t>(bytes, kHashChunk - in_chunk));
        XXH3_64bits_update(xxh(state), at, n);
        at += n;
        bytes -= n;
        in_chunk += n;
    }
}

std::vector<uint64_t> ChunkHasher::finish() {
    done.push_back(XXH3_64bits_digest(xxh(state)));
    return std::move(done);
}

static std::string hex(uint64_t v) { return fmt::format("{:016x}", v); }

// ---------------------------------------------------------------------------------------------------------
// writing

static std::string json_of(const SavedFile& f) {
    const auto quoted = [](uint64_t hash) { return json_string(hex(hash)); };
    return JsonObject().add("name", f.name).add("bytes", f.bytes).raw("xxh3", json_list(f.hashes, quoted))
        .str();
}

static std::string json_of(const SavedPiece& p) {
    return JsonObject().add("tensor", p.tensor).add("part", p.array).add("dtype", p.dtype)
        .add("shape", p.shape).add("start", p.start).add("extent", p.extent).add("file", p.file)
        .add("at", p.at).str();
}

template <class T> static std::string lines_of(const std::vector<T>& list) {
    std::string text = json_list(list, [](const T& x) { return "\n  " + json_of(x); });
    if (!list.empty()) text.insert(text.size() - 1, "\n");
    return text;
}

static constexpr const char *kComma = ",\n", *kFiles = ",\n\"files\":", *kClosing = "\"xxh3\":\"";

std::string with_hash(const std::string& text) {
    return text + kClosing + hex(XXH3_64bits(text.data(), text.size())) + "\"}\n";
}

std::string to_json(const Manifest& m) {
    JsonObject text(kComma);
    text.add("version", m.version).add("run", m.run).add("step", m.step).raw("config", m.config);
    text.raw("mesh", m.mesh).raw("state", m.state);
    text.raw("files", lines_of(m.files)).raw("tensors", lines_of(m.pieces));
    return with_hash(text.text + kComma);
}

std::string to_json(const ShareNote& note) {
    JsonObject text(kComma);
    return text.raw("file", json_of(note.file)).raw("tensors", lines_of(note.pieces)).str() + "\n";
}

// ---------------------------------------------------------------------------------------------------------
// reading

namespace {

// Each function throws std::runtime_error, or its subclass JsonError, with the error.

constexpr int kDeepest = 16;        // beyond every manifest

// At most 2^50: sums of two sizes do not overflow.
int64_t size_of(const Json& v) {
    if (!v.is_natural() || v.natural() > uint64_t(1) << 50)
        throw std::runtime_error("a size that is no whole number, or out of range");
    return v.integer();
}

std::vector<int64_t> list_of(const Json& v) {
    std::vector<int64_t> list;
    for (const Json& x : v.list()) list.push_back(size_of(x));
    return list;
}

uint64_t hash_of(const Json& v) {
    const std::string text = v.string();
    if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != text.npos)
        throw std::runtime_error("a hash that is none");
    return std::stoull(text, nullptr, 16);
}

SavedFile file_of(const Json& v) {
    SavedFile f;
    f.name = v.at("name").string();
    f.bytes = uint64_t(size_of(v.at("bytes")));
    for (const Json& h : v.at("xxh3").list()) f.hashes.push_back(hash_of(h));
    if (f.name.empty() || f.name.find('/') != f.name.npos || f.name == ".." || f.name == ".")
        throw std::runtime_error("a file name that leads out of the folder");
    if (f.hashes.size() != std::max<uint64_t>(1, (f.bytes + kHashChunk - 1) / kHashChunk))
        throw std::runtime_error("'" + f.name + "': the hashes do not fit its size");
    return f;
}

SavedPiece piece_of(const Json& v) {
    SavedPiece p{.tensor = v.at("tensor").string(), .array = v.at("part").string(),
                 .dtype = v.at("dtype").string(), .shape = list_of(v.at("shape")),
                 .start = list_of(v.at("start")), .extent = list_of(v.at("extent")),
                 .file = v.at("file").string(), .at = uint64_t(size_of(v.at("at")))};
    if (p.dtype != "F32" && p.dtype != "F64" && p.dtype != "BF16")
        throw std::runtime_error("'" + p.tensor + "': a type other than F32, F64 and BF16");
    if (p.shape.empty() || p.shape.size() > 2)
        throw std::runtime_error("'" + p.tensor + "': neither one nor two dimensions");
    uint64_t bytes = safetensors_dtype_bytes(p.dtype);
    bool sane = p.start.size() == p.shape.size() && p.extent.size() == p.shape.size();
    for (size_t i = 0; sane && i < p.shape.size(); i++)
        sane = p.extent[i] > 0 && p.start[i] + p.extent[i] <= p.shape[i] &&
               !__builtin_mul_overflow(bytes, uint64_t(p.shape[i]), &bytes);
    if (!sane) throw std::runtime_error("'" + p.tensor + "': a piece outside of its tensor");
    return p;
}

// Whether two pieces of a tensor overlap. Sweeps from the first row to the last, with the columns of the
// pieces that reach the row: n log n.
bool any_overlap(std::vector<const SavedPiece*> pieces) {
    const auto by_row = [](const SavedPiece* a, const SavedPiece* b) { return a->start[0] < b->start[0]; };
    std::sort(pieces.begin(), pieces.end(), by_row);
    std::map<int64_t, int64_t> there;          // columns: the first, and the end (last + 1)
    std::multimap<int64_t, int64_t> ending;    // end of the rows (last + 1); first column
    for (const SavedPiece* p : pieces) {
        for (; !ending.empty() && ending.begin()->first <= p->start[0]; ending.erase(ending.begin()))
            there.erase(ending.begin()->second);
        const int64_t row_end = p->start[0] + p->extent[0];
        const int64_t begin = p->start.size() > 1 ? p->start[1] : 0;
        const int64_t end = p->start.size() > 1 ? begin + p->extent[1] : 1;
        const auto next = there.lower_bound(begin);
        if (next != there.end() && next->first < end) return true;
        if (next != there.begin() && std::prev(next)->second > begin) return true;
        there[begin] = end;
        ending.emplace(row_end, begin);
    }
    return false;
}

// Every piece lies in its file, where no other does.
void check_places(const Manifest& m) {
    std::map<std::string, uint64_t> size;
    for (const SavedFile& f : m.files)
        if (!size.emplace(f.name, f.bytes).second)
            throw std::runtime_error("'" + f.name + "' is there twice");
    std::map<std::string, std::vector<const SavedPiece*>> in_file;
    for (const SavedPiece& p : m.pieces) {
        const auto file = size.find(p.file);
        if (file == size.end() || p.at > file->second || p.bytes() > file->second - p.at)
            throw std::runtime_error("'" + p.tensor + "': a piece outside of its file");
        in_file[p.file].push_back(&p);
    }
    for (auto& [name, pieces] : in_file) {
        const auto by_place = [](const SavedPiece* a, const SavedPiece* b) { return a->at < b->at; };
        std::sort(pieces.begin(), pieces.end(), by_place);
        for (size_t i = 1; i < pieces.size(); i++)
            if (pieces[i - 1]->at + pieces[i - 1]->bytes() > pieces[i]->at)
                throw std::runtime_error("'" + pieces[i]->tensor + "': it shares bytes of its file");
    }
}

// The pieces of each array of each tensor tile it.
void check_pieces(const Manifest& m) {
    std::map<std::pair<std::string, std::string>, std::vector<const SavedPiece*>> arrays;
    for (const SavedPiece& p : m.pieces) arrays[{p.tensor, p.array}].push_back(&p);
    for (const auto& [name, pieces] : arrays) {
        const SavedPiece& first = *pieces[0];
        uint64_t whole = 1, covered = 0;
        for (const int64_t n : first.shape) whole *= uint64_t(n);
        for (const SavedPiece* p : pieces) {
            if (p->shape != first.shape || p->dtype != first.dtype)
                throw std::runtime_error("'" + name.first + "': pieces of different tensors");
            covered += p->elements();
        }
        if (any_overlap(pieces)) throw std::runtime_error("'" + name.first + "': pieces that overlap");
        if (covered != whole) throw std::runtime_error("'" + name.first + "': not all of it is there");
    }
}

void check_hash(std::string_view text) {
    const size_t closing = text.rfind(kClosing);
    const uint64_t hash = closing == text.npos ? 0 : XXH3_64bits(text.data(), closing);
    if (closing == text.npos || text.substr(closing + strlen(kClosing)) != hex(hash) + "\"}\n")
        throw std::runtime_error("it is cut off or damaged: its hash is not that of its text");
}

Manifest head_of(const Json& v) {
    Manifest m{.version = int(size_of(v.at("version"))), .run = v.at("run").string(),
               .step = size_of(v.at("step")), .config = to_text(v.at("config")),
               .mesh = to_text(v.at("mesh")), .state = to_text(v.at("state")), .files = {}, .pieces = {}};
    if (m.version != 1) throw std::runtime_error("version " + std::to_string(m.version) + ", expected 1");
    return m;
}

Manifest whole_of(const Json& v) {
    Manifest m = head_of(v);
    for (const Json& f : v.at("files").list()) m.files.push_back(file_of(f));
    for (const Json& p : v.at("tensors").list()) m.pieces.push_back(piece_of(p));
    check_places(m);
    check_pieces(m);
    return m;
}

// The result of f(); empty with the error that f throws.
template <class F> std::optional<Manifest> parsed(F&& f, std::string* error) {
    try {
        return f();
    } catch (const std::exception& e) {
        *error = e.what();
        return std::nullopt;
    }
}

}  // namespace

std::optional<Manifest> parse_manifest(std::string_view text, std::string* error) {
    return parsed([&] {
        check_hash(text);
        return whole_of(parse_json(text, kDeepest));
    }, error);
}

// Strings of JSON have no line breaks: the first match begins the files.
std::optional<Manifest> parse_manifest_head(std::string_view text, std::string* error) {
    return parsed([&] {
        check_hash(text);
        const size_t end = text.find(kFiles);
        if (end == text.npos) throw std::runtime_error("it has no files");
        return head_of(parse_json(std::string(text.substr(0, end)) + "}", kDeepest));
    }, error);
}

std::optional<ShareNote> parse_note(std::string_view text) {
    try {
        const Json v = parse_json(text, kDeepest);
        ShareNote note{.file = file_of(v.at("file")), .pieces = {}};
        for (const Json& p : v.at("tensors").list()) note.pieces.push_back(piece_of(p));
        return note;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

}  // namespace files

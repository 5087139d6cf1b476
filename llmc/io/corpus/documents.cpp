#include "llmc/io/corpus/documents.h"

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/io/corpus/json_line.h"
#include "llmc/io/unicode/pretokenize.h"
#include "llmc/io/unicode/safe_cut.h"

char* Chunk::grow(size_t bytes) {
    if (text.size() < size + bytes + kTextPadding) text.resize((size + bytes) * 5 / 4 + kTextPadding);
    return text.data() + size;
}

void Chunk::append(std::string_view bytes) {
    memcpy(grow(bytes.size()), bytes.data(), bytes.size());
    size += bytes.size();
}

static uint64_t target_of(uint64_t size, double fraction) { return size - uint64_t(double(size) * fraction); }

// Returns the line start nearer to the target, of the last at or before the target and the first after.
// Excludes the ends of the document.
static uint64_t nearer(uint64_t before, uint64_t after, uint64_t target, uint64_t size) {
    const bool left = before > 0 && before < size, right = after > 0 && after < size;
    if (left && (!right || target - before <= after - target)) return before;
    return right ? after : size;
}

size_t validation_cut(std::string_view text, double fraction) {
    if (fraction <= 0 || text.empty()) return text.size();
    const size_t target = target_of(text.size(), fraction);
    const size_t before = target ? text.rfind('\n', target - 1) + 1 : 0,
                 after = text.find('\n', target) + 1;  // npos + 1 = 0
    return nearer(before, after, target, text.size());
}

uint64_t validation_cut(int fd, uint64_t size, double fraction, const std::string& path) {
    if (fraction <= 0 || size == 0) return size;
    const uint64_t target = target_of(size, fraction);
    uint64_t before = 0, after = 0;
    std::string block;
    for (uint64_t end = target; end > 0 && !before;) {
        const uint64_t begin = end - std::min<uint64_t>(end, 1 << 16);
        block.resize(end - begin);
        pread_all(fd, block.data(), block.size(), begin, path);
        if (const size_t at = block.rfind('\n'); at != block.npos) before = begin + at + 1;
        end = begin;
    }
    for (uint64_t begin = target; begin < size && !after;) {
        block.resize(std::min<uint64_t>(size - begin, 1 << 16));
        pread_all(fd, block.data(), block.size(), begin, path);
        if (const size_t at = block.find('\n'); at != block.npos) after = begin + at + 1;
        begin += block.size();
    }
    return nearer(before, after, target, size);
}

// The name without .gz or .zst.
static std::string_view unpacked_name(std::string_view name) {
    for (const std::string_view end : {".gz", ".zst"})
        if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
    return name;
}

DocumentReader::DocumentReader(const std::vector<std::string>& inputs, double validation,
                               std::string spool_directory, bool as_text)
    : validation(validation), spool_directory(std::move(spool_directory)), as_text(as_text) {
    bool known = true;
    for (const std::string& input : inputs) {
        const auto found = input == "-" ? std::vector<std::string>{"-"} : glob_files(input);
        CHECK_INPUT(!found.empty(), "{}: no such file, and no file of such a name", input);
        for (const std::string& path : found) {
            const std::string_view name = unpacked_name(path);
            CHECK_INPUT(as_text || path == "-" || name.ends_with(".txt") || name.ends_with(".jsonl"),
                        "{}: expected .txt, .jsonl, either with .gz or .zst, or - for standard input;\n"
                        "       --as=text reads it as .txt", path);
            if (path == "-") { known = false; continue; }
            const bool file = is_regular_file(path);
            known = known && file;
            if (file) total_bytes += size_of_file(open_read(path).fd, path);    // or the file is unreadable
        }
        files.insert(files.end(), found.begin(), found.end());
    }
    CHECK_INPUT(!files.empty(), "no input: expected .txt or .jsonl files, or - for standard input");
    if (!known) total_bytes = 0;
}

DocumentReader DocumentReader::whole_file(const std::string& input) {
    DocumentReader reader;
    reader.files = input == "-" ? std::vector<std::string>{"-"} : glob_files(input);
    CHECK_INPUT(!reader.files.empty(), "{}: no such file, and no file of such a name", input);
    CHECK_INPUT(reader.files.size() == 1, "{}: expected one file, found {} files of such a name",
                input, reader.files.size());
    reader.as_text = true;
    return reader;
}

uint64_t DocumentReader::position() const {
    if (!stream) return done_bytes;
    if (spooling) return done_bytes + stream->consumed / 2;
    if (spooled_bytes == 0) return done_bytes + stream->consumed;
    const double share = (1 + double(stream->consumed) / double(spooled_bytes)) / 2;
    return done_bytes + uint64_t(double(packed_bytes) * share);
}

bool DocumentReader::open_next() {
    if (next_file == files.size()) return false;
    stream = std::make_unique<ByteStream>(files[next_file++]);
    json_lines = !as_text && unpacked_name(stream->path).ends_with(".jsonl");
    line = 0;
    at_start = true;
    in_validation = false;
    text_left = ~uint64_t(0);
    if (json_lines) return true;
    documents++;
    if (validation > 0) {
        if (!stream->seekable()) spool();
        const uint64_t size = size_of_file(stream->fd, stream->path);
        const uint64_t cut = validation_cut(stream->fd, size, validation, stream->path);
        if (cut < size) text_left = cut;
    }
    return true;
}

void DocumentReader::close_stream() {
    done_bytes += spooled_bytes ? packed_bytes : stream->consumed;
    spooled_bytes = 0;
    stream.reset();
}

// Replaces the stream by a temporary file of the stream's content.
void DocumentReader::spool() {
    auto copy = std::make_unique<ByteStream>("-");
    copy->path = stream->path;
    copy->file = temporary_file(spool_directory);
    copy->fd = copy->file.fd;
    std::vector<char> block(1 << 20);
    spooling = true;
    for (spooled_bytes = 0;;) {
        const size_t n = stream->read(block.data(), block.size());
        if (n == 0) break;
        pwrite_all(copy->fd, block.data(), n, spooled_bytes, spool_directory);
        spooled_bytes += n;
        if (waiting) waiting();
    }
    spooling = false;
    packed_bytes = stream->consumed;
    stream = std::move(copy);
}

// Adds a span of a text document.
void DocumentReader::add_text(Chunk& chunk) {
    const size_t begin = chunk.size;
    chunk.append(rest);
    text_left -= rest.size();
    rest.clear();
    bool end = false;
    size_t cut = 0, seen = 1;           // no cut before it: each byte is searched once
    while (!end && cut == 0) {
        const size_t want = size_t(std::min<uint64_t>(text_left, chunk_bytes));
        char* place = chunk.grow(want);
        const size_t n = stream->read(place, want);
        chunk.size += n;
        text_left -= n;
        end = n < want || text_left == 0;
        const size_t size = chunk.size - begin;
        if (!end) cut = safe_cut(chunk.text.data() + begin, size, seen);
        CHECK_INPUT(end || cut || size <= max_word, "{}: a word of more than {}: expected text",
                    stream->path, human_bytes(double(max_word)));
        seen = std::max<size_t>(size, 5) - 4;       // cut-off characters are searched again
    }
    if (!end) {
        rest.assign(chunk.text.data() + begin + cut, chunk.size - begin - cut);
        text_left += rest.size();
        chunk.size = begin + cut;
    }
    if (chunk.size > begin || at_start) chunk.spans.push_back({begin, chunk.size, at_start, in_validation});
    at_start = false;
    if (!end) return;
    if (text_left == 0) {
        at_start = in_validation = true;
        text_left = ~uint64_t(0);
    } else close_stream();
}

std::string_view DocumentReader::next_line(bool& last) {
    last = false;
    for (size_t looked_at = line_begin;;) {
        // (memchr takes no null pointer; `lines` is null before the first read)
        const void* newline =
            line_end > looked_at ? memchr(lines.data() + looked_at, '\n', line_end - looked_at) : nullptr;
        const size_t begin = line_begin, left = line_end - begin;
        if (newline) {
            line_begin = size_t(static_cast<const char*>(newline) - lines.data()) + 1;
            return {lines.data() + begin, line_begin - 1 - begin};
        }
        CHECK_INPUT(left <= max_word, "{}:{}: a line of more than {}; expected one document a line",
                    stream->path, line + 1,
                    human_bytes(double(max_word)));
        const size_t room = left + chunk_bytes + kRowPadding;
        if (lines.size() < room || lines.size() > 8 * room) {
            std::vector<char> others(room + left / 4);
            std::copy_n(lines.data() + begin, left, others.data());
            lines.swap(others);
        } else if (left) memmove(lines.data(), lines.data() + begin, left);
        const size_t read = stream->read(lines.data() + left, chunk_bytes);
        line_begin = 0;
        looked_at = left;
        line_end = left + read;
        if (read == 0) {
            last = true;
            line_begin = line_end;
            return {lines.data(), left};
        }
    }
}

// Lines of a .jsonl file until the chunk is full.
void DocumentReader::add_lines(Chunk& chunk) {
    for (bool last = false; !last && chunk.size < chunk_bytes;) {
        const std::string_view row = next_line(last);
        line++;
        if (row.find_first_not_of(" \t\r") != row.npos) {
            char* text = chunk.grow(row.size());
            const size_t begin = chunk.size, size = parse_json_line(row, stream->path, line, text);
            const size_t cut = validation_cut({text, size}, validation);
            chunk.spans.push_back({begin, begin + cut, true, false});
            if (cut < size) chunk.spans.push_back({begin + cut, begin + size, true, true});
            chunk.size += size;
            documents++;
        }
        if (last) close_stream();
    }
}

bool DocumentReader::next(Chunk& chunk) {
    chunk.size = 0;
    chunk.spans.clear();
    while (chunk.size < chunk_bytes && (stream || open_next())) {
        json_lines ? add_lines(chunk) : add_text(chunk);
    }
    return !chunk.spans.empty();
}

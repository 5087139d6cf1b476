#include "llmc/io/corpus/documents.h"

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/io/corpus/json_line.h"
#include "llmc/io/corpus/mend_line.h"
#include "llmc/io/unicode/pretokenize.h"
#include "llmc/io/unicode/safe_cut.h"
#include "llmc/io/unicode/unicode.h"

inline namespace corpus {

char* TextChunk::grow(size_t bytes) {
    if (text.size() < size + bytes + kTextPadding) text.resize((size + bytes) * 5 / 4 + kTextPadding);
    return text.data() + size;
}

void TextChunk::append(std::string_view bytes) {
    memcpy(grow(bytes.size()), bytes.data(), bytes.size());
    size += bytes.size();
}

DocumentReader::DocumentReader(const std::vector<std::string>& names, double validation,
                               std::string spool_directory, const TextRules& rules)
    : inputs(find_inputs(names, rules.as)), rules(rules), validation(validation),
      spool_directory(std::move(spool_directory)), held_out{.fraction = validation} {
    CHECK_INPUT(rules.split.empty() || inputs.count(InputKind::Text),
                "--split parts text files, and there is none");
    const bool about_lines = rules.field != "text" || rules.bad_lines != BadLines::Stop;
    CHECK_INPUT(
        !about_lines || inputs.count(InputKind::JsonLines),
        "--field and --bad-lines are for files of JSON lines, and there is none; --as=jsonl reads other "
        "suffixes, and standard input, as such");
    bool known = true;
    for (const Input& input : inputs.files) {
        const bool file = input.path != "-" && is_regular_file(input.path);
        known = known && file;
        if (file) total_bytes += size_of_file(open_read(input.path).fd, input.path);    // or it is unreadable
    }
    if (!known) total_bytes = 0;
}

DocumentReader DocumentReader::whole_file(const std::string& input) {
    DocumentReader reader;
    const auto found = input == "-" ? std::vector<std::string>{"-"} : glob_files(input);
    CHECK_INPUT(!found.empty(), "{}: no such file, and no file of such a name", input);
    CHECK_INPUT(found.size() == 1, "{}: expected one file, found {} files of such a name", input,
                found.size());
    reader.inputs.files = {{found[0]}};
    reader.raw = true;
    return reader;
}

uint64_t DocumentReader::position() const {
    if (!stream) return done_bytes;
    if (spooling) return done_bytes + stream->consumed / 2;
    if (spooled_bytes == 0) return done_bytes + stream->consumed;
    const double share = (1 + double(stream->consumed) / double(spooled_bytes)) / 2;
    return done_bytes + uint64_t(double(packed_bytes) * share);
}

// The encoding that the first bytes of a file show, unless UTF-8: by its mark, or by zeros at every second
// place. iconv takes the order of bytes from the mark, else from the name.
static const char* encoding_of(std::string_view head) {
    using namespace std::literals;
    if (head.starts_with("\xff\xfe\0\0"sv) || head.starts_with("\0\0\xfe\xff"sv)) return "UTF-32";
    if (head.starts_with("\xff\xfe"sv) || head.starts_with("\xfe\xff"sv)) return "UTF-16";
    size_t zeros[2] = {};
    for (size_t i = 0; i < head.size(); i++) zeros[i % 2] += head[i] == 0;
    const bool every_second = (zeros[0] == 0) != (zeros[1] == 0);
    if (!every_second || zeros[0] + zeros[1] <= 2 + head.size() / 16) return nullptr;
    return zeros[0] ? "UTF-16BE" : "UTF-16LE";
}

// Drops a byte order mark; returns its bytes. CHECK_INPUT: an encoding other than UTF-8.
size_t DocumentReader::skip_mark() {
    const std::string_view head = stream->peek(512);
    const char* other = encoding_of(head);
    CHECK_INPUT(!other, "{}: the text is {}, expected UTF-8: iconv -f {} -t UTF-8 {} > NEW", stream->path,
                other, other, stream->path);
    const size_t mark = head.starts_with("\xef\xbb\xbf") ? 3 : 0;
    stream->skip(mark);
    return mark;
}

bool DocumentReader::open_next() {
    if (next_file == inputs.files.size()) return false;
    const Input& input = inputs.files[next_file++];
    stream = std::make_unique<ByteStream>(input.path);
    json_lines = input.kind == InputKind::JsonLines;
    separator = json_lines ? "\n" : rules.split;
    part = 0;
    at_start = true;
    in_validation = false;
    text_left = ~uint64_t(0);
    is_utf8_so_far = true;
    size_t begin = raw ? 0 : skip_mark();
    if (!separator.empty() || validation <= 0) return true;
    if (!stream->seekable()) {
        spool();
        begin = 0;
    }
    const uint64_t size = size_of_file(stream->fd, stream->path);
    const uint64_t cut = validation_cut(stream->fd, begin, size, validation, stream->path);
    if (cut < size) text_left = cut - begin;
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

// The text of the chunk from `begin` on, which is cut between characters.
void DocumentReader::check_utf8(const TextChunk& chunk, size_t begin) {
    if (raw || !is_utf8_so_far || is_utf8(chunk.text.data() + begin, chunk.size - begin)) return;
    is_utf8_so_far = false;
    not_utf8.add(stream->path);
}

// Adds a span of a text document.
void DocumentReader::add_text(TextChunk& chunk) {
    const size_t begin = chunk.size;
    chunk.append(rest);
    text_left -= rest.size();
    rest.clear();
    bool end = false;
    size_t cut = 0, seen = 1;           // no cut before it: each byte is searched once
    const size_t reach = tokenizer ? tokenizer->added->reach() : 0;
    while (!end && cut == 0) {
        const size_t want = size_t(std::min<uint64_t>(text_left, chunk_bytes));
        char* place = chunk.grow(want);
        const size_t n = stream->read(place, want);
        chunk.size += n;
        text_left -= n;
        end = n < want || text_left == 0;
        const size_t size = chunk.size - begin;
        const char* text = chunk.text.data() + begin;
        if (!end) cut = tokenizer ? tokenizer->safe_cut(text, size, seen) : safe_cut(text, size, seen);
        CHECK_INPUT(end || cut || size <= max_word, "{}: a word of more than {}: expected text",
                    stream->path, human_bytes(double(max_word)));
        // cut-off characters and names of added tokens are searched again
        seen = std::max(size, reach + 5) - reach - 4;
    }
    if (!end) {
        rest.assign(chunk.text.data() + begin + cut, chunk.size - begin - cut);
        text_left += rest.size();
        chunk.size = begin + cut;
    }
    if (chunk.size > begin || (end && !at_start)) {
        check_utf8(chunk, begin);
        documents += at_start && !in_validation;
        chunk.spans.push_back({begin, chunk.size, at_start, in_validation, end});
        at_start = false;
    }
    if (!end) return;
    if (at_start && !in_validation) empty.add(stream->path);
    if (text_left == 0) {
        at_start = in_validation = true;
        text_left = ~uint64_t(0);
    } else close_stream();
}

std::string_view DocumentReader::next_part(bool& last) {
    last = false;
    for (size_t looked_at = part_begin;;) {
        // (memmem takes no null pointer; `parts` is null before the first read)
        const void* found = part_end > looked_at ? memmem(parts.data() + looked_at, part_end - looked_at,
                                                          separator.data(), separator.size()) : nullptr;
        const size_t begin = part_begin, left = part_end - begin;
        if (found) {
            const size_t end = size_t(static_cast<const char*>(found) - parts.data());
            part_begin = end + separator.size();
            return {parts.data() + begin, end - begin};
        }
        CHECK_INPUT(left <= max_word, "{}: a document of more than {}; expected one {}", place(),
                    human_bytes(double(max_word)), json_lines ? "a line" : "between two of --split");
        const size_t room = left + chunk_bytes + kRowPadding;
        if (parts.size() < room || parts.size() > 8 * room) {
            std::vector<char> others(room + left / 4);
            std::copy_n(parts.data() + begin, left, others.data());
            parts.swap(others);
        } else if (left) memmove(parts.data(), parts.data() + begin, left);
        const size_t read = stream->read(parts.data() + left, chunk_bytes);
        part_begin = 0;
        looked_at = left - std::min(left, separator.size() - 1);
        part_end = left + read;
        if (read == 0) {
            last = true;
            part_begin = part_end;
            return {parts.data(), left};
        }
    }
}

std::string DocumentReader::place() const { return fmt::format("{}:{}", stream->path, part); }

// Puts the text of a row behind the chunk's; returns its bytes, 0 of a line that is left out.
size_t DocumentReader::put_json_text(std::string_view row, TextChunk& chunk) {
    size_t bytes = 0;
    if (scan_json_line(row, chunk.grow(row.size()), bytes, rules.field)) {
        if (bytes == 0) empty.add(place());
        return bytes;
    }
    std::string error, text = parse_json_text(row, error, rules.field);
    if (!error.empty() && rules.bad_lines == BadLines::Replace) {
        std::string others;
        text = parse_json_text(mended_row(row), others, rules.field);
        if (others.empty()) mended.add(place());
        error = others;
    }
    CHECK_INPUT(error.empty() || rules.bad_lines != BadLines::Stop,
                "{}: {}; --bad-lines=skip leaves such lines out", place(), error);
    if (!error.empty()) {
        skipped.add(place());
        return 0;
    }
    if (text.empty()) empty.add(place());
    memcpy(chunk.grow(text.size()), text.data(), text.size());
    return text.size();
}

static std::string_view without_breaks(std::string_view text) {
    const size_t begin = std::min(text.find_first_not_of("\r\n"), text.size());
    return text.substr(begin, text.find_last_not_of("\r\n") + 1 - begin);
}

// Lines of a .jsonl, or the parts of a text, until the chunk is full.
void DocumentReader::add_parts(TextChunk& chunk) {
    for (bool last = false; !last && chunk.size < chunk_bytes;) {
        const std::string_view text = next_part(last);
        part++;
        const size_t begin = chunk.size;
        if (!json_lines) {
            chunk.append(without_breaks(text));
            check_utf8(chunk, begin);
        }
        if (json_lines && text.find_first_not_of(" \t\r") != text.npos)
            chunk.size += put_json_text(text, chunk);
        if (chunk.size > begin) {
            const bool held =
                validation > 0 && held_out.choose({chunk.text.data() + begin, chunk.size - begin});
            chunk.spans.push_back({begin, chunk.size, true, held, true});
            documents++;
        }
        if (last) close_stream();
    }
}

static uint64_t count_of(const std::string& name, std::string_view text) {
    uint64_t n = 0;
    for (size_t at = 0; at < text.size(); n++) {
        const void* found = memmem(text.data() + at, text.size() - at, name.data(), name.size());
        if (!found) return n;
        at = size_t(static_cast<const char*>(found) - text.data()) + name.size();
    }
    return n;
}

void DocumentReader::cut_for(const Tokenizer& t) { tokenizer = &t; }

bool DocumentReader::next(TextChunk& chunk) {
    chunk.size = 0;
    chunk.spans.clear();
    while (chunk.size < chunk_bytes && (stream || open_next())) {
        separator.empty() ? add_text(chunk) : add_parts(chunk);
    }
    for (EndName& end : ends) end.count += count_of(end.name, {chunk.text.data(), chunk.size});
    return !chunk.spans.empty();
}

}  // namespace corpus

#include "llmc/base/terminal.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "llmc/base/utf8.h"

inline namespace base {

static bool terminals[2], noted;

void note_terminals() {
    for (int i : {0, 1}) terminals[i] = isatty(i + 1);
    noted = true;
}

void note_terminals(bool out, bool err) {
    terminals[0] = out;
    terminals[1] = err;
    noted = true;
}

bool on_terminal(int descriptor) { return noted ? terminals[descriptor - 1] : isatty(descriptor); }

int terminal_columns() {
    const int terminal = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (terminal < 0) return 0;
    winsize size = {};
    const bool known = ioctl(terminal, TIOCGWINSZ, &size) == 0;
    close(terminal);
    return known ? size.ws_col : 0;
}

const char* line_start(int descriptor) { return on_terminal(descriptor) ? "\r\x1b[K" : ""; }

// ---------------------------------------------------------------------------------------------------------
// text

static bool is_shown(Char c) {
    return c.code != kInvalid && (!is_control(c.code) || c.code == '\n' || c.code == '\t');
}

std::string printable(std::string_view s) {
    std::string text;
    while (!s.empty()) {
        const Char c = decode_utf8(s);
        text += is_shown(c) ? s.substr(0, c.bytes) : "\uFFFD";
        s.remove_prefix(c.bytes);
    }
    return text;
}

static std::string escaped(std::string_view s) {
    std::string text;
    for (size_t lines = 0; !s.empty();) {
        const Char c = decode_utf8(s);
        if (c.code == '\n' && ++lines > kMessageLines) text += "\\n";
        else if (is_shown(c)) text += s.substr(0, c.bytes);
        else if (c.bytes == 1) text += fmt::format("\\x{:02x}", uint8_t(s[0]));
        else text += fmt::format("\\u{:04x}", c.code);
        s.remove_prefix(c.bytes);
    }
    return text;
}

// A message begins with the place and the error, and ends with the expectation.
std::string for_terminal(std::string_view s) {
    const std::string text = escaped(s);
    if (text.size() <= kMessageBytes) return text;
    size_t head = kMessageBytes / 3, tail = text.size() - head;
    while (continues(uint8_t(text[head]))) head--;
    while (continues(uint8_t(text[tail]))) tail++;
    return text.substr(0, head) + " ... (" + std::to_string(tail - head) + " bytes more) ... " +
           text.substr(tail);
}

size_t whole_characters(std::string_view s) {
    for (size_t back = 1; back <= std::min<size_t>(s.size(), 3); back++) {
        const uint8_t b = uint8_t(s[s.size() - back]);
        if (continues(b)) continue;                         // the character begins further in front
        return back < bytes_by_first(b) ? s.size() - back : s.size();
    }
    return s.size();
}

}  // namespace base

// Helpers for tests of scripts: temporary folders and files, and expectations on a finished command.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "test/test.h"

inline std::string python() {
    const char* p = getenv("PYTHON");
    return p && *p ? p : "/usr/bin/python3";
}

// A folder of this name, made.
inline std::string made(const std::string& name) {
    const std::string path = test::folder(name);
    std::filesystem::create_directories(path);
    return path;
}

inline void write(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << content;
}

inline void write_program(const std::string& path, const std::string& body) {
    write(path, "#!/bin/bash\n" + body + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::all);
}

inline std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string last_line(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
}

// Expects exit code 1 and the texts `says` on stderr, without a trace of Python's.
inline void expect_error(const test::Ran& ran, const std::vector<std::string>& says) {
    EXPECT(ran.code == 1 && !has(ran.err, "Traceback"), "exit %d: %s", ran.code, ran.err.c_str());
    for (const auto& s : says) EXPECT(has(ran.err, s), "not there: '%s' in: %s", s.c_str(), ran.err.c_str());
}

// Expects that a page loads nothing and leads nowhere: no address but XML's names and this machine's. The
// data of a page (JSON) may have addresses, as text.
inline void expect_no_address_outside(std::string page) {
    EXPECT(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "no page");
    for (size_t at; (at = page.find("<script type=\"application/json\"")) != page.npos;)
        page.erase(at, page.find("</script>", at) - at);
    const std::string kIcon = "href=\"data:image/svg";
    if (const size_t at = page.find(kIcon); at != page.npos) page.erase(at, kIcon.size());
    for (const char* word : {"src=", ".src", "srcset", "href", "@import", "url(h", "url(/", "url(\"", "url('",
                             "\"//", "'//", "`//", "innerHTML", "insertAdjacentHTML", "document.write",
                             "eval("})
        EXPECT(!has(page, word), "%s: %s", word, page.substr(page.find(word), 60).c_str());
    for (size_t at = page.find("://"); at != page.npos; at = page.find("://", at + 1)) {
        const std::string address = page.substr(at + 3, 60);
        EXPECT(address.starts_with("www.w3.org/") || address.starts_with("127.0.0.1"), "%s", address.c_str());
    }
}

// Runs checks of a page in a browser, and expects every check to hold.
inline void expect_page_checks(const std::string& command) {
    const test::Ran ran = test::run(python() + " " + command);
    if (ran.code == 3) return test::skip("no Chromium");
    EXPECT(ran.code == 0 && has(last_line(ran.out), " checks, 0 failed"), "exit %d: %s%s", ran.code,
           ran.out.c_str(), ran.err.c_str());
}

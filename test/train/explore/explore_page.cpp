// The page of --explore in headless Chromium: dev/explore_checks.py starts the program, plays and looks.
#include "llmc/train/serve/embedded.h"
#include "test/script_helpers.h"

TEST(page_plays_and_shows_the_planners_numbers) {
    if (http_object().empty()) return test::skip("built without cpp-httplib");
    expect_page_checks("dev/explore_checks.py");
}

TEST(page_is_one_file_without_addresses_outside) {
    const std::string page(explore_page());
    EXPECT(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "no page");
    EXPECT(!has(page, "/* join"), "a part of the page is missing");
    for (const char* word : {"innerHTML", "insertAdjacentHTML", "document.write", "eval(", "src=", "@import"})
        EXPECT(!has(page, word), "%s", word);
    for (size_t at = page.find("://"); at != page.npos; at = page.find("://", at + 1))
        EXPECT(page.substr(at + 3).starts_with("www.w3.org/2000/svg"), "%s", page.substr(at - 5, 60).c_str());
}

// The page of --explore in headless Chromium: dev/explore_checks.py starts the program, plays and looks.
#include "llmc/train/report/embedded.h"
#include "test/script_helpers.h"

TEST(page_plays_and_shows_the_planners_numbers) {
    expect_page_checks("dev/explore_checks.py");
}

TEST(page_is_one_file_without_addresses_outside) {
    const std::string page(explore_page());
    EXPECT(!has(page, "/* join"), "a part of the page is missing");
    expect_no_address_outside(page);
}

// Files that the program carries.
#pragma once
#include <string_view>

inline namespace report {

std::string_view watch_page();          // train/watch/page.html
std::string_view explore_page();        // train/explore/page.html
std::string_view figures_json();        // train/report/figures.json

}  // namespace report

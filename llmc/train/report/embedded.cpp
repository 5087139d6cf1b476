// Compiled anew where an embedded file changes (Makefile). WATCH_PAGE and EXPLORE_PAGE are their paths.
#include "llmc/train/report/embedded.h"

// NAME_begin and NAME_end: a file's bytes
#define EMBED(NAME, PATH)                                                                                  \
    asm(".section .rodata\n"                                                                               \
        ".global " #NAME "_begin\n" #NAME "_begin:\n.incbin \"" PATH "\"\n"                                \
        ".global " #NAME "_end\n" #NAME "_end:\n.byte 0\n.previous\n");                                    \
    extern "C" const char NAME##_begin[], NAME##_end[];

inline namespace report {

EMBED(page_of_watch, WATCH_PAGE)
std::string_view watch_page() { return {page_of_watch_begin, page_of_watch_end}; }

EMBED(page_of_explore, EXPLORE_PAGE)
std::string_view explore_page() { return {page_of_explore_begin, page_of_explore_end}; }

EMBED(table_of_figures, "llmc/train/report/figures.json")
std::string_view figures_json() { return {table_of_figures_begin, table_of_figures_end}; }

}  // namespace report

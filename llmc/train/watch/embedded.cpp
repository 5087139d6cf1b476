// Compiled anew where an embedded file changes (Makefile). PAGE and HTTP_OBJECT are their paths.
#include "llmc/train/watch/embedded.h"

// NAME_begin and NAME_end: a file's bytes
#define EMBED(NAME, PATH)                                                                                  \
    asm(".section .rodata\n"                                                                               \
        ".global " #NAME "_begin\n" #NAME "_begin:\n.incbin \"" PATH "\"\n"                                \
        ".global " #NAME "_end\n" #NAME "_end:\n.byte 0\n.previous\n");                                    \
    extern "C" const char NAME##_begin[], NAME##_end[];

EMBED(watch_page, PAGE)
std::string_view page_html() { return {watch_page_begin, watch_page_end}; }

#ifdef HTTP_OBJECT
EMBED(watch_http, HTTP_OBJECT)
std::string_view http_object() { return {watch_http_begin, watch_http_end}; }
#else
std::string_view http_object() { return {}; }
#endif

// What the fuzzers share: an input is either accepted or refused as the user's, and nothing else happens.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/context.h"

#define FUZZ_CHECK(cond)                                                                     \
    do {                                                                                     \
        if (cond) break;                                                                     \
        fprintf(stderr, "%s:%d: FUZZ_CHECK(%s)\n", __FILE__, __LINE__, #cond);                 \
        abort();                                                                             \
    } while (0)

template <class F> void expect_input_error(F&& f) {
    context.throw_on_fatal = true;
    try {
        f();
    } catch (const Fatal& e) {
        if (e.code != kExitConfig && e.code != kExitNotFinite) {
            fprintf(stderr, "fatal() with exit code %d: %s\n", e.code, e.what());
            abort();
        }
    }
}

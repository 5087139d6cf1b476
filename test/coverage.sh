#!/usr/bin/env bash
# `make coverage`: the tests of the CUDA backend in the emulation, every access checked, and how many lines of
# llmc/ops/cuda they run. Fails below COVERAGE_LEAST (98) percent; every line that never ran is printed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
build=build/cpu-native/checks
out=$build/lines
targets=()
for source in test/ops/cuda/{,*/}*.cpp; do targets+=("$build/test/$(basename "$source" .cpp)"); done
mkdir -p "$out"
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -j"$(nproc)" "${targets[@]}" >"$out/build.log" 2>&1 ||
    { tail -n 30 "$out/build.log"; exit 1; }
find "$build" -name '*.gcda' -delete
test/run_all.sh "${targets[@]}" >"$out/tests.log" || { cat "$out/tests.log"; exit 1; }

# gcov's lines are "count: number: text"; a count is "#####" where the line never ran. What is compiled for
# both precisions, or for several arguments of a template, counts once.
find "$build" -name '*.gcda' -print0 | xargs -0 gcov --stdout 2>"$out/gcov.log" |
    awk -F: -v least="${COVERAGE_LEAST:-98}" '
        { count = $1; gsub(/ /, "", count); line = $2 + 0 }
        line == 0 { if ($3 == "Source") file = $4; next }
        NF < 3 || count == "-" || file !~ /^llmc\/ops\/cuda\// { next }
        { at = file ":" line; lines[at] = 1; if (count !~ /^[#=]/) ran[at] = 1 }
        END {
            sorted = "sort -t: -k2,2 -k3,3n"
            for (at in lines) {
                all++
                if (at in ran) good++; else print "never ran: " at | sorted
            }
            close(sorted)
            share = all ? 100 * good / all : 0
            printf "lines of llmc/ops/cuda that ran: %.1f%% (%d of %d), %s asked\n", share, good, all, least
            exit share < least
        }' || exit
tail -n 1 "$out/tests.log"

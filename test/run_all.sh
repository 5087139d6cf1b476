#!/usr/bin/env bash
# Runs test binaries one after the other: a line for each, the output of those that fail, and the sum.
#
#     test/run_all.sh BINARY ...
#
# A binary that dies, or does not close with its own "N passed, N failed", counts as one failed test.
set -uo pipefail
# Threads that wait for each other by spinning cost a factor of three on a machine with other work.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-1000}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0

for binary in "$@"; do
    start=$EPOCHREALTIME
    "$binary" >"$log" 2>&1
    code=$?
    time=$(LC_ALL=C awk -v a="${start/,/.}" -v b="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%6.1f s", b - a }')
    name=$(basename "$binary")
    last=$(tail -n 1 "$log")
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
        p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]} s=${BASH_REMATCH[4]:-0} why=""
        if [ "$code" != 0 ] && [ "$f" = 0 ]; then f=1 why="  ends with exit code $code"; fi
    else
        p=0 f=1 s=0 why="  died or broke off (exit code $code)"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ "$s" = 0 ] || why=", $s skipped$why"
    printf '%s  %-24s %4d passed, %d failed%s\n' "$time" "$name" "$p" "$f" "$why"
    if [ "$f" != 0 ]; then sed 's/^/          /' "$log"; else grep '^skip ' "$log" | sed 's/^/          /'; fi
done
if [ $# = 0 ]; then echo "no tests given" >&2; failed=1; fi
[ "$skipped" = 0 ] && skips="" || skips=", $skipped skipped"
echo "$passed passed, $failed failed$skips"
[ "$failed" = 0 ]

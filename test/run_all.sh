#!/usr/bin/env bash
# Runs test binaries, three at a time, as some wait: prints a line as each ends, the output of failed
# binaries, and the sum.
#
#     test/run_all.sh BINARY ...
#
# A binary that dies, or ends without its own "N passed, N failed", counts as a failed test.
# TEST_JOBS (3, on one core 1): binaries at a time.
set -uo pipefail
# Threads that wait for each other by spinning cost a factor of three on a machine with other work.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-1000}"
jobs=${TEST_JOBS:-$(($(nproc) > 1 ? 3 : 1))}
folder=$(mktemp -d)
export folder
# of the emulation, for test/emulated/emulator_ran.cpp, the last to run
export EMU_RAN=$folder/kernels.ran EMU_FLOORS=$folder/kernels.counted
touch "$EMU_RAN" "$EMU_FLOORS"
trap 'rm -rf "$folder"' EXIT

run() {         # prints the binary's line and output without interruption; keeps the counts in a file
    local binary=$1 name start=$EPOCHREALTIME code time last p f s why=""
    name=$(basename "$binary")
    local log=$folder/$name.log
    "$binary" >"$log" 2>&1
    code=$?
    time=$(LC_ALL=C awk -v a="${start/,/.}" -v b="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%6.1f s", b - a }')
    last=$(tail -n 1 "$log")
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
        p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]} s=${BASH_REMATCH[4]:-0}
        if [ "$code" != 0 ] && [ "$f" = 0 ]; then f=1 why="  ends with exit code $code"; fi
    else
        p=0 f=1 s=0 why="  died or broke off (exit code $code)"
    fi
    echo "$p $f $s" >"$folder/$name.counts"
    [ "$s" = 0 ] || why=", $s skipped$why"
    # A binary at a time, and through a pipe: cat copies file to file by copy_file_range, and two copies at
    # once write over each other.
    {
        printf '%s  %-24s %4d passed, %d failed%s\n' "$time" "$name" "$p" "$f" "$why"
        if [ "$f" != 0 ]; then cat "$log"; else grep '^skip ' "$log"; fi | sed 's/^/          /'
    } | flock "$folder/printing" cat
}
export -f run
first=() last=()
for binary in "$@"; do
    case $binary in */emulator_ran) last+=("$binary") ;; *) first+=("$binary") ;; esac
done
run_these() { [ $# = 0 ] || printf '%s\0' "$@" | xargs -0 -P "$jobs" -I{} bash -c 'run "$@"' run {}; }
run_these ${first[@]+"${first[@]}"}
run_these ${last[@]+"${last[@]}"}
# for `make ptxas`: how kernels are launched
if [ ${#last[@]} != 0 ] && [ -n "${BUILD:-}" ]; then sort -u "$EMU_RAN" >"$BUILD/kernels.ran"; fi

passed=0 failed=0 skipped=0
for binary in "$@"; do
    read -r p f s <"$folder/$(basename "$binary").counts" || p=0 f=1 s=0
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
if [ $# = 0 ]; then echo "no tests given" >&2; failed=1; fi
[ "$skipped" = 0 ] && skips="" || skips=", $skipped skipped"
echo "$passed passed, $failed failed$skips"
[ "$failed" = 0 ]

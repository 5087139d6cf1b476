#!/usr/bin/env bash
# Builds the fuzzers (test/fuzz/NAME.cpp) with clang's libFuzzer, AddressSanitizer and UBSan, and runs each
# for FUZZ_SECONDS (60) from its seeds in test/fuzz/corpus/NAME/. Inputs that reach new code are kept, for the
# next time, in test/fuzz/found/NAME/, which git ignores.
#
#     test/fuzz/build_and_run.sh [NAME ...]
#
# Closes with "N passed, N failed"; without clang or its runtime all are skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${FUZZ_SECONDS:-60}
names=("$@")
if [ ${#names[@]} = 0 ]; then
    for source in test/fuzz/*.cpp; do names+=("$(basename "$source" .cpp)"); done
fi
out=build/fuzz
mkdir -p "$out/objects"

skip_all() { echo "skip  fuzzers: $1"; echo "0 passed, 0 failed, ${#names[@]} skipped"; exit 0; }
fail_all() { tail -n 30 "$1"; echo "FAIL  fuzzers: $2"; echo "0 passed, ${#names[@]} failed"; exit 1; }

clang=""
for candidate in clang++-14 clang++ clang++-15 clang++-16 clang++-17 clang++-18; do
    if command -v "$candidate" >/dev/null; then clang=$candidate; break; fi
done
[ -n "$clang" ] || skip_all "no clang++ (apt-get install clang-14)"
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    "$clang" -x c++ - -fsanitize=fuzzer,address -o "$out/probe" >"$out/probe.log" 2>&1 ||
    skip_all "$clang has no fuzzer runtime (apt-get install libclang-rt-14-dev)"

sanitize=address,undefined
flags=(-std=c++20 -O1 -g1 -fsanitize="$sanitize" -fno-sanitize-recover=undefined -fno-omit-frame-pointer
       -I. -DBACKEND=cpu '-DCOMMIT="fuzz"' '-DCPU_FEATURES=""' '-DCPU_ARCH="native"')
export clang out
compile() {     # one source, unless its object is newer than every source and header
    local object rooms=(llmc/base llmc/io llmc/model llmc/train/save/formats)
    object=$out/objects/$(echo "$1" | tr '/' '_').o
    [ ! -e "$object" ] || [ -n "$(find "${rooms[@]}" -newer "$object" -name '*.[hc]*')" ] || return 0
    "$clang" "${@:2}" -c "$1" -o "$object"
}
export -f compile
shopt -s globstar
sources=(llmc/base/**/*.cpp llmc/io/**/*.cpp llmc/model/layout.cpp llmc/train/save/formats/*.cpp)
printf '%s\0' "${sources[@]}" |
    xargs -0 -P "$(nproc)" -I{} bash -c 'compile "$@"' compile {} "${flags[@]}" -fsanitize=fuzzer-no-link \
    >"$out/build.log" 2>&1 || fail_all "$out/build.log" "the build failed"
objects=()
for source in "${sources[@]}"; do objects+=("$out/objects/$(echo "$source" | tr '/' '_').o"); done

for name in "${names[@]}"; do
    "$clang" "${flags[@]}" -fsanitize=fuzzer "test/fuzz/$name.cpp" "${objects[@]}" -o "$out/$name" \
        -lfmt -lz -lzstd -lxxhash -lpthread >"$out/$name.log" 2>&1 ||
        fail_all "$out/$name.log" "$name does not build"
    mkdir -p "test/fuzz/found/$name" "test/fuzz/corpus/$name"
done

fuzz() {        # its outcome goes to NAME.outcome
    local name=$1 start=$SECONDS
    if "$out/$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -max_len=65536 \
        -print_final_stats=1 -artifact_prefix="$out/$name-" \
        "test/fuzz/found/$name" "test/fuzz/corpus/$name" >"$out/$name.log" 2>&1; then
        echo "ok    fuzz $name: $(awk '/number_of_executed_units/ { print $2 }' "$out/$name.log") inputs" \
             "in $((SECONDS - start)) s"
    else
        grep -vE '^#[0-9]+' "$out/$name.log" | tail -n 40
        echo "FAIL  fuzz $name: again with " \
             "$out/$name $(sed -n 's/.*Test unit written to //p' "$out/$name.log")"
    fi >"$out/$name.outcome"
}
export -f fuzz
export seconds
printf '%s\0' "${names[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'fuzz "$@"' fuzz {}    # one a core

passed=0 failed=0
for name in "${names[@]}"; do
    cat "$out/$name.outcome"
    if grep -q '^ok ' "$out/$name.outcome"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

#!/usr/bin/env bash
# what: compute-sanitizer over tests of kernels
# limit: 30
tool=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
[ -x "$tool" ] || { echo "no compute-sanitizer"; exit 77; }
"$tool" --version >/dev/null 2>&1 || { echo "compute-sanitizer does not work here"; exit 77; }
code=0
for pair in memcheck:cuda_layernorm memcheck:cuda_attention_mma racecheck:cuda_layernorm; do
    check=${pair%%:*} test=${pair#*:}
    said=$("$tool" --tool "$check" --error-exitcode 9 "$BIN/$test" 2>&1)
    ended=$?
    if grep -q "not supported\|Unable to find\|Failed to initialize" <<<"$said"; then
        printf '%s\n' "$said" | tail -n 3
        exit 77
    fi
    if [ "$ended" != 0 ]; then code=1; printf '%s\n' "$said" | tail -n 20; fi
    printf '= {"check": "%s", "test": "%s", "exit": %d}\n' "$check" "$test" "$ended"
done
exit "$code"

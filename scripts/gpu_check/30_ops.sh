#!/usr/bin/env bash
# what: every op against the CPU's, as in make test
# limit: 65
# quick: 35
# lease: 20 60
code=0
for test in "$BIN"/cuda_*; do
    name=${test##*/}
    case $name in cuda_bench | cuda_goldens | cuda_graded | cuda_kernels | cuda_machine) continue ;; esac
    said=$("$test" 2>&1)
    ended=$?
    last=$(printf '%s\n' "$said" | tail -n 1)
    if [ "$ended" != 0 ]; then code=1; printf '%s\n' "$said"; fi
    printf '= {"test": "%s", "exit": %d, "counts": "%s"}\n' "$name" "$ended" "${last//[^0-9a-z, ]/}"
done
exit "$code"

#!/usr/bin/env bash
# what: compute-sanitizer over tests of kernels; with --lease memcheck and racecheck of all that fit
# limit: 30
# lease: 70 95+
tool=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
[ -x "$tool" ] || { echo "no compute-sanitizer"; exit 77; }
"$tool" --version >/dev/null 2>&1 || { echo "compute-sanitizer does not work here"; exit 77; }
end=$((${LIMIT:-30} - 4))
checks=(memcheck:cuda_layernorm memcheck:cuda_attention_mma racecheck:cuda_layernorm) at_once=1
if [ "${LEASE:-0}" = 1 ]; then
    at_once=6
    checks=()
    for check in memcheck racecheck; do
        for test in "$BIN"/cuda_*; do
            case ${test##*/} in cuda_bench | cuda_goldens | cuda_graded | cuda_kernels | cuda_machine) ;;
            *) checks+=("$check:${test##*/}") ;; esac
        done
    done
fi

# Exit code 77: the tool refuses this machine; 1: the tool found something. A run cut off by time is a result.
check() {
    local check=${1%%:*} test=${1#*:} said ended left=$((end - SECONDS))
    if [ "$left" -lt 3 ]; then
        printf '= {"check": "%s", "test": "%s", "exit": null, "why": "no time left"}\n' "$check" "$test"
        return
    fi
    said=$(timeout --kill-after=2 "$left" "$tool" --tool "$check" --error-exitcode 9 "$BIN/$test" 2>&1)
    ended=$?
    if grep -q "not supported\|Unable to find\|Failed to initialize" <<<"$said"; then
        printf '%s\n' "$said" | tail -n 3
        return 77
    fi
    if [ "$ended" = 124 ] || [ "$ended" = 137 ]; then
        printf '= {"check": "%s", "test": "%s", "exit": null, "why": "cut off after %d s"}\n' \
            "$check" "$test" "$left"
        return
    fi
    if [ "$ended" != 0 ]; then printf '%s\n' "$said" | tail -n 20; fi
    printf '= {"check": "%s", "test": "%s", "exit": %d}\n' "$check" "$test" "$ended"
    [ "$ended" = 0 ] || return 1
}

# every run writes its lines at once, not mixed with others'
code=0 running=()
one() { local lines ended; lines=$(check "$1"); ended=$?; printf '%s\n' "$lines"; return "$ended"; }
await() {
    wait "${running[0]}"
    case $? in 0) ;; 77) if [ "$code" = 0 ]; then code=77; fi ;; *) code=1 ;; esac
    running=("${running[@]:1}")
}
for pair in "${checks[@]}"; do
    one "$pair" &
    running+=($!)
    if [ ${#running[@]} -ge "$at_once" ]; then await; fi
done
while [ ${#running[@]} -gt 0 ]; do await; done
exit "$code"

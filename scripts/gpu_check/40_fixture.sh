#!/usr/bin/env bash
# what: the whole model against PyTorch's tensors
# limit: 10
# quick: 10
# lease: 25 5
code=0
for precision in fp32 bf16; do
    said=$("$BIN/test_gpt" "$precision" 2>&1)
    ended=$?
    last=$(printf '%s\n' "$said" | tail -n 1)
    if [ "$ended" != 0 ]; then code=1; printf '%s\n' "$said"; fi
    printf '= {"precision": "%s", "exit": %d, "counts": "%s"}\n' "$precision" "$ended" "${last//[^0-9a-z, ]/}"
done
exit "$code"

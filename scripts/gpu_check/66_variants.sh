#!/usr/bin/env bash
# what: every variant of layernorm, classifier and AdamW at the sizes of 124M; without --quick of 1558M, too
# limit: 30
# quick: 15
set -e
"$BIN/cuda_bench" variants --C=768 --NH=12
[ "$QUICK" = 0 ] || exit 0
"$BIN/cuda_bench" variants --C=1600 --NH=25 --B=4

#!/usr/bin/env bash
# what: every variant of attention, also where L2 holds no keys; without --quick other heads, too
# limit: 15
# quick: 10
set -e
"$BIN/cuda_bench" attention --C=768 --NH=12 --B=64
"$BIN/cuda_bench" attention --C=2048 --NH=16 --B=4
[ "$QUICK" = 0 ] || exit 0
"$BIN/cuda_bench" attention --C=768 --NH=12
"$BIN/cuda_bench" attention --C=768 --NH=12 --B=256
"$BIN/cuda_bench" attention --C=768 --NH=24
"$BIN/cuda_bench" attention --C=1920 --NH=24 --B=4
"$BIN/cuda_bench" attention --C=1536 --NH=16 --B=4

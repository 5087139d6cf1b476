#!/usr/bin/env bash
# what: every variant of attention, heads of 64 and 128; without --quick of 32, 80 and 96, too
# limit: 40
# quick: 20
set -e
"$BIN/cuda_bench" attention --C=768 --NH=12
"$BIN/cuda_bench" attention --C=2048 --NH=16 --B=4
[ "$QUICK" = 0 ] || exit 0
"$BIN/cuda_bench" attention --C=768 --NH=24
"$BIN/cuda_bench" attention --C=1920 --NH=24 --B=4
"$BIN/cuda_bench" attention --C=1536 --NH=16 --B=4

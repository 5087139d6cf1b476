#!/usr/bin/env bash
# what: every variant of attention, heads of 64 and 128
# limit: 40
# quick: 20
set -e
"$BIN/cuda_bench" attention --C=768 --NH=12
"$BIN/cuda_bench" attention --C=2048 --NH=16 --B=4

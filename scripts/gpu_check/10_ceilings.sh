#!/usr/bin/env bash
# what: copy bandwidth, and the rate of bf16 products
# limit: 5
# quick: 10
set -e
"$BIN/cuda_bench" ceilings

#!/usr/bin/env bash
# what: copy bandwidth, and the rate of bf16 products
# limit: 40
# quick: 40
set -e
"$BIN/cuda_bench" ceilings

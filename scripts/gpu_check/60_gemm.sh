#!/usr/bin/env bash
# what: products of 124M: cuBLASLt's first guess, and the fastest way
# limit: 10
set -e
"$BIN/cuda_bench" gemm

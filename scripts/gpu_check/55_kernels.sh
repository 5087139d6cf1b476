#!/usr/bin/env bash
# what: 124M, the time of each kernel against its floor
# limit: 20
source scripts/gpu_check/train.sh
ceilings=$("$BIN/cuda_bench" ceilings) || exit
figure() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" <<<"$ceilings"; }
COPY_GBPS=$(figure GBps) MATMUL_TFLOPS=$(figure TFLOPs) \
    run_trainer cuda_kernels kernels scripts/gpt2_124M.json 4 --train.batch_tokens=65536

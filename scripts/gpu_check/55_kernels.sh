#!/usr/bin/env bash
# what: 124M, the time of each kernel against its floor
# limit: 60
source scripts/gpu_check/train.sh
run_trainer cuda_kernels kernels scripts/gpt2_124M.json 4 --train.batch_tokens=65536

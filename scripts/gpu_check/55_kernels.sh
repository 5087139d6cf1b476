#!/usr/bin/env bash
# what: 124M, the time of each kernel against its floor; with --lease SmolLM2 135M and Qwen3 0.6B, too
# limit: 20
# lease: 50 34
source scripts/gpu_check/train.sh
ceilings=$("$BIN/cuda_bench" ceilings ${TINY:+--size=64}) || exit
figure() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" <<<"$ceilings"; }
COPY_GBPS=$(figure GBps) MATMUL_TFLOPS=$(figure TFLOPs)
export COPY_GBPS MATMUL_TFLOPS
code=0
set -o pipefail
profiled() {                # MODEL [OPTION ...]
    local model=$1
    shift
    mkdir -p "$WORK/kernels_$model"
    run_trainer cuda_kernels "kernels_$model" "scripts/$model.json" 4 --train.batch_tokens=65536 "$@" 2>&1 |
        sed "s/^= {/= {\"model\": \"$model\", /" || code=1
    rm -rf "${WORK:?}/kernels_$model"
}
profiled gpt2_124M
if [ "${LEASE:-0}" = 1 ]; then
    profiled smollm2_135M --model.vocab=49152 --optimizer.warmup=1 --optimizer.decay=1
    profiled qwen3_0.6B --model.vocab=151936
fi
exit "$code"

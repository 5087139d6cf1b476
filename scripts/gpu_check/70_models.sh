#!/usr/bin/env bash
# what: 1558M, 350M, 774M at the largest micro-batch that fits
# limit: 90
# lease: 42 88
source scripts/gpu_check/train.sh
code=0
for model in gpt2_1558M gpt2_350M gpt2_774M; do
    trained_if_it_fits "$model" "scripts/$model.json" 4 --train.batch_tokens=131072 || code=1
    rm -rf "${WORK:?}/$model"
done
exit "$code"

#!/usr/bin/env bash
# what: 350M, 774M, 1558M at the largest micro-batch that fits
# limit: 150
source scripts/gpu_check/train.sh
code=0
for model in gpt2_350M gpt2_774M gpt2_1558M; do
    trained "$model" "scripts/$model.json" 4 --train.batch_tokens=131072 || code=1
    rm -rf "${WORK:?}/$model"
done
exit "$code"

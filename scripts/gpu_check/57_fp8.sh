#!/usr/bin/env bash
# what: 124M and 1558M with products in FP8
# lease: 60 25
source scripts/gpu_check/train.sh
"$BIN/train_gpt" --help 2>&1 | grep -q 'run\.products' || { echo "not built: no run.products=fp8"; exit 77; }
code=0
trained fp8_gpt2_124M scripts/gpt2_124M.json 6 --train.batch_tokens=524288 --run.products=fp8 || code=1
rm -rf "${WORK:?}/fp8_gpt2_124M"
trained_if_it_fits fp8_gpt2_1558M scripts/gpt2_1558M.json 4 --train.batch_tokens=131072 --run.products=fp8 ||
    code=1
exit "$code"

#!/usr/bin/env bash
# what: 124M, a whole step: tokens/s, MFU, memory against plan
# limit: 40
# quick: 20
# lease: 40 20
source scripts/gpu_check/train.sh
if [ "$QUICK" = 1 ]; then steps=6; else steps=12; fi
trained gpt2_124M scripts/gpt2_124M.json "$steps" --train.batch_tokens=524288

#!/usr/bin/env bash
# what: SmolLM2 135M and Qwen3 0.6B by AdamW, simple by Muon with documents apart
# limit: 55
# lease: 44 48
source scripts/gpu_check/train.sh
code=0
trained_if_it_fits smollm2_135M scripts/smollm2_135M.json 6 --train.batch_tokens=262144 \
    --model.vocab=49152 --optimizer.warmup=1 --optimizer.decay=1 || code=1
rm -rf "${WORK:?}/smollm2_135M"
trained_if_it_fits qwen3_0.6B scripts/qwen3_0.6B.json 5 --train.batch_tokens=131072 \
    --model.vocab=151936 || code=1
rm -rf "${WORK:?}/qwen3_0.6B"
trained_if_it_fits simple scripts/simple.json 6 --train.batch_tokens=262144 --model.document_mask=true \
    --optimizer.decay=1 --data.tokenizer="$WORK/tokenizer.json" || code=1
exit "$code"

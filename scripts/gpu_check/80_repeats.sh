#!/usr/bin/env bash
# what: three runs end in the same bits
# limit: 30
# quick: 25
source scripts/gpu_check/train.sh
code=0
for i in 1 2 3; do
    mkdir -p "$WORK/repeat_$i"
    # the kernels that the first run has chosen
    if [ "$i" != 1 ]; then cp "$WORK/repeat_1/kernels.txt" "$WORK/repeat_$i/"; fi
    run_trainer train_gpt "repeat_$i" scripts/gpt2_124M.json 4 --train.batch_tokens=65536 \
        --train.micro_batch=8 --checkpoint.every=4 >"$WORK/repeat.log" 2>&1 ||
        { cat "$WORK/repeat.log"; exit 1; }
    grep -o '"event":"train".*' "$WORK/repeat_$i/metrics.jsonl" |
        grep -o '"\(loss\|norm\)":[^,}]*' >"$WORK/figures_$i"
    same=true
    cmp "$WORK/figures_1" "$WORK/figures_$i" &&
        cmp "$WORK/repeat_1/step_4/rank_00000.safetensors" "$WORK/repeat_$i/step_4/rank_00000.safetensors" ||
        same=false code=1
    printf '= {"run": %d, "same": %s}\n' "$i" "$same"
    if [ "$i" != 1 ]; then rm -rf "${WORK:?}/repeat_$i"; fi
done
exit "$code"

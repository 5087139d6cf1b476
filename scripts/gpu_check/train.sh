# shellcheck shell=bash
# Sourced by parts that train, on tokens in GPT-2's range: files of this repository, each a document.
#
#     trained NAME CONFIG STEPS [OPTION ...]      a run in $WORK/NAME; its figures as a result
#
# TINY=1: a rehearsal, of the smallest model of each kind and a few steps.
make_tokens() {
    local files vocab=4096
    [ ! -e "$WORK/text_train_000000.bin" ] || return 0
    mapfile -d '' files < <(find . \( -path ./build -o -path ./packed \) -prune -o \
        \( -name '*.md' -o -name '*.cpp' -o -name '*.h' \) -print0 | sort -z)
    if [ -n "${TINY:-}" ]; then vocab=300 files=(README.md scripts/README.md); fi
    "$BIN/tokenize" train --vocab="$vocab" --as=text --out="$WORK/tokenizer.json" "${files[@]}" >/dev/null &&
        "$BIN/tokenize" encode --tokenizer="$WORK/tokenizer.json" --as=text --out="$WORK/text" --val=0.1 \
            "${files[@]}" >/dev/null
}

# Sizes of the smallest model of a config's kind; none where the part has its own, $small. Of equal options
# the last holds.
tiny() {                    # CONFIG
    [ -z "${small:-}" ] || return 0
    echo --model.layers=1 --model.channels=64 --model.heads=2 --model.context=32 --model.vocab=512 \
        --train.batch_tokens=64 --train.micro_batch=1
    if grep -q '"kv_heads"' "$1"; then echo --model.kv_heads=1; fi
    if grep -q '"head_channels"' "$1"; then echo --model.head_channels=32; fi
    if grep -q '"ffn_channels"' "$1"; then echo --model.ffn_channels=64; fi
}

run_trainer() {             # PROGRAM NAME CONFIG STEPS [OPTION ...]
    local program=$1 name=$2 config=$3 steps=$4 vocab=50257
    shift 4
    if [ -n "${TINY:-}" ]; then
        vocab=512
        # shellcheck disable=SC2046     # options are words
        set -- "$@" $(tiny "$config")
    fi
    make_tokens || return 1
    # shellcheck disable=SC2086     # LAUNCH is a command's words
    ${LAUNCH:-} "$BIN/$program" "$config" --run.dir="$WORK/$name" --model.vocab="$vocab" --data.tokenizer= \
        --data.train="$WORK/text_train_*.bin" --data.val="$WORK/text_val_*.bin" --eval.every=0 \
        --sample.every=0 --checkpoint.every=0 --train.steps="$steps" --run.precision=bf16 "$@"
}

trained() {
    local name=$1 code
    run_trainer train_gpt "$@" >"$WORK/$name.log" 2>&1
    code=$?
    tail -n 25 "$WORK/$name.log"
    [ "$code" = 0 ] || return "$code"
    # the median step, without the first two
    awk -v name="$name" \
        -v micro="$(sed -n 's/.*"micro_batch": *\([0-9]*\).*/\1/p' "$WORK/$name/config.json")" '
        function value(key,  s) {
            s = $0
            if (!sub(".*\"" key "\":", "", s)) return "null"
            sub("[,}].*", "", s)
            return s
        }
        /"event":"start"/ {
            gpu = value("device") ~ "cuda"; plan = value("plan_bytes"); peak = value("peak_tflops")
        }
        /"event":"done"/ { used = value("peak_bytes") }
        /"event":"train"/ { loss = value("loss"); last = value("ms") }
        /"event":"train"/ && ++rows > 2 {
            n++
            rate[n] = value("tokens_per_s") + 0; mfu[n] = value("mfu"); ms[n] = value("ms")
            for (j = n; j > 1 && rate[order[j - 1]] > rate[n]; j--) order[j] = order[j - 1]
            order[j] = n
        }
        END {
            m = order[int((n + 1) / 2)]
            printf "= {\"run\": \"%s\", \"tokens_per_s\": %s, \"ms\": %s, ", name, rate[m], ms[m]
            printf "\"mfu\": %s, \"peak_tflops\": %s, ", mfu[m], peak
            printf "\"micro_batch\": %s, \"planned_MB\": %.0f, ", micro, plan / 1e6
            printf "\"used_MB\": %.0f, \"loss\": %s, \"last_ms\": %s}\n", used / 1e6, loss, last
            if (used > plan + 1e6) { print name ": used more memory than was planned"; exit 1 }
            # the host does not end a step of a GPU: a full launch queue moves no time between steps
            if (gpu && last < 0.95 * ms[m]) {
                print name ": the last step is shorter than the others"
                exit 1
            }
        }' "$WORK/$name/metrics.jsonl"
}

# A model too large for this GPU's memory is a result, not a failure.
trained_if_it_fits() {
    local code
    trained "$@"
    code=$?
    if [ "$code" != 78 ] || ! grep -q 'no memory for the tensors' "$WORK/$1.log"; then return "$code"; fi
    printf '= {"run": "%s", "fits": false}\n' "$1"
}

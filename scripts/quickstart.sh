#!/usr/bin/env bash
# `make quickstart`: from a fresh Debian or Ubuntu machine to a trained GPT and its prose, in a few minutes.
#
# Installs missing packages, builds, fetches Jane Austen's novels, trains a tokenizer and a small GPT on them.
# The run is left in runs/quickstart/. A stopped run goes on where the settings are the same; any other run is
# kept as runs/quickstart.1, .2, ... Arguments go to train_gpt (scripts/quickstart.sh --train.steps=500).
# PYTHON= chooses the interpreter, CXX= the compiler, PROGRESS= the seconds between lines of a build (15). A
# terminal has a single line, redrawn each second.
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{s/^# //p;s/^#$//p}' "$0"; exit ;; esac
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHON="${PYTHON:-/usr/bin/python3}" LC_ALL=C.UTF-8      # a point in EPOCHREALTIME
run_dir=runs/quickstart
corpus=data/austen
log=build/quickstart.log
mkdir -p build

# ---------------------------------------------------------------------------------------------------------
# a numbered line for each stage, its seconds at the end

stage_number=0
stage() {
    stage_number=$((stage_number + 1))
    stage_start=$EPOCHREALTIME
    stage_line="$stage_number. $1 ... "
    printf '%s' "$stage_line"
}
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", b - a }'; }
done_with_stage() { printf '%s%s\n' "${1:+$1, }" "$(seconds_since "$stage_start")"; }
give_up() { printf '\n\nerror: %s\n' "$1" >&2; exit 1; }
fail_with_log() { tail -n 25 "$log" >&2; give_up "$1 (all of its output: $log)"; }

# ---------------------------------------------------------------------------------------------------------
# missing packages, and their installation

. scripts/packages.sh

install_missing() {
    local line="apt-get update && apt-get install -y ${missing[*]}"
    command -v apt-get >/dev/null ||
        give_up "missing (by Debian's names; there is no apt-get here): ${missing[*]}"
    find_root || give_up "missing: ${missing[*]}. Installing needs root. Run this, then make quickstart again:
    sudo sh -c '$line'"
    update_packages >"$log" 2>&1 || fail_with_log "apt-get update failed"
    install "${missing[@]}" >>"$log" 2>&1 || fail_with_log "'$line' failed"
}

prepare_machine() {
    stage "Tools and libraries"
    [ "$PYTHON" = /usr/bin/python3 ] || command -v "$PYTHON" >/dev/null ||
        give_up "PYTHON=$PYTHON: there is no such program"
    missing_of "${of_program[@]}"
    if [ ${#missing[@]} = 0 ]; then done_with_stage "all there"; return; fi
    local wanted="${missing[*]}"
    printf 'installing %s ... ' "$wanted"
    install_missing
    missing_of "${of_program[@]}"
    if [[ " ${missing[*]} " == *" g++-12 "* ]]; then install_missing; missing_of "${of_program[@]}"; fi
    [ ${#missing[@]} = 0 ] || give_up "after installing, still missing: ${missing[*]} (log: $log)"
    done_with_stage
}

# ---------------------------------------------------------------------------------------------------------
# the stages

# the outer make's job server does not reach here; variables given to it are in the environment
make_programs() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make "$@" train_gpt tokenize; }

show_compiling() {          # how many of `$1` files are compiled, until this shell ends or stops it
    local begun=$SECONDS every=1
    [ -t 1 ] || every=${PROGRESS:-15}
    while sleep "$every" &>/dev/null && kill -0 $$ 2>/dev/null; do
        if [ -t 1 ]; then printf '\r%s' "$stage_line"; else printf '\n   '; fi
        printf 'compiling %s of %s files, ' "$(grep -cE '^(c\+\+|nvcc)' "$log")" "$1"
        printf '%s s ' $((SECONDS - begun))
    done
}

build() {
    local files code=0 watcher begun=$SECONDS
    stage "Building train_gpt and tokenize"
    files=$(make_programs -n 2>/dev/null | grep -cE 'echo "(c\+\+|nvcc) ') || files=0
    : >"$log"
    if [ "$files" = 0 ]; then watcher=""; else show_compiling "$files" & watcher=$!; fi
    make_programs -j"$(nproc)" >"$log" 2>&1 || code=$?
    if [ -n "$watcher" ]; then
        kill "$watcher" 2>/dev/null || true
        wait "$watcher" 2>/dev/null || true
        if [ -t 1 ]; then printf '\r\033[K%s' "$stage_line"
        elif [ $((SECONDS - begun)) -ge "${PROGRESS:-15}" ]; then printf '\n   '; fi
    fi
    [ "$code" = 0 ] || fail_with_log "the build failed"
    done_with_stage
}

fetch_corpus() {
    stage "Text: Jane Austen's six novels"
    local novels=("$corpus"/0[1-6]_*.txt)
    if [ ${#novels[@]} = 6 ] && [ -d "$corpus/train" ]; then done_with_stage "here already"; return; fi
    if ! "$PYTHON" data/austen.py --out "$corpus" >"$log" 2>&1; then
        # a fresh container has no package lists before apt-get update
        if command -v apt-get >/dev/null && find_root && update_packages >>"$log" 2>&1 &&
            "$PYTHON" data/austen.py --out "$corpus" >>"$log" 2>&1; then :
        else
            printf '\n'
            { grep -A 9 '^error:' "$log" || tail -n 25 "$log"; } | sed 's/^error: //' >&2
            exit 1
        fi
    fi
    done_with_stage "$(du -cb "$corpus"/0*.txt | awk 'END { printf "%.1f MB", $1 / 1e6 }')"
}

train_tokenizer() {
    stage "Tokenizer: 4096 tokens, learned from the training part"
    ./tokenize train --vocab=4096 --out="$corpus/tokenizer.json" "$corpus"/train/*.txt >"$log" 2>&1 ||
        fail_with_log "training the tokenizer failed"
    done_with_stage
}

encode() {
    stage "Token shards; the last tenth of each novel is for validation"
    rm -f "$corpus"/austen_*.bin
    ./tokenize encode --tokenizer="$corpus/tokenizer.json" --out="$corpus/austen" --val=0.1 "$corpus"/0*.txt \
        >"$log" 2>&1 || fail_with_log "encoding failed"
    done_with_stage
}

was_stopped() {             # the run there has these settings and a checkpoint, and has not reached its end
    local last
    compgen -G "$run_dir/step_*/manifest.json" >/dev/null || return 1
    last=$(grep -osE '^\{"event":"(start|resume|done)"' "$run_dir/metrics.jsonl" | tail -n 1) || return 1
    [[ $last != *done* ]] &&
        ./train_gpt scripts/quickstart.json "$@" --plan=full 2>/dev/null | sed -n '/^{/,/^}/p' |
        cmp -s - "$run_dir/config.json"
}

keep_earlier_run() {
    [ -e "$run_dir" ] || return 0
    if was_stopped "$@"; then
        echo "   the run in $run_dir was stopped: it goes on (to begin anew, remove the folder)"
        return
    fi
    local n=1
    while [ -e "$run_dir.$n" ]; do n=$((n + 1)); done
    mv "$run_dir" "$run_dir.$n"
    echo "   the earlier run is kept as $run_dir.$n"
}

train() {
    stage "Training (scripts/quickstart.json)"
    printf '\n'
    keep_earlier_run "$@"
    local code=0
    ./train_gpt scripts/quickstart.json "$@" || code=$?
    if [ "$code" != 0 ]; then
        # 75: stopped; train_gpt has said how to go on
        [ "$code" = 75 ] || printf '\nerror: train_gpt ended with exit code %d\n' "$code" >&2
        exit "$code"
    fi
    printf '%d. Trained: ' "$stage_number"
    done_with_stage
}

show() {
    printf '%d. Result\n' $((stage_number + 1))
    if "$PYTHON" -c 'import matplotlib' 2>/dev/null; then
        "$PYTHON" scripts/plot.py "$run_dir" >"$log" 2>&1 || cat "$log" >&2
    else
        echo "   no plot without matplotlib (apt-get install python3-matplotlib): scripts/plot.py $run_dir"
    fi
    "$PYTHON" scripts/summary.py "$run_dir" scripts/quickstart_gpt2.jsonl
    printf '\nSee it:      ./train_gpt --watch=runs (a page in the browser)\n'
    printf 'As a file:   ./train_gpt scripts/quickstart.json --report\n'
    printf 'More text:   ./train_gpt scripts/quickstart.json --generate="The lighthouse"\n'
    printf 'All of it:   %s/: %s\n' "$run_dir" "$(cd "$run_dir" && echo *)"
    printf 'Your text:   data/README.md\n'
}

started=$EPOCHREALTIME
prepare_machine
build
fetch_corpus
train_tokenizer
encode
train "$@"
show
echo "Done in $(seconds_since "$started")."

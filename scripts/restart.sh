#!/usr/bin/env bash
# Starts a training command again after a signal, a lost rank, a hang or a crash; each start goes on from the
# newest checkpoint. Gives up after three starts in a row without a new checkpoint, on errors that a new start
# does not mend (77, 78, 79), and when this script itself is asked to stop. A run is done when metrics.jsonl
# says so: mpirun --enable-recovery ends with 0 also after a rank's death.
#
#     scripts/restart.sh ./train_gpt CONFIG.json [--section.key=value ...]
#     scripts/restart.sh scripts/run_node.sh -n 8 CONFIG.json
#
# Paths are relative to the folder above scripts/. TERM, INT, HUP and USR2 are passed on as USR2: save and
# exit; USR1: save and go on. RESTARTS (3) and PAUSE (5 seconds) can be set.
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{s/^# //p;s/^#$//p}' "$0"; exit ;; esac
set -uo pipefail
cd "$(dirname "$0")/.." || exit 78
limit=${RESTARTS:-3} pause=${PAUSE:-5}
[ $# -gt 0 ] || { echo "usage: scripts/restart.sh COMMAND ..." >&2; exit 78; }

# run.dir is the option --run.dir=DIR or --run.dir DIR of the command line. Without the option, the first
# other argument decides: a config, the folder of a run or of a step, or a preset's name.
run_dir="" config="" folder="" option=""
first_argument() {
    local name=${1%/} run=""
    run=$(dirname "$name")
    if [[ $1 == *.json || $1 == \{* ]]; then config=$1
    elif [ -e "$name/manifest.json" ] && [ -e "$run/config.json" ]; then folder=$run
    elif [ -e "$name/manifest.json" ]; then config=$name/config.json
    elif [ -e "$name/config.json" ]; then folder=$name
    elif [[ $1 != */* ]] && [ -e "scripts/$1.json" ]; then config=scripts/$1.json
    fi
}
for a in "$@"; do
    case $option:$a in
        *:--run.dir=*) run_dir=${a#--run.dir=} ;;
        --run.dir:*) run_dir=$a ;;
        *:-*) ;;
        --*.*:*) ;;                             # its value
        *) [ -n "$config$folder" ] || first_argument "$a" ;;
    esac
    case $a in --*=*) option="" ;; *) option=$a ;; esac
done
run_dir=${run_dir:-$folder}
if [ -z "$run_dir" ] && [ -n "$config" ]; then
    # a broken config, or a config without run.dir, prints nothing: the command itself reports the error
    read_dir='import json, sys
a = sys.argv[1]
try: print(json.loads(a if a[0] == "{" else open(a, encoding="utf-8-sig").read())["run"]["dir"])
except (OSError, ValueError, LookupError, TypeError, RecursionError): pass'
    run_dir=$("${PYTHON:-/usr/bin/python3}" -c "$read_dir" "$config") || exit 78
fi
run_dir=${run_dir:-runs/default}
saved() { if [ -e "$run_dir/checkpoints.jsonl" ]; then wc -l <"$run_dir/checkpoints.jsonl"; else echo 0; fi; }

# Whether the command wrote rows of training, and the last one is not that of a run that is done.
unfinished() {
    [ "$(written)" != "$rows" ] && ! tail -n 1 "$run_dir/metrics.jsonl" | grep -q '^{"event":"done"'
}
written() { stat -c '%i %s %y' "$run_dir/metrics.jsonl" 2>/dev/null; }

# shellcheck source=scripts/child.sh
source scripts/child.sh

fruitless=0
while :; do
    before=$(saved) rows=$(written)
    run_child "$@"
    if [ "$code" = 0 ] && [ "$stop" = 0 ] && unfinished; then
        echo "restart.sh: ended with 0, but $run_dir/metrics.jsonl has no end of the run" >&2
        code=75
    fi
    case $code in 0 | 77 | 78 | 79) exit "$code" ;; esac
    [ "$stop" = 0 ] || exit "$code"
    if [ "$(saved)" -gt "$before" ]; then fruitless=0; else fruitless=$((fruitless + 1)); fi
    if [ "$fruitless" -ge "$limit" ]; then
        echo "restart.sh: ended with $code, $fruitless times in a row without a new checkpoint: giving up" >&2
        exit "$code"
    fi
    echo "restart.sh: ended with $code; starting again in $pause s" >&2
    sleep "$pause" & wait $!            # not in the foreground: a signal ends it
    [ "$stop" = 0 ] || exit "$code"
done

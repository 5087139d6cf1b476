#!/usr/bin/env bash
# Starts a training command again each time it ends by a signal, a lost rank, a hang or a crash; each start
# goes on from the newest checkpoint. Gives up after three starts in a row without a new checkpoint, on errors
# that a new start does not mend (77, 78, 79), and when it is asked to stop itself.
#
#     scripts/restart.sh ./train_gpt CONFIG.json [--section.key=value ...]
#     scripts/restart.sh scripts/run_node.sh -n 8 CONFIG.json
#
# USR2, TERM and INT are passed on as USR2: save and exit; USR1: save and go on. RESTARTS (3) and PAUSE (5
# seconds) can be set.
set -uo pipefail
limit=${RESTARTS:-3} pause=${PAUSE:-5}
[ $# -gt 0 ] || { echo "usage: scripts/restart.sh COMMAND ..." >&2; exit 78; }

# run.dir: of the command line, else of the config
run_dir="" config=""
for a in "$@"; do
    case $a in
        --run.dir=*) run_dir=${a#--run.dir=} ;;
        *.json) config=$a ;;
    esac
done
if [ -z "$run_dir" ] && [ -n "$config" ]; then
    read_dir='import json, sys; print(json.load(open(sys.argv[1])).get("run", {}).get("dir", "runs/default"))'
    run_dir=$("${PYTHON:-/usr/bin/python3}" -c "$read_dir" "$config") || exit 78
fi
saved() { if [ -e "$run_dir/checkpoints.jsonl" ]; then wc -l <"$run_dir/checkpoints.jsonl"; else echo 0; fi; }

stop=0 child=0 signalled=0
pass_on() { signalled=1; [ "$child" = 0 ] || kill "-$1" "$child" 2>/dev/null; }
trap 'stop=1; pass_on USR2' TERM INT USR2
trap 'pass_on USR1' USR1

await() {       # the exit code of $child, in $code; a signal to this shell ends wait early
    local again
    wait "$child"; code=$?
    while [ "$signalled" = 1 ]; do
        signalled=0
        wait "$child"; again=$?
        [ "$again" = 127 ] || code=$again
    done
    child=0
}

fruitless=0
while :; do
    before=$(saved)
    "$@" &
    child=$!
    await
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

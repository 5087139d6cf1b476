#!/usr/bin/env bash
# Two nodes and the ways to lose one. A node is a set of Linux namespaces; a pair of virtual network devices
# is the cable. mpirun starts its daemon on the second node by nsenter in place of ssh.
#
# Each way: the job ends within a limit, with 75 or 76 and a single error line; no process is left on a node;
# the same command goes on, and ends with the bytes of an undisturbed run. Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.." || exit
skip() { echo "skip  nodes: $1"; echo "0 passed, 0 failed, 1 skipped"; exit; }
for tool in ip nsenter unshare mpirun; do command -v "$tool" >/dev/null || skip "no $tool here"; done
unshare -n -u -m -p -i --fork true 2>/dev/null || skip "namespaces are forbidden here"

folder=$(mktemp -d /tmp/train_gpt_nodes.XXXXXX) first=0 second=0 passed=0 failed=0
processes() { pgrep -f "train_gpt .*$folder|orted .*$folder|mpirun .*$folder|nsenter .*$folder"; }
clean_up() {
    processes | xargs -r kill -KILL
    [ "$first" = 0 ] || kill -KILL "$first"
    [ "$second" = 0 ] || kill -KILL "$second"
    wait 2>/dev/null
    rm -rf "$folder"
}
trap clean_up EXIT
expect() {      # expect WHAT COMMAND ...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL  nodes: $what"; fi
}

# first, second: their outer processes; init: process 1 of the second node
make_nodes() {
    unshare -n -u bash -c "hostname node1; ip link set lo up; >$folder/up1; exec sleep infinity" & first=$!
    unshare -n -u -m -p -i --fork --kill-child --mount-proc \
        bash -c "hostname node2; ip link set lo up; >$folder/up2; exec sleep infinity" & second=$!
    until [ -e "$folder/up1" ] && [ -e "$folder/up2" ]; do sleep 0.05; done
    init=$(pgrep -P "$second")
    nsenter -t "$first" -n ip link add cable type veth peer name cable netns "$init" || return
    nsenter -t "$first" -n ip addr add 10.77.9.1/24 dev cable
    nsenter -t "$init" -n ip addr add 10.77.9.2/24 dev cable
    nsenter -t "$first" -n ip link set cable up
    nsenter -t "$init" -n ip link set cable up
    printf '#!/bin/bash\nshift\nexec nsenter -t %s -m -u -n -i -p -- bash -c "cd %s; $*"\n' "$init" "$PWD" \
        >"$folder/agent"
    chmod +x "$folder/agent"
}

make_config() {
    seq 4000 >"$folder/text.txt"
    ./tokenize train --vocab=260 --out="$folder/tokenizer.json" "$folder/text.txt" >/dev/null &&
        ./tokenize encode --tokenizer="$folder/tokenizer.json" --val=0.1 --out="$folder/text" \
            "$folder/text.txt" >/dev/null
    cat >"$folder/config.json" <<EOF
{"run": {"seed": 1, "threads": 1, "precision": "fp32", "hang_timeout": 4},
 "model": {"layers": 2, "heads": 2, "channels": 32, "context": 32, "vocab": 0},
 "data": {"train": "$folder/text_train_*.bin", "val": "$folder/text_val_*.bin",
          "tokenizer": "$folder/tokenizer.json"},
 "train": {"steps": 200, "batch_tokens": 256, "micro_batch": 1}, "eval": {"every": 0},
 "checkpoint": {"every": 10}, "parallel": {"zero": 2}}
EOF
}

train() {       # train NAME COMMAND ...: 4 ranks, two on each node
    local name=$1
    shift
    nsenter -t "$first" -n -u env PAUSE=1 MPIRUN_OPTIONS="--mca plm_rsh_agent $folder/agent \
        --mca orte_keep_fqdn_hostnames 1" "$@" -H 10.77.9.1,10.77.9.2 -n 2 "$folder/config.json" \
        --run.dir="$folder/$name" >>"$folder/$name.out" 2>>"$folder/$name.err"
}

start=(scripts/restart.sh scripts/run_nodes.sh)
first_try=(scripts/run_nodes.sh)
within() {      # within SECONDS COMMAND ...: waits until the command succeeds
    local end=$((SECONDS + $1))
    shift
    until "$@"; do [ $SECONDS -lt $end ] || return 1; sleep 0.2; done
}
gone() { ! kill -0 "$1" 2>/dev/null; }
nothing_left() { [ -z "$(processes)" ]; }
trains() {      # trains NAME STEPS
    local rows=$folder/$1/metrics.jsonl
    [ -e "$rows" ] && [ "$(grep -c '"train"' "$rows")" -ge "$2" ]
}
same_bytes() {
    (cd "$folder/$1" && sha256sum step_200/*.safetensors) |
        (cd "$folder/straight" && sha256sum -c --quiet -)
}
of_second() { pgrep -f "^$1 .*$folder"; }
signal_second() {       # every process of the second node but its first
    local p here
    here=$(readlink "/proc/$init/ns/pid")
    for p in /proc/[0-9]*; do
        p=${p#/proc/}
        if [ "$(readlink "/proc/$p/ns/pid" 2>/dev/null)" = "$here" ] && [ "$p" != "$init" ]; then
            kill "-$1" "$p"
        fi
    done
}

cut() { nsenter -t "$init" -n ip link set cable down; }
cut_mends() { nsenter -t "$init" -n ip link set cable up; }
frozen() { signal_second STOP; }
frozen_mends() { signal_second CONT; }
daemon() { of_second orted | xargs kill -KILL; }
connection() { of_second nsenter | xargs kill -KILL; }
supervisor() { kill -KILL "$(pgrep -P "$(of_second orted)" | head -n 1)"; }

lost() {        # lost WAY NAMES: NAMES is in the error line
    local way=$1 run code
    train "$way" "${first_try[@]}" & run=$!
    if ! within 60 trains "$way" 15; then expect "$way: it does not train" false; return; fi
    "$way"
    expect "$way: the job ends" within 60 gone "$run"
    wait "$run"
    code=$?
    if [ "$(type -t "${way}_mends")" = function ]; then "${way}_mends"; fi
    expect "$way: exit code $code" test $code = 75 -o $code = 76
    expect "$way: a line: $(grep '^error: ' "$folder/$way.err")" \
        test "$(grep -c '^error: ' "$folder/$way.err") $(grep -c "^error: .*$2" "$folder/$way.err")" = "1 1"
    expect "$way: processes are left: $(processes | tr '\n' ' ')" within 25 nothing_left
    expect "$way: goes on" train "$way" "${start[@]}"
    expect "$way: equal bytes" same_bytes "$way"
}

make_nodes || skip "no virtual network devices here"
make_config || exit
expect "a run on two nodes: $(tail -n 3 "$folder/straight.err" 2>/dev/null)" train straight "${start[@]}"
lost cut 'on node2'
lost frozen 'on node2'
lost daemon 'mpirun ended with'
lost connection 'mpirun ended with'
lost supervisor 'mpirun ended with'
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

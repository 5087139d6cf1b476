# shellcheck shell=bash disable=SC2034,SC2154
# Sourced. Nodes made of Linux namespaces, their cables at a bridge, for test/nodes.sh, elastic_nodes.sh and
# slurm.sh.
#
#     make_nodes COUNT            in_hub COMMAND ...          on K COMMAND ...: on node K, 1 to COUNT
#
# $test is the test's name, $net the first three numbers of its network. The hub has the bridge, and all
# processes of this host. All nodes know each other's names. Files of the test are below $folder.
skip() { echo "skip  $test: $1"; echo "0 passed, 0 failed, 1 skipped"; exit; }
for tool in ip nsenter unshare; do command -v "$tool" >/dev/null || skip "no $tool here"; done
unshare -n -u -m -p -i --fork true 2>/dev/null || skip "namespaces are forbidden here"

folder=$(mktemp -d "/tmp/train_gpt_$test.XXXXXX") passed=0 failed=0 hub=0 nodes=() inits=()
chmod 755 "$folder"
clean_up() {
    kill_rest
    kill -KILL "${nodes[@]}" "$hub" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$folder"
}
trap clean_up EXIT
expect() {      # expect WHAT COMMAND ...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL  $test: $what"; fi
}
within() {      # within SECONDS COMMAND ...: waits until the command succeeds
    local end=$((SECONDS + $1))
    shift
    until "$@"; do [ $SECONDS -lt $end ] || return 1; sleep 0.2; done
}
gone() { ! kill -0 "$1" 2>/dev/null; }
nothing_left() { [ -z "$(pgrep -f "train_gpt .*$folder")" ]; }
in_hub() { nsenter -t "$hub" -n -u -m "--wd=$PWD" -- "$@"; }
on() { local k=$1; shift; nsenter -t "${inits[$k]}" -m -u -n -i -p -- "$@"; }
address() { echo "$net.$1"; }

make_ssh() {    # $folder/remote ADDRESS COMMAND ...: nsenter in place of ssh. Words of the command are joined
    local k
    # shellcheck disable=SC2016
    printf '#!/bin/bash\ncase $1 in' >"$folder/remote"
    for k in "${!inits[@]}"; do
        printf ' %s) init=%s ;;' "$(address "$k")" "${inits[$k]}" >>"$folder/remote"
    done
    # shellcheck disable=SC2016
    printf ' esac\nshift\nexec nsenter -t "$init" -m -u -n -i -p -- bash -c "cd %s; $*" ssh %s\n' "$PWD" \
        "$folder" >>"$folder/remote"
    chmod +x "$folder/remote"
}

make_nodes() {
    local k up="mount --bind $folder/hosts /etc/hosts; ip link set lo up; >$folder/up"
    printf '127.0.0.1 localhost\n%s hub\n' "$(address 100)" >"$folder/hosts"
    for ((k = 1; k <= $1; k++)); do echo "$(address "$k") node$k" >>"$folder/hosts"; done
    unshare -n -u -m sh -c "hostname hub; ip link add name switch type bridge &&
        ip addr add $(address 100)/24 dev switch && ip link set switch up && $up
        exec sleep infinity" & hub=$!
    within 5 test -e "$folder/up" || return
    for ((k = 1; k <= $1; k++)); do
        unshare -n -u -m -p -i --fork --kill-child --mount-proc \
            sh -c "hostname node$k; mount -t tmpfs shm /dev/shm; $up$k; exec sleep infinity" & nodes[k]=$!
        within 5 test -e "$folder/up$k" || return
        inits[k]=$(pgrep -P "${nodes[$k]}")
        in_hub ip link add name "cable$k" type veth peer name cable netns "${inits[$k]}" || return
        in_hub ip link set "cable$k" master switch up
        on "$k" ip addr add "$(address "$k")/24" dev cable
        on "$k" ip link set cable up
    done
}

make_config() { # make_config STEPS CHECKPOINT_EVERY
    seq 4000 >"$folder/text.txt"
    ./tokenize train --vocab=260 --out="$folder/tokenizer.json" "$folder/text.txt" >/dev/null &&
        ./tokenize encode --tokenizer="$folder/tokenizer.json" --val=0.1 --out="$folder/text" \
            "$folder/text.txt" >/dev/null
    cat >"$folder/config.json" <<END
{"run": {"seed": 1, "threads": 1, "precision": "fp32", "hang_timeout": 30},
 "model": {"layers": 2, "heads": 2, "channels": 32, "context": 32, "vocab": 0},
 "data": {"train": "$folder/text_train_*.bin", "val": "$folder/text_val_*.bin",
          "tokenizer": "$folder/tokenizer.json"},
 "train": {"steps": $1, "batch_tokens": 256, "micro_batch": 1}, "eval": {"every": 0},
 "checkpoint": {"every": $2}, "parallel": {"zero": 2}}
END
}

trains() {      # trains NAME STEPS
    local rows=$folder/$1/metrics.jsonl
    [ -e "$rows" ] && [ "$(grep -c '"train"' "$rows")" -ge "$2" ]
}
rows_of() { grep -c "\"event\":\"$2\"" "$folder/$1/metrics.jsonl"; }
same_bytes() {  # same_bytes NAME STEPS: those of four threads
    if [ ! -e "$folder/straight$2" ]; then
        ./train_gpt "$folder/config.json" --parallel.ranks=4 --parallel.transport=threads \
            --train.steps="$2" --run.dir="$folder/straight$2" >"$folder/straight$2.out" 2>&1 || return
    fi
    (cd "$folder/$1" && sha256sum "step_$2"/*.safetensors) |
        (cd "$folder/straight$2" && sha256sum -c --quiet -)
}

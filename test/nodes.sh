#!/usr/bin/env bash
# mpirun on two nodes, and the ways to lose one. Its daemon on the second node starts by nsenter, not by ssh.
#
# Each way: the job ends within a limit, with 75 or 76 and a single error line; no process is left on a node;
# the same command goes on, and ends with the bytes of an undisturbed run. Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.." || exit
test=nodes net=10.77.9
# shellcheck source=test/namespaces.sh
source test/namespaces.sh
command -v mpirun >/dev/null || skip "no mpirun here"
processes() { pgrep -f "train_gpt .*$folder|orted .*$folder|mpirun .*$folder|nsenter .*$folder"; }
kill_rest() { processes | xargs -r kill -KILL; }
nothing_left() { [ -z "$(processes)" ]; }

# mpirun runs on the first node, and sees all processes of this host.
train() {       # train NAME COMMAND ...: 4 ranks, two on each node
    local name=$1 options="--mca plm_rsh_agent $folder/remote --mca orte_keep_fqdn_hostnames 1"
    shift
    nsenter -t "${inits[1]}" -n -u env PAUSE=1 MPIRUN_OPTIONS="$options" \
        "$@" -H "$(address 1),$(address 2)" -n 2 "$folder/config.json" --run.hang_timeout=4 \
        --run.dir="$folder/$name" >>"$folder/$name.out" 2>>"$folder/$name.err"
}
start=(scripts/restart.sh scripts/run_nodes.sh)
first_try=(scripts/run_nodes.sh)

cut() { in_hub ip link set cable2 down; }
cut_mends() { in_hub ip link set cable2 up; }
frozen() { on 2 kill -STOP -1; }        # all processes of the node but its first
frozen_mends() { on 2 kill -CONT -1; }
daemon() { on 2 pkill -KILL orted; }
connection() { pkill -KILL -f "^nsenter -t ${inits[2]} .*$folder"; }
# shellcheck disable=SC2016
supervisor() { on 2 sh -c 'kill -KILL "$(pgrep -P "$(pgrep -o orted)" | head -n 1)"'; }

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
    expect "$way: equal bytes" same_bytes "$way" 200
}

make_nodes 2 || skip "no virtual network devices here"
make_ssh
make_config 200 10 || exit
train calm "${start[@]}"
expect "a run on two nodes: $(tail -n 3 "$folder/calm.err")" same_bytes calm 200
lost cut 'on node2'
lost frozen 'on node2'
lost daemon 'mpirun ended with'
lost connection 'mpirun ended with'
lost supervisor 'mpirun ended with'
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

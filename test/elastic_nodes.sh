#!/usr/bin/env bash
# Agents on three nodes, started by scripts/run_nodes.sh --elastic through an sshd on each node (without
# Debian's openssh-server: nsenter in place of ssh).
#
# An agent dies, an ssh ends, ^C stops all: the run goes on, to the bytes of an undisturbed run. A cable that
# stays cut makes two sides: the side with the lease goes on, the agents of the other end with 75. Parts can
# be named: test/elastic_nodes.sh spare alone. Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.." || exit
test=elastic_nodes net=10.77.7
# shellcheck source=test/namespaces.sh
source test/namespaces.sh
kill_rest() { pgrep -f "train_gpt .*$folder|sshd.*$folder|ssh .*$folder" | xargs -r kill -KILL; }
two=$(address 1),$(address 2)

# Without an sshd: nsenter in place of ssh. real: whether ssh is OpenSSH's
choose_ssh() {
    local k words options="-o HostKey=$folder/host_key -o PidFile=none -o UsePAM=no -o StrictModes=no"
    options+=" -o AuthorizedKeysFile=$folder/key.pub -o PermitRootLogin=yes"
    real=0
    make_ssh
    export SSH=$folder/remote
    [ -x /usr/sbin/sshd ] || return 0
    for k in host_key key; do ssh-keygen -q -t ed25519 -N '' -f "$folder/$k"; done
    for k in 1 2 3; do
        on "$k" sh -c "mkdir -p /run/sshd; /usr/sbin/sshd -f /dev/null -E $folder/sshd$k.log $options"
    done
    words="ssh -F /dev/null -i $folder/key -o BatchMode=yes -o StrictHostKeyChecking=no"
    words+=" -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ServerAliveInterval=5"
    # shellcheck disable=SC2086
    for k in 1 2 3; do within 5 in_hub $words "$(address "$k")" true || return 0; done
    export SSH=$words
    real=1
}

agent_on() { on "$1" pgrep -o -f "^./train_gpt .*$folder"; }     # by the node's numbers

# launch NAME HOSTS: four ranks; steps of 10 ms or more, so that there is time for what comes. Commands in the
# background ignore SIGINT otherwise.
launch() {
    FAULT=train:1:10 PAUSE=1 nsenter -t "$hub" -n -u -m "--wd=$PWD" -- env --default-signal=INT \
        scripts/run_nodes.sh --elastic -H "$2" -n 2 "$folder/config.json" --run.dir="$folder/$1" \
        >>"$folder/$1.out" 2>>"$folder/$1.err" &
    run=$!
}

ends() {        # ends NAME SECONDS CODE
    local code
    expect "$1: the job ends" within "$2" gone "$run"
    if ! gone "$run"; then kill -KILL "$run"; fi
    wait "$run" 2>/dev/null
    code=$?
    expect "$1: exit code $code: $(tail -n 2 "$folder/$1.err")" test "$code" = "$3"
    expect "$1: processes are left" within 10 nothing_left
}

lost() {        # lost WAY COMMAND ...: the command takes the second node from a run that trains
    local way=$1
    shift
    launch "$way" "$two"
    expect "$way: trains" within 60 trains "$way" 20 || return
    "$@"
    ends "$way" 240 0
    expect "$way: two ranks are lost" test "$(rows_of "$way" lost)" = 2
    expect "$way: equal bytes" same_bytes "$way" 600
}
kill_agent() { on 2 kill -KILL "$(agent_on 2)"; }
kill_ssh() { pkill -KILL -P "$run" -f "$(address 2)"; }
agent_dies() { lost agent kill_agent; }
ssh_ends() { lost ssh_ends kill_ssh; }

interrupt() {
    launch stops "$two"
    expect "stops: trains" within 60 trains stops 20 || return
    kill -INT "$run"
    ends stops 30 75
    expect "stops: saved" compgen -G "$folder/stops/step_*/manifest.json" >/dev/null
    launch stops "$two"
    ends stops 240 0
    expect "stops: equal bytes" same_bytes stops 600
}

script_dies() {
    launch dies "$two"
    expect "script: trains" within 60 trains dies 20 || return
    kill -KILL "$run"
    expect "script: nothing trains on" within 20 nothing_left
}

# An agent of its own on each of three nodes: agents without the script, which starts lost ones again.
start_agent() { # start_agent NAME K OPTIONS ...
    local name=$1 k=$2
    shift 2
    # shellcheck disable=SC2016
    FAULT=train:1:10 MASTER_ADDR=$(address "$k") on "$k" sh -c 'cd "$1"; shift; exec "$@"' sh "$PWD" \
        ./train_gpt "$folder/config.json" --run.dir="$folder/$name" --run.elastic=true --run.slots=2 \
        --parallel.ranks=4 --run.hang_timeout=4 "$@" \
        >"$folder/$name$k.out" 2>&1 & agents[k]=$!
}
partition() {   # partition NAME STEPS CUT GOES_ON OPTIONS ...: the nodes whose agents go on, and end with 0
    local name=$1 steps=$2 cut=$3 goes_on=$4 k code before
    shift 4
    agents=()
    for k in 1 2 3; do
        start_agent "$name" "$k" --train.steps="$steps" "$@"
        within 20 test -e "$folder/$name/lease"
    done
    expect "$name: trains" within 60 trains "$name" 100
    in_hub ip link set "cable$cut" down
    for k in 1 2 3; do
        if [[ $goes_on == *$k* ]]; then continue; fi
        expect "$name: the agent on node $k ends" within 60 gone "${agents[$k]}"
    done
    before=$(rows_of "$name" train)
    expect "$name: the side with the lease trains on" within 20 trains "$name" $((before + 20))
    for k in 1 2 3; do
        code=0
        within 400 gone "${agents[$k]}" || kill -KILL "${agents[$k]}"
        wait "${agents[$k]}" 2>/dev/null || code=$?
        if [[ $goes_on == *$k* ]]; then expect "$name: node $k, exit code $code" test "$code" = 0
        else expect "$name: node $k, exit code $code" test "$code" = 75; fi
    done
    in_hub ip link set "cable$cut" up
    expect "$name: each step stands once" test "$(rows_of "$name" train)" = "$steps"
    expect "$name: processes are left" within 10 nothing_left
}

spare() {
    partition spare 4000 2 13
    expect "spare: equal bytes" same_bytes spare 4000
}
alone() { partition alone 4000 1 1 --run.min_ranks=2; }

make_nodes 3 || skip "no virtual network devices here"
choose_ssh
[ "$real" = 1 ] || echo "note  elastic_nodes: nsenter in place of ssh (apt-get install openssh-server)"
make_config 600 100000 || exit
[ $# != 0 ] || set -- agent_dies ssh_ends interrupt script_dies spare alone
for part in "$@"; do "$part"; done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

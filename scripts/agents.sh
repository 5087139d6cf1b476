# shellcheck shell=bash disable=SC2154
# Sourced, behind child.sh. Agents of a run with run.elastic, one a host, each below an ssh of its own.
#
#     run_agents HOSTS SLOTS ARGUMENTS ...        exits with the exit code of the job
#
# The other hosts go on when a host dies, or its ssh ends. While another agent lives, a lost agent is started
# again after PAUSE (5) seconds. Behind exit code 75 it takes 10 s more: where the job ends, all end by then.
# TERM, INT, HUP and USR2 to this shell go to all agents as USR2, save and exit; USR1 as USR1. An agent whose
# ssh is gone is killed: nothing trains on without this shell. SSH ("ssh ..."): another command or options.
ssh_words=()
read -d '' -ra ssh_words <<<"${SSH:-ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 \
    -o ServerAliveCountMax=3}" || true

# On the host. Its input is the secret, then a signal a line: ssh passes no signals on. The agent's own input
# is empty. At the end of the input the agent dies.
# shellcheck disable=SC2016
on_host='read -r TRAIN_GPT_SECRET; [ -z "$TRAIN_GPT_SECRET" ] || export TRAIN_GPT_SECRET
exec 3<&0; "$@" </dev/null 3<&- & agent=$!
{ while read -r signal; do kill "-$signal" "$agent"; done; kill -KILL "$agent"; } <&3 2>/dev/null & reader=$!
exec 3<&-; wait "$agent" 2>/dev/null; code=$?; kill "$reader" 2>/dev/null; exit "$code"'

agents=() hosts=() pipes=() start_at=() codes=()    # by host; agents: processes of ssh, 0 where there is none
over=                                               # when agents that miss the end of the job are told
tell() { if [ "${agents[$1]}" != 0 ]; then echo "$2" >&"${pipes[$1]}"; fi; }
pass_on() { local k; for k in "${!agents[@]}"; do tell "$k" "$1"; done; }

start_agent() {         # start_agent K ARGUMENTS ...
    local k=$1 host=${hosts[$1]} words pipe=$folder/$1 end
    shift
    words=$(printf ' %q' env "MASTER_ADDR=${host##*@}" ./train_gpt "$@")
    words="cd $(printf %q "$PWD") && exec bash -c $(printf %q "$on_host") on_host$words"
    rm -f "$pipe"
    mkfifo "$pipe"
    exec {end}<>"$pipe"
    "${apart[@]}" "${ssh_words[@]}" "$host" "$words" <"$pipe" {end}>&- &
    agents[k]=$! pipes[k]=$end
    echo "$given_secret" >&"${pipes[k]}"
}

# The exit code of the job, of those of its agents: the job's own end, an error, or what can start again.
code_of_job() {
    local wanted
    for wanted in 0 77 79 78 76; do
        if [[ " ${codes[*]} " == *" $wanted "* ]]; then echo "$wanted"; return; fi
    done
    echo 75
}

reap_agent() {          # reap_agent K: whether it has ended
    local k=$1 end=${pipes[$1]} code=0
    if [ "${agents[$k]}" = 0 ] || kill -0 "${agents[$k]}" 2>/dev/null; then return 1; fi
    wait "${agents[$k]}" 2>/dev/null || code=$?
    agents[k]=0
    exec {end}>&-
    codes[k]=$code
    start_at[k]=$((SECONDS + ${PAUSE:-5}))
    case $code in
        0 | 77 | 79) start_at[k]=-1 over=${over:-$((SECONDS + 10))} ;;
        1 | 76 | 78) start_at[k]=-1 ;;
        75) start_at[k]=$((start_at[k] + 10)) ;;
        12[67]) start_at[k]=-1; echo "error: ${hosts[$k]} cannot start $PWD/train_gpt" >&2 ;;
        *) echo "error: the agent on ${hosts[$k]}, or its ssh, ended with $code" >&2 ;;
    esac
}

reap_agents() {         # whether one lives
    local k living=1
    for k in "${!hosts[@]}"; do
        reap_agent "$k" || true
        if [ "${agents[$k]}" != 0 ]; then living=0; fi
    done
    return "$living"
}

due() {                 # due K: whether its agent is to be started again
    [ "$stop$over${agents[$1]}" = 00 ] && [ "${start_at[$1]}" -ge 0 ] && [ "$SECONDS" -ge "${start_at[$1]}" ]
}

run_agents() {
    local k slots=$2 config=$3
    IFS=, read -ra hosts <<<"$1"
    shift 3
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    set -- "$config" --run.elastic=true "--run.slots=$slots" \
        "--parallel.ranks=$((${#hosts[@]} * slots))" "$@"
    for k in "${!hosts[@]}"; do start_agent "$k" "$@"; done
    while reap_agents; do
        for k in "${!hosts[@]}"; do
            if due "$k"; then start_agent "$k" "$@"; fi
        done
        if [ -n "$over" ] && [ "$SECONDS" -ge "$over" ]; then pass_on USR2; over=$((SECONDS + 10)); fi
        { sleep 0.3 & wait $! || true; } 2>/dev/null        # not in the foreground: a signal ends it
    done
    exit "$(code_of_job)"
}

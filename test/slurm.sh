#!/usr/bin/env bash
# Training under a real Slurm: slurmctld on the hub, slurmd on three nodes, munge (Debian's slurmctld, slurmd,
# slurm-client, munge).
#
# A job of scripts/run_slurm.sh loses a rank, and restarts; it is requeued, and resumes. With --elastic an
# agent dies, and the ranks of a spare go on. Each ends with the bytes of an undisturbed run. Ends with
# "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.." || exit
test=slurm net=10.77.6
# shellcheck source=test/namespaces.sh
source test/namespaces.sh
kill_rest() {
    pgrep -f "train_gpt .*$folder" | xargs -r kill -KILL
    pgrep -f "(slurmctld|slurmd|munged|srun) .*$folder" | xargs -r kill -KILL
}
for tool in munged slurmctld slurmd srun sbatch; do
    command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin
    command -v "$tool" >/dev/null ||
        skip "no $tool (apt-get install slurmctld slurmd slurm-client munge)"
done

make_slurm() {
    mkdir -p "$folder/state" "$folder/spool"
    cat >"$folder/slurm.conf" <<END
ClusterName=test
SlurmctldHost=hub($(address 100))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
ReturnToService=2
SchedulerParameters=sched_interval=2,bf_interval=2
NodeName=node1 NodeAddr=$(address 1) CPUs=8
NodeName=node2 NodeAddr=$(address 2) CPUs=8
NodeName=node3 NodeAddr=$(address 3) CPUs=8
PartitionName=all Nodes=node1,node2,node3 Default=YES MaxTime=INFINITE State=UP
END
    export SLURM_CONF=$folder/slurm.conf
    dd if=/dev/urandom of="$folder/munge.key" bs=128 count=1 2>/dev/null
    chmod 400 "$folder/munge.key"
    munged --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
        --pid-file="$folder/munge.pid" --log-file="$folder/munge.log" --seed-file="$folder/munge.seed" \
        >"$folder/munged.out" 2>&1 || return
    in_hub slurmctld -D -f "$SLURM_CONF" >"$folder/slurmctld.out" 2>&1 &
    for k in 1 2 3; do on "$k" slurmd -D -f "$SLURM_CONF" >"$folder/slurmd$k.out" 2>&1 & done
    within 30 all_idle
}
all_idle() { [ "$(in_hub sinfo -h -t idle -o %D 2>/dev/null)" = 3 ]; }
state_is() { [ "$(in_hub squeue -h -j "$1" -o %T 2>/dev/null)" = "$2" ]; }
job_ended() { in_hub scontrol show job "$1" | grep -qE 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT)'; }
done_there() { tail -n 1 "$folder/$1/metrics.jsonl" | grep -q '"event":"done"'; }
of_node() { on "$1" pgrep -f "^[^ ]*train_gpt .*$folder"; }      # by the node's numbers

# submit NAME SBATCH_OPTIONS ... -- [--elastic] OPTIONS ...: two ranks a node; prints the job's number
submit() {
    local name=$1 options=() elastic=()
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    if [ "${1:-}" = --elastic ]; then elastic=("$1"); shift; fi
    FAULT=train:1:10 SRUN_OPTIONS=--mpi=none PAUSE=1 in_hub sbatch --parsable --nodes=2 \
        --nodelist=node1,node2 --ntasks-per-node=2 --cpus-per-task=1 "${options[@]}" \
        --output="$folder/$name.log" scripts/run_slurm.sh "${elastic[@]}" "$folder/config.json" \
        --run.dir="$folder/$name" "$@"
}

rank_dies() {
    local job
    job=$(submit rank --)
    expect "rank: trains" within 60 trains rank 60 || return
    on 2 kill -KILL "$(of_node 2 | tail -n 1)"
    expect "rank: the job ends" within 120 job_ended "$job"
    expect "rank: done" done_there rank
    expect "rank: a line" grep -q '^error: rank [0-9] .*on node2' "$folder/rank.log"
    expect "rank: it starts again" grep -q '^restart.sh: ended with 75' "$folder/rank.log"
    expect "rank: equal bytes" same_bytes rank 600
}

requeued() {
    local job
    job=$(submit requeued --)
    expect "requeued: trains" within 60 trains requeued 60 || return
    in_hub scontrol requeue "$job"
    expect "requeued: pends" within 30 state_is "$job" PENDING
    in_hub scontrol update JobId="$job" StartTime=now || true
    expect "requeued: the job ends" within 240 job_ended "$job"
    expect "requeued: done: $(in_hub scontrol show job "$job" | grep -E 'State|ExitCode')
        $(grep -v '/600 ' "$folder/requeued.log" | tail -n 5)" done_there requeued
    expect "requeued: it has resumed" grep -q '"event":"resume"' "$folder/requeued/metrics.jsonl"
    expect "requeued: equal bytes" same_bytes requeued 600
}

agent_dies() {
    local job spare
    job=$(submit agent --no-kill -- --elastic)
    expect "agent: trains" within 60 trains agent 20 || return
    spare=$(submit agent --no-kill --nodes=1 --nodelist=node3 -- --elastic --parallel.ranks=4)
    expect "agent: trains beside a spare" within 60 trains agent 100
    on 2 kill -KILL "$(of_node 2 | head -n 1)"
    expect "agent: the job ends" within 240 job_ended "$job"
    expect "agent: the spare's job ends" within 60 job_ended "$spare"
    expect "agent: done: $(tail -n 3 "$folder/agent.log")" done_there agent
    expect "agent: two ranks are lost" test "$(rows_of agent lost)" = 2
    expect "agent: equal bytes" same_bytes agent 600
}

make_nodes 3 || skip "no virtual network devices here"
make_config 600 50 || exit
if ! make_slurm; then
    tail -n 5 "$folder"/munged.out "$folder"/slurm*.out "$folder"/slurm*.log 2>/dev/null
    skip "Slurm does not start here"
fi
[ $# != 0 ] || set -- rank_dies requeued agent_dies
for part in "$@"; do "$part"; done
expect "processes are left" within 10 nothing_left
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

#!/usr/bin/env bash
# Trains on several machines with mpirun, or with agents that outlive ranks and hosts (--elastic); with Slurm,
# use scripts/run_slurm.sh.
#
#     scripts/run_nodes.sh [--elastic] -H HOST,... [-n RANKS_PER_HOST] CONFIG.json [--section.key=value ...]
#
# Every host sees this folder (and the data and run.dir) under the same path, and can be reached by ssh
# without a password. RANKS_PER_HOST (8): a rank per GPU. Ranks are numbered host by host, so that tensor
# parallelism, whose ranks are neighbours, stays within a machine. MPIRUN_OPTIONS are passed on: with several
# networks, choose one by "--mca btl_tcp_if_include eth0". Signals and exit codes: scripts/run_node.sh.
#
# --elastic: ssh starts an agent on each host (run.elastic), with RANKS_PER_HOST slots; for hosts to spare,
# give fewer --parallel.ranks than there are slots. A lost host ends no other; its agent is started again.
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{s/^# //p;s/^#$//p}' "$0"; exit ;; esac
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n 's/^#     //p' "$0" >&2; exit 78; }
list='' per_host=8 elastic=0
if [ "${1:-}" = --elastic ]; then elastic=1; shift; fi
while getopts 'H:n:' option; do
    case $option in H) list=$OPTARG ;; n) per_host=$OPTARG ;; *) usage ;; esac
done
shift $((OPTIND - 1))
if [ -z "$list" ] || [ $# = 0 ]; then usage; fi

if [ "$elastic" = 1 ]; then
    # shellcheck source=scripts/child.sh
    source scripts/child.sh
    # shellcheck source=scripts/agents.sh
    source scripts/agents.sh
    run_agents "$list" "$per_host" "$@"
fi

slots='' count=0
for host in ${list//,/ }; do
    slots+="${slots:+,}$host:$per_host"
    count=$((count + 1))
done
options=(-q -H "$slots" -np $((count * per_host)) --map-by slot --bind-to none -x TRAIN_GPT_SECRET)
# shellcheck source=scripts/child.sh
source scripts/child.sh
run_ranks "$@"

#!/usr/bin/env bash
# Trains on one machine with several ranks: a process each, started by mpirun.
#
#     scripts/run_node.sh [-n RANKS] CONFIG.json [--section.key=value ...]
#
# RANKS: a rank per GPU, or per NUMA node on a machine without GPUs. The mesh is parallel.tp, parallel.pp and
# parallel.zero; the rest is data-parallel. To save and go on: kill -USR1 (to this process); to save and stop:
# kill -TERM, -INT, -HUP or -USR2, or ^C; the exit code is 75 then. Exit codes are those of train_gpt: 75 and
# 76 also mean that a rank died or hung; an output line names the rank. MPIRUN_OPTIONS are passed on.
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{s/^# //p;s/^#$//p}' "$0"; exit ;; esac
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n 's/^#     //p' "$0" >&2; exit 78; }
gpus() { nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true; }
numa_nodes() { find /sys/devices/system/node -maxdepth 1 -name 'node[0-9]*' 2>/dev/null | wc -l; }

ranks=
while getopts 'n:' option; do
    case $option in n) ranks=$OPTARG ;; *) usage ;; esac
done
shift $((OPTIND - 1))
if [ $# = 0 ]; then usage; fi
if [ -z "$ranks" ]; then ranks=$(gpus); fi
if [ "$ranks" = 0 ]; then ranks=$(numa_nodes); fi
if [ "$ranks" = 0 ]; then ranks=1; fi

command -v mpirun >/dev/null || {
    echo "error: no mpirun (apt-get install openmpi-bin libopenmpi-dev, then make). Ranks as threads of one" \
        "process need none: ./train_gpt CONFIG.json --parallel.ranks=$ranks" >&2
    exit 78
}
options=(-q -np "$ranks")
# with more ranks than cores, or than NUMA nodes, the kernel places ranks better
if [ "$ranks" -gt "$(nproc)" ]; then options+=(--oversubscribe --bind-to none)
elif [ "$ranks" -gt "$(numa_nodes)" ]; then options+=(--bind-to none)
else options+=(--map-by numa --bind-to numa); fi
# shellcheck source=scripts/child.sh
source scripts/child.sh
run_ranks "$@"

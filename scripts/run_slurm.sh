#!/usr/bin/env bash
# Trains on machines that Slurm gives:
#
#     sbatch [--nodes=N --ntasks-per-node=RANKS --cpus-per-task=CORES] scripts/run_slurm.sh CONFIG.json [...]
#     sbatch --no-kill [...] scripts/run_slurm.sh --elastic CONFIG.json [...]
#
# A task is a rank, on a GPU of its own with --gpus-per-node. Three minutes before the time limit the run
# saves and ends with 75, and `scontrol requeue JOB` goes on from there; `scancel --signal=USR1 JOB` saves and
# goes on. When a rank dies, a line of the log names the rank and the cause, Slurm ends the other ranks, and
# scripts/restart.sh starts the job again from its newest checkpoint. SRUN_OPTIONS replace "--mpi=pmix", which
# may have another name (srun --mpi=list).
#
# --elastic: an agent on each node (run.elastic), with RANKS slots; for nodes to spare, give fewer
# --parallel.ranks than there are slots. A lost node ends no other, and --no-kill keeps Slurm from ending the
# job. Nodes that come later join by another sbatch with the same run.dir and --parallel.ranks.
#SBATCH --job-name=train_gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --exclusive
#SBATCH --signal=B:USR2@180
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{s/^# //p;s/^#$//p}' "$0"; exit ;; esac
set -euo pipefail
elastic=0
if [ "${1:-}" = --elastic ]; then elastic=1; shift; fi
if [ -z "${SLURM_JOB_ID:-}" ] || [ $# = 0 ]; then sed -n 's/^#     //p' "$0" >&2; exit 78; fi
cd "$SLURM_SUBMIT_DIR"          # Slurm runs a copy of this script
# srun does not take this from sbatch, and alone gives a task one core: ask for a share of the node's
cores=${SLURM_CPUS_PER_TASK:-} tasks=${SLURM_NTASKS_PER_NODE:-${SLURM_TASKS_PER_NODE:-1}}
tasks=${tasks%%[!0-9]*}         # "8(x2)"
if [ -z "$cores" ]; then cores=$((${SLURM_CPUS_ON_NODE:-0} / ${tasks:-1})); fi
if [ "$elastic" = 1 ]; then
    if [ "$cores" -gt 0 ]; then export SRUN_CPUS_PER_TASK=$((cores * tasks)); fi
    config=$1
    shift
    set -- "$config" --run.elastic=true "--run.slots=$tasks" \
        "--parallel.ranks=$((SLURM_NNODES * tasks))" "$@"
    read -ra more <<<"${SRUN_OPTIONS:-} --ntasks=$SLURM_NNODES --ntasks-per-node=1"
    # agents of several jobs know each other by the secret of their run, if by none that the user has set
    secret=()
    if [ -z "${TRAIN_GPT_SECRET:-}" ]; then secret=(env -u TRAIN_GPT_SECRET); fi
    exec scripts/restart.sh "${secret[@]}" srun --no-kill --kill-on-bad-exit=0 "${more[@]}" \
        ./train_gpt "$@"
fi
if [ "$cores" -gt 0 ]; then export SRUN_CPUS_PER_TASK=$cores; fi
read -ra more <<<"${SRUN_OPTIONS:---mpi=pmix}"
exec scripts/restart.sh srun --kill-on-bad-exit=1 "${more[@]}" ./train_gpt "$@"

#!/bin/sh
# make bench-checkpoint: a table on screen, one JSON under dev/results/. DIR= is a folder on the disk to
# measure, with 5 GB free (runs/).
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{s/^# //p;s/^#$//p}' "$0"; exit ;; esac
set -eu
cd "$(dirname "$0")/.."
dir=${DIR:-runs}/bench_checkpoint
mkdir -p dev/results
json=dev/results/checkpoint_$(date -u +%Y%m%d_%H%M%S).json
"${BUILD:?}/dev/bench_checkpoint" --dir="$dir" --json="$json"
echo "$json"

#!/bin/sh
# make bench-ranks: two ranks of one thread each against one rank of two threads, by MPI and by threads, on
# every axis; tp and cp also with rows of 4,096 tokens. A table on screen, one JSON under dev/results/.
# BENCH="fp32 bf16" chooses precisions.
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{s/^# //p;s/^#$//p}' "$0"; exit ;; esac
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2086  # BENCH is a list of words
exec "${PYTHON:-/usr/bin/python3}" dev/bench_ranks.py ${BENCH:-bf16}

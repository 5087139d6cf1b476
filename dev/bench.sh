#!/bin/sh
# make bench: operations one by one; whole steps of GPT-2 124M and of a Llama against the matmul rate of the
# same run; Muon's share of a step; the cost of log.trace and of log files; scores; --plan; ./tokenize. Tables
# on screen, one JSON under dev/results/, which is whole after each part.
# BENCH="bf16 trace scores" chooses precisions (fp32, bf16) and parts (ops, steps, muon, trace, scores,
# quickstart, plans, tokenizer); without names of one kind, all of that kind.
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{s/^# //p;s/^#$//p}' "$0"; exit ;; esac
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2086  # BENCH is a list of words
exec "${PYTHON:-/usr/bin/python3}" dev/bench.py "${BUILD:-build/cpu-native}" ${BENCH:-}

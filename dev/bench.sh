#!/bin/sh
# make bench: operations one by one, then whole steps of GPT-2 124M against the matmul rate of the same run,
# then ./tokenize. Tables on screen, one JSON under dev/results/. PRECISIONS="fp32 bf16" chooses.
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2086  # PRECISIONS is a list of words
exec "${PYTHON:-/usr/bin/python3}" dev/bench.py "${BUILD:-build/cpu-native}" ${PRECISIONS:-fp32 bf16}

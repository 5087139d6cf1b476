#!/usr/bin/env bash
# what: the graded kernels of dev/cuda
# limit: 20
set -o pipefail
"$BIN/cuda_graded" | awk -F ' *[|] *' '
    { print; fflush() }
    /^(layernorm|matmul),/ { op = substr($0, 1, index($0, ",") - 1) }
    /^[|] [0-9]/ {
        printf "= {\"op\": \"%s\", \"version\": %d, \"us\": %s, ", op, $2, $4
        printf "\"GBps\": %s, \"TFLOPs\": %s}\n", $5, $6
    }'

#!/usr/bin/env bash
# what: a machine file of this GPU, for --plan
# limit: 20
set -e
"$BIN/cuda_machine" "$MACHINE"

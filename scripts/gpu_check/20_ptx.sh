#!/usr/bin/env bash
# what: golden outputs of the wrappers of ptx.h and ptx_hopper.h, to which the emulation is held
# limit: 10
# quick: 5
# lease: 10 5
set -e
"$BIN/cuda_goldens"

#!/usr/bin/env bash
# what: golden outputs of the wrappers of ptx.h, which the emulation's tests are held to from then on
# limit: 20
# quick: 20
set -e
"$BIN/cuda_goldens"

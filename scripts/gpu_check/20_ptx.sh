#!/usr/bin/env bash
# what: golden outputs of the wrappers of ptx.h, which the emulation's tests are held to from then on
# limit: 10
# quick: 5
# lease: 10 5
set -e
"$BIN/cuda_goldens"

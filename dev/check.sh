#!/usr/bin/env bash
# `make check`: the rules of the house (dev/check.py lists them), and lint where the tools exist.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-/usr/bin/python3}" dev/check.py "$@"

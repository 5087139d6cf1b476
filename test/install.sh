#!/usr/bin/env bash
# Installs the packages that the tests need and this machine lacks (Debian, Ubuntu; as root or by sudo), for
# `make test`. Where that is not possible, a line names them, and their tests are skipped. INSTALL=0: installs
# nothing.
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{s/^# //p;s/^#$//p}' "$0"; exit ;; esac
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PYTHON="${PYTHON:-/usr/bin/python3}"
. scripts/packages.sh
missing_of "${of_program[@]}" "${of_tests[@]}" "${of_pictures[@]}"
if [ ${#missing[@]} = 0 ] || [ "${INSTALL:-1}" = 0 ]; then exit 0; fi
if ! command -v apt-get >/dev/null || ! find_root; then
    echo "note: tests that need one of these packages are skipped; to install them, as root:" >&2
    echo "      apt-get update && apt-get install -y ${missing[*]}" >&2
    exit 0
fi
log=build/install.log
mkdir -p build
echo "install  ${missing[*]}"
update_packages >"$log" 2>&1
install_some "$log" "${missing[@]}"

# shellcheck shell=bash disable=SC2034
# Debian's packages that the program, its tests and .ci/run need. These source it: scripts/quickstart.sh,
# test/install.sh, .ci/run. A package counts as there if its part is there, wherever the part comes from.
#
# missing_of WHAT:PACKAGE ... sets the array `missing` to the packages that are not there, without asking apt.
# WHAT, a part of the package: a header NAME.h or NAME.hpp, `import MODULE`, a path, or a command.
of_program=(make:make zlib.h:zlib1g-dev zstd.h:libzstd-dev xxhash.h:libxxhash-dev cxxopts.hpp:libcxxopts-dev
            fmt/core.h:libfmt-dev nlohmann/json.hpp:nlohmann-json3-dev)
[ "${DNNL:-1}" = 0 ] || of_program+=(oneapi/dnnl/dnnl.hpp:libdnnl-dev)
# without these, tests are skipped
of_tests=(git:git mpicxx:libopenmpi-dev mpirun:openmpi-bin script:bsdutils)
of_pictures=('import matplotlib:python3-matplotlib' chromium:chromium)
# without these, .ci/run checks less or takes longer
of_checks=(ccache:ccache clang-14:clang-14 '/usr/lib/llvm-14/lib/clang/*/lib/linux/*asan*:libclang-rt-14-dev'
           shellcheck:shellcheck pyflakes3:pyflakes3 /etc/ssl/certs/ca-certificates.crt:ca-certificates)
of_judges=('import torch:python3-torch' 'import ensurepip:python3-venv')

compiler_major() { "$1" -dumpversion 2>/dev/null | cut -d. -f1; }

choose_compiler() {         # the first g++ of version 12 or later
    local candidate major
    for candidate in ${CXX:+"$CXX"} g++ g++-15 g++-14 g++-13 g++-12; do
        major=$(compiler_major "$candidate") || continue
        if [ "${major:-0}" -ge 12 ] 2>/dev/null; then CXX=$candidate; export CXX; return 0; fi
    done
    return 1
}

is_there() {
    case $1 in
        *.h | *.hpp) "$CXX" -std=c++20 -x c++ -E - >/dev/null 2>&1 <<<"#include <$1>" ;;
        'import '*) "$PYTHON" -c "$1" >/dev/null 2>&1 ;;
        /*) compgen -G "$1" >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

missing_of() {
    local pair
    missing=()
    [ -x "$(command -v "$PYTHON")" ] || missing+=(python3)
    if ! choose_compiler; then
        # an older g++ is there on Ubuntu 22.04
        if command -v g++ >/dev/null; then missing+=(g++-12); else missing+=(g++); fi
        CXX=g++
    fi
    for pair in "$@"; do
        is_there "${pair%:*}" || missing+=("${pair##*:}")
    done
}

find_root() {               # sets `as_root` to what runs a command as root, or fails
    if [ "$(id -u)" = 0 ]; then as_root=(env)
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n env)
    else return 1; fi
}

# REQUIRES: find_root
update_packages() { "${as_root[@]}" apt-get update; }
install() {                 # install PACKAGE ...
    "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}
install_some() {            # install_some LOG PACKAGE ...: one by one, as a system may lack one
    local package log=$1
    for package in "${@:2}"; do
        install "$package" >>"$log" 2>&1 ||
            echo "note: cannot install $package, so what needs it is left out: $(tail -n 1 "$log")" >&2
    done
}

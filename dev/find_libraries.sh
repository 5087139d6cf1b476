#!/usr/bin/env bash
# For make: finds this machine's libraries, by linking against each. Writes FOLDER/found.mk.new, variables for
# make, and FOLDER/found.txt, a line a library for people. Fails if a library is missing and every build needs
# that library.
#
#     CXX=... dev/find_libraries.sh FOLDER
#
# Reads also DEVICE, CPU_ARCH, DNNL, MPI, NCCL, CUDA_HOME, NCCL_HOME, NVCC, GPUS and DROPPED of the Makefile.
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{s/^# //p;s/^#$//p}' "$0"; exit ;; esac
set -u
folder=$1
mkdir -p "$folder"
exec 3>"$folder/found.mk.new" 4>"$folder/found.txt"
read -ra cxx <<<"$CXX"
headers=()                      # make looks again where one of them is gone

say() { printf '%-9s %s\n' "$1" "$2" >&4; }
variable() { printf '%s := %s\n' "$1" "$2" >&3; }
fail() { echo "error: $*" >&2; exit 1; }

header() {      # header NAME [FLAG ...]: is it there?
    printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" |
        "${cxx[@]}" -E -x c++ - "${@:2}" -o /dev/null >/dev/null 2>&1 || return
    remember "$@"
}
remember() {
    local name=$1 path
    path=$(echo "#include <$name>" | "${cxx[@]}" -std=c++20 -M -x c++ - "${@:2}" 2>/dev/null |
        tr ' ' '\n' | grep -m1 "/$name\$")
    [ -z "$path" ] || headers+=("$path")
}
links() {       # links PROGRAM [FLAG ...]: does this text compile and link?
    printf '%b' "$1" | "${cxx[@]}" -std=c++20 -x c++ - -o /dev/null "${@:2}" >/dev/null 2>&1
}
found() {       # found HEADER [FLAG ...]: does a program with it link?
    links "#include <$1>\nint main() {}\n" "${@:2}" && remember "$@"
}

needed() {
    local missing=""
    found fmt/core.h -lfmt || missing+=" libfmt-dev"
    found zlib.h -lz || missing+=" zlib1g-dev"
    found zstd.h -lzstd || missing+=" libzstd-dev"
    found xxhash.h -lxxhash || missing+=" libxxhash-dev"
    header nlohmann/json.hpp || missing+=" nlohmann-json3-dev"
    header cxxopts.hpp || missing+=" libcxxopts-dev"
    [ -z "$missing" ] || fail "missing libraries. Install them with:  apt-get install$missing"
}

onednn() {
    if [ "$DNNL" = 0 ]; then
        say oneDNN "left out by DNNL=0: matmuls by plain loops"
    elif found oneapi/dnnl/dnnl.h -ldnnl; then
        variable HAVE_DNNL 1
        say oneDNN "found: matmuls of fp32 and bf16"
    else
        say oneDNN "not found: matmuls by plain loops, slower (apt-get install libdnnl-dev)"
    fi
}

cuda() {
    if [ "$DEVICE" != cuda ]; then
        local why=DEVICE=cpu
        [ "$DEVICE" = cpu ] || why="emulated on the CPU, for tests"
        say CUDA "left out: $why"
        return
    fi
    [ -x "$NVCC" ] ||
        fail "DEVICE=cuda needs the CUDA toolkit, 12.4 or newer: no nvcc in $CUDA_HOME/bin (CUDA_HOME=...)"
    found cublas_v2.h -I"$CUDA_HOME/include" -L"$CUDA_HOME/lib64" -lcublas -lcublasLt -lcudart ||
        fail "cuBLAS is missing from $CUDA_HOME"
    say CUDA "$("$NVCC" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'): $GPUS, PTX for newer ones"
    [ -z "$DROPPED" ] || say CUDA "left out: $DROPPED, which this toolkit does not know"
}

mpi() {
    local flags libs
    if [ "$MPI" = 0 ]; then
        say MPI "left out by MPI=0: ranks are threads of one process"
        return
    fi
    # the C interface alone
    read -ra flags <<<"-DOMPI_SKIP_MPICXX $(mpicxx -showme:compile 2>/dev/null)"
    read -ra libs <<<"$(mpicxx -showme:link 2>/dev/null | sed 's/-lmpi_cxx//')"
    if [ ${#libs[@]} != 0 ] && found mpi.h "${flags[@]}" "${libs[@]}"; then
        variable MPI_FLAGS "-DHAVE_MPI ${flags[*]}"
        variable MPI_LIBS "${libs[*]}"
        say MPI "found: ranks are processes of mpirun, or threads"
    else
        say MPI "not found: ranks are threads of one process (apt-get install libopenmpi-dev)"
    fi
}

nccl() {
    local flags=(-I"$CUDA_HOME/include") libs=(-L"$CUDA_HOME/lib64" -lnccl) why=DEVICE=cpu program
    if [ "$DEVICE" != cuda ]; then
        [ "$DEVICE" = cpu ] || why="emulated between threads"
        [ "$DEVICE" = cpu ] || [ "$NCCL" != 0 ] || why="by NCCL=0"
        say NCCL "left out: $why"
        return
    fi
    if [ "$NCCL" = 0 ]; then
        say NCCL "left out by NCCL=0: one GPU; ranks that are threads can share it"
        return
    fi
    if [ -n "$NCCL_HOME" ]; then
        flags=(-I"$NCCL_HOME/include" "${flags[@]}")
        libs=(-L"$NCCL_HOME/lib" "-Wl,-rpath,$NCCL_HOME/lib" "${libs[@]}")
    fi
    program='#include <nccl.h>\nstatic_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1));\n'
    program+='int main() { return ncclCommSplit(0, 0, 0, 0, 0); }\n'
    if header nccl.h "${flags[@]}" && links "$program" "${flags[@]}" "${libs[@]}" -lcudart; then
        variable NCCL_FLAGS "-DHAVE_NCCL ${flags[*]}"
        variable NCCL_LIBS "${libs[*]}"
        say NCCL "found: ranks have a GPU each, as processes or threads"
    else
        say NCCL "not found, 2.18 or newer: one GPU (apt-get install libnccl-dev, or NCCL_HOME=...)"
    fi
}

needed
onednn
cuda
mpi
nccl
variable FOUND_HEADERS "${headers[*]}"
# features of a CPU for this build: llmc/base/host/cpu_guard.cpp
features='SSE4_2|POPCNT|MOVBE|LZCNT|BMI2?|GFNI|F16C|FMA|AVX[A-Z0-9]*'
variable CPU_FEATURES "$(echo | "${cxx[@]}" -march="$CPU_ARCH" -dM -E - |
    sed -nE "s/^#define __($features)__ 1\$/\1/p" | sort | tr '\n' ' ')"

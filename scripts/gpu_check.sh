#!/usr/bin/env bash
# For anybody with a GPU for ten minutes: a single command for every question that only a GPU can answer.
#
#     scripts/gpu_check.sh --run [--quick] [--only=PART,PART]     in under 8 minutes; --quick: under 2
#     scripts/gpu_check.sh --lease                                in one call of nine minutes, from a pack
#     scripts/gpu_check.sh --pack                                 build/gpu_check: what --run needs elsewhere;
#                                                                 ARCH=90: for that kind of GPU alone
#     scripts/gpu_check.sh --list                                 the parts
#
# --run uses the binaries of a pack, or builds for this machine's GPU. --run needs a driver and the CUDA
# toolkit's libraries, for building nvcc and g++; no network, MPI, NCCL or oneDNN.
#
# A part is a program scripts/gpu_check/NN_NAME.sh, run as a child. Its line "# limit: SECONDS" is its
# time limit. --quick runs the parts with a line "# quick: SECONDS", under that limit. --lease, for
# machines that are lent for minutes, runs the parts with a line "# lease: PLACE SECONDS", ordered by
# PLACE, and builds nothing; a + behind SECONDS adds what earlier parts left. A part's output is shown; a
# line "= {JSON}" is a result. Results go to dev/results/gpu_check_TIME.json, a complete file after each
# result: parts that have not begun are in it, too. machine_TIME.json beside the results is a machine file
# of this GPU, for --plan --cluster.file=. A part that ends with 77 is skipped: its last line says why.
# Exit code 1: a part failed.
#
#     --parts=FOLDER      other parts         --results=PATH      another file, or a folder for it
#     --within=SECONDS    for the parts, without building; the last are cut or left out: 470, 115 with
#                         --quick, 535 with --lease (unpacking included)
set -uo pipefail
from=$PWD
cd "$(dirname "$0")/.." || exit 1
# of a path from the caller
absolute() { case $1 in /*) echo "$1" ;; *) echo "$from/$1" ;; esac; }

mode="" quick=0 lease=0 only="" parts=scripts/gpu_check results="" within=""
usage() { sed -n '2,/^set /{s/^# \{0,1\}//;/^set /d;p}' "$0"; }
for argument in "$@"; do
    case $argument in
        --run | --pack | --list) mode=${argument#--} ;;
        --quick) quick=1 ;;
        --lease) mode=run lease=1 ;;
        --only=*) only=${argument#*=} ;;
        --parts=*) parts=$(absolute "${argument#*=}") ;;
        --results=*) results=$(absolute "${argument#*=}") ;;
        --within=*) within=${argument#*=} ;;
        --help) usage; exit 0 ;;
        *) echo "gpu_check: unknown: $argument" >&2; usage >&2; exit 78 ;;
    esac
done
[ -n "$mode" ] || { usage >&2; exit 78; }

# ---------------------------------------------------------------------------------------------------------
# parts

name_of() { local n=${1##*/}; n=${n%.sh}; echo "${n#[0-9][0-9]_}"; }
setting() { sed -n "s/^# $1: *//p" "$2" | head -n 1; }
all=("$parts"/[0-9][0-9]_*.sh)
[ -e "${all[0]}" ] || { echo "gpu_check: no parts in $parts" >&2; exit 78; }

choose() {              # sets `chosen` to the files of the wanted parts
    local part wanted known=" "
    chosen=()
    for part in "${all[@]}"; do known+="$(name_of "$part") "; done
    for wanted in ${only//,/ }; do
        [[ $known == *" $wanted "* ]] || { echo "gpu_check: no part $wanted; there are:$known" >&2; exit 78; }
    done
    local kind=limit
    if [ "$quick" = 1 ]; then kind=quick; elif [ "$lease" = 1 ]; then kind=lease; fi
    for part in "${all[@]}"; do
        if [ -n "$only" ]; then
            if [[ ,$only, == *,$(name_of "$part"),* ]]; then chosen+=("$part"); fi
        elif [ -n "$(setting "$kind" "$part")" ] ||
            { [ "$kind" = limit ] && [ -z "$(setting lease "$part")" ]; }; then
            chosen+=("$part")
        fi
    done
    if [ "$lease" = 1 ]; then
        mapfile -t chosen < <(for part in "${chosen[@]}"; do
            printf '%s\t%s\n' "$(setting lease "$part")" "$part"
        done | sort -n | cut -f 2)
    fi
}
seconds_of() {              # FILE: its time limit, and a + with --lease
    local limit=""
    if [ "$quick" = 1 ]; then limit=$(setting quick "$1"); fi
    if [ "$lease" = 1 ]; then limit=$(setting lease "$1") limit=${limit#* }; fi
    [ -n "$limit" ] || limit=$(setting limit "$1")
    echo "${limit:-60}"
}
limit_of() {                # FILE LEFT
    local limit part of_part spare=$2 later=0
    limit=$(seconds_of "$1")
    if [[ $limit != *+ ]]; then echo "$limit"; return; fi
    limit=${limit%+}
    for part in "${chosen[@]}"; do
        of_part=$(seconds_of "$part")
        if [ "$later" = 1 ]; then spare=$((spare - ${of_part%+})); fi
        if [ "$part" = "$1" ]; then later=1; fi
    done
    echo $((spare > limit ? spare : limit))
}

# ---------------------------------------------------------------------------------------------------------
# the file of results

json_string() {         # of its input, in quotes
    tr -d '\000-\010\013-\037' | awk '
        { gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); gsub(/\t/, "\\t"); text = text (NR > 1 ? "\\n" : "") $0 }
        END { printf "\"%s\"", text }'
}
field() { printf '"%s": %s' "$1" "$(printf '%s' "$2" | json_string)"; }

parts_done="" later=""  # entries of complete parts, of parts that have not begun
write_results() {       # [ENTRY of the running part]
    local text=$parts_done more
    for more in "$@" "$later"; do
        if [ -n "$more" ]; then text+="${text:+$',\n'}$more"; fi
    done
    printf '{%s,\n"parts": [\n%s\n]}\n' "$about" "$text" >"$results.new" && mv "$results.new" "$results"
}
entry() {               # NAME STATUS CODE SECONDS RESULTS LAST_LINES
    printf '  {"part": "%s", "status": "%s", "exit": %s, "seconds": %s,\n   "results": [%s]' \
        "$1" "$2" "$3" "$4" "$5"
    if [ "$2" != passed ]; then printf ',\n   %s' "$(field last_lines "$6")"; fi
    printf '}'
}
not_begun() {           # FILE ...
    local part
    for part in "$@"; do
        entry "$(name_of "$part")" "not begun" -1 0 "" "the call ended before this part"
        if [ "$part" != "${!#}" ]; then printf ',\n'; fi
    done
}

# ---------------------------------------------------------------------------------------------------------
# one part

seconds_since() { LC_ALL=C awk -v a="${1/,/.}" -v b="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%.1f", b - a }'; }
value='("[^"\\]*"|-?[0-9][0-9.e+-]*|true|false|null)'
is_result() { [[ $1 =~ ^\{\"[^\"\\]*\":\ $value(,\ \"[^\"\\]*\":\ $value)*\}$ ]]; }

run_part() {
    local name limit left=$((deadline - SECONDS)) start=$EPOCHREALTIME code status line found="" lines wrong=0
    name=$(name_of "$1") limit=$(limit_of "$1" "$left") lines=$work/lines
    : >"$lines"
    if [ "$left" -lt 5 ]; then
        parts_done+="${parts_done:+$',\n'}$(entry "$name" skipped 77 0 "" "no time left of $within s")"
        summary+=$(printf '%-14s %-12s' "$name" "no time left")$'\n'
        write_results
        return
    fi
    if [ "$limit" -gt "$left" ]; then limit=$left; fi
    printf '\n== %s  (%s; at most %s s)\n' "$name" "$(setting what "$1")" "$limit"
    while IFS= read -r line; do
        if [[ $line == "= "* ]] && is_result "${line#= }"; then
            found+="${found:+, }${line#= }"
            write_results "$(entry "$name" running -1 "$(seconds_since "$start")" "$found" "")"
        else
            if [[ $line == "= "* ]]; then wrong=1; fi       # NaN, or no JSON
            printf '%s\n' "$line" >>"$lines"
        fi
        printf '   %s\n' "$line"
    done < <(LIMIT=$limit timeout --kill-after=5 "$limit" bash "$1" 2>&1 </dev/null; echo "$?" >"$work/code")
    code=$(cat "$work/code")
    case $code in
        0) if [ "$wrong" = 1 ]; then status=failed; else status=passed; fi ;;
        77) status=skipped ;;
        124 | 137) status="out of time" ;;
        *) if [ "$code" -gt 128 ]; then status=crashed; else status=failed; fi ;;
    esac
    parts_done+="${parts_done:+$',\n'}$(entry "$name" "$status" "$code" "$(seconds_since "$start")" "$found" \
        "$(tail -n 30 "$lines")")"
    write_results
    summary+=$(printf '%-14s %-12s %6s s' "$name" "$status" "$(seconds_since "$start")")$'\n'
    case $status in passed | skipped) ;; *) failed=1 ;; esac
}

# ---------------------------------------------------------------------------------------------------------
# build, pack, run

gpu_field() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }

commit() { cat packed/commit 2>/dev/null || git describe --always --dirty; }

# The newest folder of cuBLAS in PyTorch's wheels (nvidia/cublas/lib, nvidia/cu13/lib), or nothing.
wheels_cublas() {
    "${PYTHON:-python3}" -c '
import glob, re, sys
found = [f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib/libcublasLt.so.1[23]")]
found.sort(key=lambda f: int(re.search(r"[0-9]+$", f)[0]))
print(found[-1].rsplit("/", 1)[0] if found else "")' 2>/dev/null
}

# Where the toolkit has no cuBLAS, programs load the wheels'; a build links by names without a version.
use_cublas() {
    local home=${CUDA_HOME:-/usr/local/cuda} folder library
    if compgen -G "$home/lib64/libcublasLt.so*" >/dev/null; then return; fi
    folder=$(wheels_cublas)
    if [ -z "$folder" ]; then return; fi
    echo "gpu_check: cuBLAS of $folder"
    export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export CPLUS_INCLUDE_PATH=${folder%/lib}/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
    export LIBRARY_PATH=$work/cublas${LIBRARY_PATH:+:$LIBRARY_PATH}
    mkdir -p "$work/cublas"
    for library in "$folder"/libcublas{,Lt}.so.*; do
        if [ -e "$library" ]; then ln -sf "$library" "$work/cublas/$(basename "${library%.so.*}").so"; fi
    done
}

# train_gpt_nccl loads the wheels' NCCL, where the machine has none.
use_nccl() {
    local folder
    folder=$("${PYTHON:-python3}" -c '
import glob, sys
found = [f for p in sys.path for f in glob.glob(p + "/nvidia/nccl/lib/libnccl.so.2")]
print(found[0].rsplit("/", 1)[0] if found else "")' 2>/dev/null)
    if [ -n "$folder" ]; then export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder; fi
}

# Builds the parts' programs into $BIN, for this GPU. A pack brings headers and libraries along.
build() {
    local arch more=()
    arch=$(gpu_field compute_cap | tr -d .)
    if [ -d packed ]; then
        export CPLUS_INCLUDE_PATH=$PWD/packed/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
        export LIBRARY_PATH=$PWD/packed/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
    fi
    if [ -n "$arch" ]; then more=(ARCH="$arch"); fi
    make -j"$(nproc)" DEVICE=cuda DNNL=0 MPI=0 NCCL=0 "${more[@]}" "$@" gpu-check &&
        make -j"$(nproc)" DEVICE=cuda DNNL=0 MPI=0 "${more[@]}" "$@" gpu-check-nccl
}

run() {
    local machine
    choose
    work=$(mktemp -d) || exit 1
    trap 'rm -rf "$work"' EXIT
    failed=0 summary=""
    [ -n "$results" ] || results=dev/results/
    if [ -d "$results" ] || [[ $results == */ ]]; then
        results=${results%/}/gpu_check_$(date +%Y%m%d_%H%M%S).json
    fi
    mkdir -p "$(dirname "$results")" || exit 1
    if [ -e "$results" ] && { [ ! -f "$results" ] || [ "$(head -c 6 "$results")" != '{"gpu"' ]; }; then
        echo "gpu_check: $results is no file of results, and would be replaced: name another" >&2
        exit 78
    fi
    rm -f "$results.new"            # written through no link
    machine=$(basename "$results")
    machine=$(dirname "$results")/machine_${machine#gpu_check_}
    use_cublas
    use_nccl
    about=$(field gpu "$(gpu_field name)"),
    about+=$(printf ' %s, %s, %s, "quick": %s, "lease": %s' \
        "$(field driver "$(gpu_field driver_version)")" \
        "$(field commit "$(commit)")" "$(field date "$(date +%Y-%m-%dT%H:%M:%S)")" \
        "$([ "$quick" = 1 ] && echo true || echo false)" \
        "$([ "$lease" = 1 ] && echo true || echo false)")
    later=$(not_begun "${chosen[@]}")
    write_results || exit 1
    export BIN QUICK=$quick LEASE=$lease WORK=$work MACHINE=$machine
    if [ -d packed/lib ]; then export LD_LIBRARY_PATH=$PWD/packed/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi
    if [ -z "${BIN:-}" ]; then          # the caller may give built programs
        BIN=$PWD/packed/bin
        if [ ! -d "$BIN" ] && [ -e "$BIN.tar.xz" ]; then
            mkdir -p "$BIN" && xz -dc --memlimit=1GiB "$BIN.tar.xz" | tar -xf - -C "$BIN"
        fi
        if ! "$BIN/train_gpt" --version >/dev/null 2>&1; then
            if [ "$lease" = 1 ]; then echo "gpu_check: --lease needs a pack that runs here" >&2; exit 1; fi
            BIN=$PWD/build/gpu_check_bin
            build BIN="$BIN" || { echo "gpu_check: the build failed" >&2; exit 1; }
        fi
    fi
    case $quick$lease in
        1*) : "${within:=115}" ;;
        01) : "${within:=$((535 - SECONDS))}" ;;        # of the call: unpacking counts
        *) : "${within:=470}" ;;
    esac
    deadline=$((SECONDS + within))
    local i
    for ((i = 0; i < ${#chosen[@]}; i++)); do
        later=$(not_begun "${chosen[@]:i+1}")
        run_part "${chosen[i]}"
    done
    printf '\n%s\n%s\n' "$summary" "$results"
    exit "$failed"
}

list() {
    local part limit lease
    for part in "${all[@]}"; do
        limit=$(setting limit "$part") lease=$(setting lease "$part")
        printf '%-14s at most %4s s%s%s  %s\n' "$(name_of "$part")" "${limit:--}" \
            "$([ -n "$(setting quick "$part")" ] && echo ', quick' || echo '       ')" \
            "$([ -n "$lease" ] && printf ', lease %4s s' "${lease#* }" || echo '              ')" \
            "$(setting what "$part")"
    done
}

case $mode in
    list) list ;;
    pack) source scripts/gpu_check/pack.sh && pack ;;
    run) run ;;
esac

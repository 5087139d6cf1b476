#!/usr/bin/env bash
# `make test-full`: what `make test` has no time for. Each part closes with its own "N passed, N failed"; the
# last line is their sum.
#
#   - all tests (in one precision, those of operations in each), and the programs they drive, under
#     AddressSanitizer and UBSan, in a copy of the tree; test code itself is not looked at
#   - tests of operations and model without oneDNN and for x86-64-v3 (AVX2, no AVX-512); and with a oneDNN
#     that is told to use no more than AVX2, on which bf16 is not fast
#   - the CUDA kernels in the emulation: every access checked; each architecture; random order, copies at
#     issue, lazy streams; the share of their lines that ran. What nvcc makes of them, where it is, for every
#     GPU (ASSEMBLE_FOR="sm_80 sm_90": for these)
#   - one definition of each type in the whole program, as the linker sees it (-flto -Wodr)
#   - fuzzers, FUZZ_SECONDS (60) each
#   - the whole lattice of meshes, and 30 of them under mpirun; every preset's walk on each of seven meshes
#   - every way to die in every phase, of processes and threads; two nodes, and every way to lose one
#   - run.elastic: a rank dies at each of its collectives; faults at random; agents through ssh, and a
#     partition of three nodes; agents and restarts under a real Slurm
#   - the fixtures of test/model computed again by PyTorch; ids of ./tokenize by Hugging Face's tokenizers;
#     SmolLM2-135M against transformers, its scores of six tasks, and exports to GGUF against llama.cpp
#     (fetches 1 GB and more; SMOLLM2=0: not)
#   - what a run writes for TensorBoard, trackio, Aim, wandb and Prometheus, read by these (fetches 1 GB;
#     REPORTS=0: not)
#   - exp and tanh of every float, of all 2^32
#   - ranks as threads in fp64 under ThreadSanitizer, of one thread each and without oneDNN: libgomp is not
#     instrumented. Each file by itself: it includes what it uses
#
# FULL=few (.ci/run): sanitizers look at functions in bf16, not at whole programs. The emulation runs once, in
# bf16. No lattice, no deaths, crashes and floats besides those of `make test`; definitions as `make check`
# sees them. ThreadSanitizer's build compiles files together.
# FULL_TIMEOUT (1500) bounds each part, in seconds; crashes have 300, tokenizers four times as much. Parts can
# be named: test/run_full.sh sanitizers fuzzers
set -uo pipefail
cd "$(dirname "$0")/.." || exit
out=build/full
mkdir -p "$out"
jobs=$(nproc)
limit=${FULL_TIMEOUT:-1500}
few() { [ "${FULL:-all}" = few ]; }
rm -f "$out"/*.counts

part() {        # part NAME: runs the function of that name, shows its output at its end, keeps its counts
    local start=$SECONDS last counts="0 1 0" broken="FAIL  $1 broke off"
    echo "-- $1: started"
    ("$1") >"$out/$1.log" 2>&1
    last=$(grep -v '^make[:[]' "$out/$1.log" | tail -n 1)        # make adds that a test failed
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
        counts="${BASH_REMATCH[1]} ${BASH_REMATCH[2]} ${BASH_REMATCH[4]:-0}" broken=""
    fi
    echo "$counts" >"$out/$1.counts"
    {
        echo "-- $1"
        cat "$out/$1.log"
        [ -z "$broken" ] || echo "$broken"
        echo "   ($((SECONDS - start)) s)"
    } >"$out/$1.shown"
    cat "$out/$1.shown"
}

# make without the options of the make above: its job server is not for us
plain_make() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -j"$jobs" "$@"; }

# A copy, since ./train_gpt and ./tokenize of a sanitized build must not replace the user's. Times are kept: a
# second call builds only what changed.
copy_of_tree() {
    mkdir -p "$1"
    find "$1" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    tar --exclude=./build --exclude=./runs --exclude=./.git --exclude='./data/*/*' --exclude=./train_gpt \
        --exclude=./tokenize -cf - . | tar -xf - -C "$1"
}

# Tests of operations, model, files and optimizer that start no program.
sanitized_functions() {
    local build=build/cpu-native-address-undefined-bf16 native=build/cpu-native sources targets
    mapfile -t sources < <(grep -LE 'test::run\(|"test/(program|gguf|shards)\.h"|"\./tokenize' \
                                test/{base,base/*,io/*,model,ops,train/{data,step,save,save/formats}}/*.cpp)
    targets=("${sources[@]##*/}")
    targets=("${targets[@]/#/$build/test/}")
    targets=("${targets[@]%.cpp}")
    plain_make SANITIZE=address,undefined PRECISIONS=bf16 CXXFLAGS=-g0 TESTS_OF=$native "${targets[@]}" \
        >"$out/sanitizers-build.log" 2>&1 || { tail -n 30 "$out/sanitizers-build.log"; return; }
    BUILD=$build timeout "$limit" test/run_all.sh "${targets[@]}"
}

sanitizers() {
    local tree=$out/sanitized native=$PWD/build/cpu-native
    plain_make tests >"$out/sanitizers-build.log" 2>&1 ||
        { tail -n 30 "$out/sanitizers-build.log"; return; }
    # no leak check: OpenMP's and oneDNN's pools live until the process ends
    export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    if few; then sanitized_functions; return; fi
    copy_of_tree "$tree"
    cd "$tree" || return
    export TEST_PRECISIONS=bf16
    plain_make SANITIZE=address,undefined TESTS_OF="$native" tests >build.log 2>&1 ||
        { tail -n 30 build.log; return; }
    timeout "$limit" make -s --no-print-directory SANITIZE=address,undefined TESTS_OF="$native" run-tests
}

portable() {
    local arch=x86-64-v3 precisions="fp32 bf16" build targets
    local names=(adamw attention classifier decoder encoder layernorm math matmul memory test_gpt train)
    few && precisions=fp32
    build=build/cpu-$arch-nodnnl-${precisions/ /-}
    if ! grep -qw avx2 /proc/cpuinfo; then
        echo "skip  portable: this CPU has no AVX2"; echo "0 passed, 0 failed, 1 skipped"; return
    fi
    targets=("${names[@]/#/$build/test/}")
    plain_make DNNL=0 WERROR=1 PRECISIONS="$precisions" TEST_PRECISIONS="$precisions" ARCH=$arch \
        ONLY="${names[*]}" "${targets[@]}" >"$out/portable-build.log" 2>&1 ||
        { tail -n 30 "$out/portable-build.log"; return; }
    BUILD=$build timeout "$limit" test/run_all.sh "${targets[@]}"
}

slow_bf16() {
    local name targets=()
    for name in attention classifier decoder main_loop matmul test_gpt train; do
        targets+=("build/cpu-native/test/$name")
    done
    plain_make train_gpt "${targets[@]}" >"$out/slow_bf16-build.log" 2>&1 ||
        { tail -n 30 "$out/slow_bf16-build.log"; return; }
    ONEDNN_MAX_CPU_ISA=AVX2 BUILD=build/cpu-native timeout "$limit" test/run_all.sh "${targets[@]}"
}

# Of an architecture the emulation knows how much shared memory a block may have: sm_120, 86 and 89 have as
# much, and 90 (that of make test) and 100. Host code is kept out of device memory by make test's trainer.
emulation() {
    local source tests=() log=$out/emulation-runs.log variant words checked="" variants=(
        "EMU_ARCH=80 EMU_ORDER=reverse"
        "EMU_ARCH=120 EMU_ORDER=random:7 EMU_ASYNC=issue EMU_STREAMS=lazy")
    few && variants=() checked=TEST_PRECISIONS=bf16
    for source in test/ops/cuda/{,*/}*.cpp; do
        tests+=("build/cpu-native/test/$(basename "$source" .cpp)")
    done
    plain_make "${tests[@]}" >"$out/emulation-build.log" 2>&1 ||
        { tail -n 30 "$out/emulation-build.log"; return; }
    {
        echo "-- every access checked, lines counted"
        timeout "$limit" env ${checked:+"$checked"} test/coverage.sh || echo "0 passed, 1 failed"
        for variant in "${variants[@]}"; do
            read -ra words <<<"$variant"
            echo "-- $variant"; env "${words[@]}" timeout "$limit" test/run_all.sh "${tests[@]}"
        done
    } 2>&1 | tee "$log"
    awk -v expected=$((1 + ${#variants[@]})) '
        /^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3; s += $5; runs++ }
        END { if (runs < expected) f++; printf "%d passed, %d failed, %d skipped\n", p, f, s }' "$log"
}

# What nvcc makes of the kernels.
assembler() {
    if [ ! -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then
        echo "skip  assembler: no nvcc here"; echo "0 passed, 0 failed, 1 skipped"; return
    fi
    plain_make build/cpu-native/libcuda.a >"$out/assembler-build.log" 2>&1
    timeout "$limit" make -s --no-print-directory ptxas ${ASSEMBLE_FOR:+GPUS="$ASSEMBLE_FOR"}
}

definitions() {
    if plain_make BUILD="$out/definitions" CXXFLAGS="-O0 -flto" LDFLAGS="-O0 -flto=$jobs -Werror=odr" \
        "$out/definitions/train_gpt" >"$out/definitions-build.log" 2>&1; then echo "1 passed, 0 failed"
    else grep -A20 -m1 odr "$out/definitions-build.log" || tail -n 30 "$out/definitions-build.log"
         echo "0 passed, 1 failed"
    fi
}

lattice() {
    local targets=(build/cpu-native/test/{lattice,walk,emulated_walk})
    plain_make "${targets[@]}" >"$out/lattice-build.log" 2>&1 ||
        { tail -n 30 "$out/lattice-build.log"; return; }
    export LATTICE=all
    BUILD=build/cpu-native timeout "$limit" test/run_all.sh "${targets[@]}"
}

# in_full PART SECONDS TEST...
in_full() {
    local part=$1 seconds=$2
    shift 2
    local targets=("${@/#/build/cpu-native/test/}")
    plain_make train_gpt tokenize "${targets[@]}" >"$out/$part-build.log" 2>&1 ||
        { tail -n 30 "$out/$part-build.log"; return; }
    TEST_FULL=1 CRASH_POINTS=all KILLS=all BUILD=build/cpu-native \
        timeout "$seconds" test/run_all.sh "${targets[@]}"
}
crashes() { in_full crashes 300 crash power_cut; }
deaths() { in_full deaths "$limit" supervisor deaths slow_disks; }
kills() { in_full kills 3600 kills; }
storm() { in_full storm "$limit" storm; }
floats() { in_full floats "$limit" math; }

on_nodes() {
    plain_make train_gpt tokenize >"$out/$1-build.log" 2>&1 || { tail -n 30 "$out/$1-build.log"; return; }
    timeout "$limit" "test/$1.sh"
}
nodes() { on_nodes nodes; }
elastic_nodes() { on_nodes elastic_nodes; }
slurm() { on_nodes slurm; }

reference() {
    local python=${PYTHON:-/usr/bin/python3}
    if ! "$python" -c 'import torch' 2>"$out/reference-import.log"; then
        echo "skip  reference: no torch (apt-get install python3-torch)"
        echo "0 passed, 0 failed, 1 skipped"
    elif timeout "$limit" "$python" dev/reference.py --check &&
        timeout "$limit" "$python" dev/reference_kinds.py --check; then echo "2 passed, 0 failed"
    else echo "0 passed, 1 failed"; fi
}

# Ids of every pre-tokenization, 200 MB each (TOKENIZER_MB), against Hugging Face's.
tokenizers() {
    local venv=$out/tokenizers
    plain_make tokenize >"$out/tokenizers-build.log" 2>&1 ||
        { tail -n 30 "$out/tokenizers-build.log"; return; }
    if ! "$venv/bin/python3" -c 'import tokenizers' 2>"$out/tokenizers-import.log" &&
        ! { "${PYTHON:-/usr/bin/python3}" -m venv "$venv" &&
            "$venv/bin/pip" install -q 'tokenizers==0.23.*'; } >"$out/tokenizers-import.log" 2>&1; then
        echo "skip  tokenizers: PyPI's tokenizers cannot be had (python3 -m venv, pip install tokenizers)"
        echo "0 passed, 0 failed, 1 skipped"
        return
    fi
    timeout "$((4 * limit))" "$venv/bin/python3" dev/tokenizer_judge.py --mb="${TOKENIZER_MB:-200}"
}

# judge PART NAME SCRIPT FOLDER TARGETS: the part by a script of dev/. NAME=0 skips the part. NAME_PYTHON: an
# interpreter that has the packages; else the script makes a venv of PyPI's in the folder.
judge() {
    local part=$1 name=$2 script=$3 folder=$4 python="${2}_PYTHON" install=--install
    shift 4
    if [ "${!name:-1}" = 0 ]; then
        echo "skip  $part: $name=0"; echo "0 passed, 0 failed, 1 skipped"; return
    fi
    plain_make "$@" >"$out/$part-build.log" 2>&1 || { tail -n 30 "$out/$part-build.log"; return; }
    [ -z "${!python:-}" ] || install=
    timeout "$limit" "${!python:-${PYTHON:-/usr/bin/python3}}" "dev/$script" $install --folder="$folder" \
        2>"$out/$part-errors.log" || tail -n 5 "$out/$part-errors.log" >&2
}

smollm2() {
    judge smollm2 SMOLLM2 smollm2_judge.py "$out/smollm2" train_gpt tokenize build/cpu-native/dev/logits
}
# A few documents of six tasks by the same model.
scores() { judge scores SMOLLM2 smollm2_scores.py "$out/smollm2" train_gpt; }
reports() { judge reports REPORTS reports_judge.py "$out/reports" train_gpt tokenize; }

races() {
    local build=build/cpu-native-nodnnl-thread-fp64 names=(comm zero overlap saver snapshot) unity=1 targets
    few || { names+=(lattice); unity=0; }
    targets=("${names[@]/#/$build/test/}")
    plain_make SANITIZE=thread DNNL=0 UNITY=$unity PRECISIONS=fp64 ONLY="${names[*]}" "${targets[@]}" \
        >"$out/races-build.log" 2>&1 || { tail -n 30 "$out/races-build.log"; return; }
    export TSAN_OPTIONS=halt_on_error=1:exitcode=66 OMP_NUM_THREADS=1
    BUILD=$build timeout "$limit" test/run_all.sh "${targets[@]}"
}

fuzzers() { timeout "$limit" test/fuzz/build_and_run.sh; }

lane() { for name in "$@"; do part "$name"; done; }

# Two lanes, as many parts wait (for ranks, timeouts, disks). What the same make builds is in one of them; the
# one that compiles gives way, as deaths are timed. The lattice comes last: up to eight ranks wait for each
# other, several times as long where others take their cores.
if [ $# != 0 ]; then
    parts=("$@")
    lane "$@"
else
    compiled=(sanitizers portable races assembler)
    native=(emulation slow_bf16 reference tokenizers smollm2 scores reports fuzzers)
    last=()
    if ! few; then
        compiled+=(definitions)
        native+=(deaths nodes storm elastic_nodes slurm crashes kills floats)
        last=(lattice)
    fi
    parts=("${compiled[@]}" "${native[@]}" "${last[@]}")
    lane "${native[@]}" &
    (renice -n 19 "$BASHPID" >/dev/null; lane "${compiled[@]}")
    wait
    lane "${last[@]}"
fi
passed=0 failed=0 skipped=0
for name in "${parts[@]}"; do
    read -r p f s <"$out/$name.counts" || p=0 f=1 s=0
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
[ "$skipped" = 0 ] && skips="" || skips=", $skipped skipped"
echo "$passed passed, $failed failed$skips"
[ "$failed" = 0 ]

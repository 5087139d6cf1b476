#!/usr/bin/env bash
# what: two and four ranks as processes on this GPU, over NCCL: losses against one process's; a lost rank,
# without and with run.elastic
# lease: 30 85
#
# NCCL takes ranks for ranks of one GPU where host and bus address agree. Each process names a host of its own
# (NCCL_HOSTID); messages go through sockets of this machine. Shows the protocol of real NCCL, not its speed.
#
#     PROCESSES=threads    ranks are threads of one process, for the emulation of NCCL; agents have processes
#     PROCESSES=mpirun     ranks are processes over MPI, for a build for CPUs
#     MESHES='tp killed'   these alone
source scripts/gpu_check/train.sh
program=train_gpt_nccl
[ -x "$BIN/$program" ] || program=train_gpt
libraries=$("$BIN/$program" --version 2>&1)
case ${PROCESSES:=processes} in
    mpirun) needs="Open MPI" ;;
    *) needs=NCCL ;;
esac
[[ $libraries == *"$needs "* ]] || { echo "not built: $program has no $needs"; exit 77; }

export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 \
    NCCL_NVLS_ENABLE=0 NCCL_RAS_ENABLE=0
unset OMP_NUM_THREADS
# nano, small; heads and layers for tp and pp of 2. No setting depends on the number of steps.
small=(--model.depth=4 --model.heads=4 --model.context=256 --train.batch_tokens=2048 --train.micro_batch=1
    --optimizer.schedule=constant --optimizer.decay=1 --optimizer.matrix_decay=0 --run.hang_timeout=60)
steps=6 most=30 code=0 exits="" seconds=0
if [ -n "${TINY:-}" ]; then
    small+=(--model.depth=2 --model.channels=64 --model.heads=2 --model.context=32 --train.batch_tokens=128)
    steps=4
fi

# run RANKS NAME STEPS [OPTION ...]: sets $exits, the exit codes by process, and $seconds. KILL=RANK: kills
# the rank after step 3
run() {
    local ranks=$1 name=$2 number=$3 r port from=$EPOCHREALTIME pids=() call
    shift 3
    mkdir -p "$WORK/$name"
    # the kernels that one process has chosen: no ranks time kernels side by side on one GPU
    if [ -e "$WORK/adamw/kernels.txt" ]; then cp -n "$WORK/adamw/kernels.txt" "$WORK/$name/"; fi
    call=("$program" "$name" scripts/nano.json "$number" "${small[@]}" "$@")
    if [ "$ranks" = 1 ] || [ "$PROCESSES" = threads ]; then
        if [ "$ranks" != 1 ]; then call+=(--parallel.transport=nccl); fi
        run_trainer "${call[@]}" --parallel.ranks="$ranks" >"$WORK/$name.log" 2>&1
        exits=$?
    else
        port=$((20000 + (RANDOM * 7 + $$) % 20000))
        for ((r = 0; r < ranks; r++)); do
            LAUNCH="env RANK=$r WORLD_SIZE=$ranks LOCAL_RANK=$r LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1"
            LAUNCH+=" MASTER_PORT=$port NCCL_HOSTID=gpu_check_$r"
            [ "$PROCESSES" != mpirun ] || LAUNCH="mpirun --allow-run-as-root --oversubscribe -np $ranks"
            run_trainer "${call[@]}" --parallel.ranks=0 >"$WORK/$name.$r.log" 2>&1 </dev/null &
            pids+=($!)
            if [ "$PROCESSES" = mpirun ]; then break; fi
        done
        if [ -n "${KILL:-}" ]; then kill_rank "$name" "$KILL"; fi
        exits=""
        for r in "${pids[@]}"; do
            wait "$r"
            exits+="${exits:+ }$?"
        done
        LAUNCH=""
        cat "$WORK/$name".[0-9].log >"$WORK/$name.log"
    fi
    seconds=$(awk -v a="${from/,/.}" -v b="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%.1f", b - a }')
}

# run_elastic NAME STEPS [OPTION ...]: as run(), two agents with a rank each; rank 1 dies before the last step
run_elastic() {
    local name=$1 number=$2 r from=$EPOCHREALTIME pids=() transport=nccl
    shift 2
    if [ "$PROCESSES" = mpirun ]; then transport=tcp; fi
    mkdir -p "$WORK/$name" "$WORK/$name.calls"
    if [ -e "$WORK/adamw/kernels.txt" ]; then cp -n "$WORK/adamw/kernels.txt" "$WORK/$name/"; fi
    for r in 0 1; do
        LAUNCH="env NCCL_HOSTID=gpu_check_$r FAULT=train:$((number - 1)):kill:1"
        if [ "$PROCESSES" = threads ]; then LAUNCH+=" EMU_PROCESSES=$WORK/$name.calls"; fi
        run_trainer "$program" "$name" scripts/nano.json "$number" "${small[@]}" --run.elastic=true \
            --run.slots=1 --parallel.ranks=2 --parallel.transport=$transport "$@" \
            >"$WORK/$name.$r.log" 2>&1 </dev/null &
        pids+=($!)
    done
    LAUNCH="" exits=""
    for r in "${pids[@]}"; do
        wait "$r"
        exits+="${exits:+ }$?"
    done
    cat "$WORK/$name".[01].log >"$WORK/$name.log"
    seconds=$(awk -v a="${from/,/.}" -v b="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%.1f", b - a }')
}

kill_rank() {               # NAME RANK
    local i pid
    for ((i = 0; i < 3000; i++)); do
        if grep -q '"event":"train","step":3,' "$WORK/$1/metrics.jsonl" 2>/dev/null; then break; fi
        sleep 0.01
    done
    for pid in $(pids_of "$1" "$2"); do kill -KILL "$pid"; done
}
lines_of() { { tr '\0' '\n' <"$1"; } 2>/dev/null; }
# The processes of a rank that this part has started: of this run's folder, with this rank in the environment.
pids_of() {
    local file pid
    for file in /proc/[0-9]*/cmdline; do
        pid=${file//[^0-9]/}
        if lines_of "$file" | grep -qxF -- "--run.dir=$WORK/$1" &&
            lines_of "/proc/$pid/environ" | grep -qx "\(RANK\|OMPI_COMM_WORLD_RANK\)=$2" &&
            [[ $(readlink "/proc/$pid/exe") == "$(readlink -f "$BIN/$program")" ]]; then
            echo "$pid"
        fi
    done
}

# compared MESH NAME REFERENCE FROM TO RANKS CODES: the largest relative difference of losses and gradient
# norms in steps FROM to TO, exit codes as the expression CODES
compared() {
    awk -v mesh="$1" -v from="$4" -v to="$5" -v ranks="$6" -v codes="$7" -v seconds="$seconds" \
        -v exits="$exits" '
        function value(key,  s) {
            s = $0
            if (!sub(".*\"" key "\":", "", s)) return "nan"
            sub("[,}].*", "", s)
            return s
        }
        FNR == 1 { file++ }
        /"event":"train"/ {
            step = value("step") + 0
            seen[file, step, 1] = value("loss")
            seen[file, step, 2] = value("norm")
        }
        END {
            for (s = from; s <= to; s++)
                for (i = 1; i <= 2; i++) {
                    if (!((1, s, i) in seen && (2, s, i) in seen)) { missing++; continue }
                    off = (seen[1, s, i] - seen[2, s, i]) / seen[2, s, i]
                    if (off < 0) off = -off
                    if (!(off <= most[i] + 0)) most[i] = off
                }
            good = !missing && most[1] <= 1e-3 && most[2] <= 1e-2 && exits ~ ("^(" codes ")$")
            printf "= {\"mesh\": \"%s\", \"ranks\": %d, \"loss_off\": %.3g, ", mesh, ranks, most[1]
            printf "\"norm_off\": %.3g, \"exits\": \"%s\", ", most[2], exits
            printf "\"missing\": %d, \"seconds\": %s, ", missing, seconds
            printf "\"equal\": %s}\n", good ? "true" : "false"
            exit !good
        }' "$WORK/$2/metrics.jsonl" "$WORK/$3/metrics.jsonl" && return
    code=1
    tail -n 20 "$WORK/$2.log"
}

wanted() { [ -z "${MESHES:-}" ] || [[ " $MESHES " == *" $1 "* ]]; }

reference=$steps
if [ "$PROCESSES" != threads ]; then reference=$most; fi
run 1 adamw "$reference" --optimizer.kind=adamw
[ "$exits" = 0 ] || { cat "$WORK/adamw.log"; exit 1; }
run 1 muon "$steps"
[ "$exits" = 0 ] || { cat "$WORK/muon.log"; exit 1; }
while read -r mesh ranks options; do
    wanted "$mesh" || continue
    # shellcheck disable=SC2086     # options are words
    run "$ranks" "$mesh" "$steps" --checkpoint.every=3 $options
    kind=adamw
    if [[ $mesh == muon* ]]; then kind=muon; fi
    compared "$mesh" "$mesh" "$kind" 1 "$steps" "$ranks" "0( 0)*"
done <<'END'
ddp 2 --optimizer.kind=adamw
zero1 2 --optimizer.kind=adamw --parallel.zero=1
zero2 2 --optimizer.kind=adamw --parallel.zero=2
zero3 4 --optimizer.kind=adamw --parallel.zero=3
groups 4 --optimizer.kind=adamw --parallel.zero=1 --parallel.zero_group=2
tp 2 --optimizer.kind=adamw --parallel.tp=2
pp 2 --optimizer.kind=adamw --parallel.pp=2
tp_pp 4 --optimizer.kind=adamw --parallel.tp=2 --parallel.pp=2
muon_zero2 2 --parallel.zero=2
END

# step 3 of four ranks with sharded weights, resumed by two of another mesh
if wanted resumed; then
    run 2 resumed "$steps" --optimizer.kind=adamw --parallel.tp=2 --checkpoint.resume="$WORK/zero3/step_3"
    compared resumed resumed adamw 4 "$steps" 2 "0( 0)*"
fi

# A rank dies and is started again; the other aborts NCCL and connects anew, and both go on from their images.
if wanted elastic; then
    run_elastic elastic "$steps" --optimizer.kind=adamw --parallel.zero=2
    compared elastic elastic adamw 1 "$steps" 2 "0 0"
    for row in lost regroup; do
        if [ "$(grep -c "\"event\":\"$row\"" "$WORK/elastic/metrics.jsonl")" != 1 ]; then
            echo "elastic: not one row \"$row\""
            code=1
        fi
    done
fi

wanted killed || exit "$code"
if [ "$PROCESSES" = threads ]; then
    echo "not shown: a lost rank, as ranks are threads"
    exit "$code"
fi
# A rank dies: the other ends with 75, and the same command goes on from the last checkpoint.
KILL=1 run 2 killed 100000 --optimizer.kind=adamw --parallel.zero=2 --checkpoint.every=2
lost=$exits
last=$(find "$WORK/killed" -maxdepth 1 -name 'step_*[0-9]' ! -name '*tmp*' | sed 's/.*_//' | sort -n |
    tail -n 1)
printf '= {"lost_rank": 1, "exits": "%s", "seconds": %s, "checkpoint": %s}\n' "$lost" "$seconds" \
    "${last:-null}"
if [ "$PROCESSES" = mpirun ]; then codes="[1-9][0-9]*"; else codes="75 [1-9][0-9]*"; fi
[[ $lost =~ ^$codes$ && -n $last ]] || { code=1; tail -n 20 "$WORK/killed.log"; }
if [ -n "$last" ]; then
    to=$((last + 2))
    if [ "$to" -gt "$most" ]; then to=$most; fi
    run 2 killed $((last + 2)) --optimizer.kind=adamw --parallel.zero=2
    compared continued killed adamw 1 "$to" 2 "0( 0)*"
fi
exit "$code"

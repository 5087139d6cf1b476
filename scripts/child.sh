# shellcheck shell=bash disable=SC2034
# Sourced. Runs a command, and passes signals to this shell on to the command as signals to save: mpirun
# itself answers TERM and INT by killing its ranks within a second.
#
#     run_child COMMAND ...       its exit code is left in $code
#
# TERM, INT, HUP and USR2 are passed on as USR2, save and exit, and set $stop to 1; USR1, save and go on,
# stays USR1. Each command gets a new TRAIN_GPT_SECRET, by which the ranks of a job know each other, unless
# the caller has set a secret. The command has a session of its own, since ^C goes to the whole group of the
# foreground, and no terminal to read from. The command dies with this shell.
stop=0 code=0 child=0 signalled=0
given_secret=${TRAIN_GPT_SECRET:-}      # of a user, or of the calling script
pass_on() { signalled=1; [ "$child" = 0 ] || kill "-$1" "$child" 2>/dev/null || true; }
trap 'stop=1; pass_on USR2' TERM INT HUP USR2
trap 'pass_on USR1' USR1

apart=()
if command -v setsid >/dev/null; then apart+=(setsid); fi
if setpriv --pdeathsig KILL true 2>/dev/null; then apart+=(setpriv --pdeathsig KILL); fi

run_child() {
    local again
    if [ "$stop" = 1 ]; then code=75; return; fi
    signalled=0
    export TRAIN_GPT_SECRET=${given_secret:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}
    "${apart[@]}" "$@" </dev/null &
    child=$!
    code=0; wait "$child" 2>/dev/null || code=$?
    while [ "$signalled" = 1 ]; do      # a signal to this shell ends wait early
        signalled=0
        again=0; wait "$child" 2>/dev/null || again=$?
        [ "$again" = 127 ] || code=$again
    done
    child=0
}

# Runs ./train_gpt with these arguments by mpirun, whose options are in $options and MPIRUN_OPTIONS, and exits
# with a code of train_gpt's. Other codes (137, 205 ...) mean that a host, its connection, its daemon orted or
# a supervisor is gone; mpirun -q prints nothing then.
run_ranks() {
    local more
    if [ "$(id -u)" = 0 ]; then options+=(--allow-run-as-root); fi
    read -ra more <<<"${MPIRUN_OPTIONS:-}"
    run_child mpirun "${options[@]}" "${more[@]}" ./train_gpt "$@"
    case $code in
        0 | 1 | 7[5-9]) exit "$code" ;;
        144) ;;                         # SIGSTKFLT: a rank has said why (llmc/base/guard/obituary.cpp)
        *) echo "error: mpirun ended with $code: a host was lost, or a process that watches a rank" >&2 ;;
    esac
    exit 75
}

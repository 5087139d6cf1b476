#!/usr/bin/env bash
# what: 124M with log.trace of nine of 24 steps: what a traced step takes, what its lanes cover
# limit: 25
source scripts/gpu_check/train.sh
traced=6,8,10,12,14,16,18,20,22
trained traced scripts/gpt2_124M.json 24 --train.batch_tokens=262144 --log.trace="[$traced]" || exit 1

# Medians of traced steps and of others from the fifth; the smallest share of a traced step's ms that a lane's
# events cover, of rank 0. Events stand one a line, sorted by time.
awk -v traced="$traced" '
    function value(key,  s) {
        s = $0
        if (!sub(".*\"" key "\":", "", s)) return ""
        sub("[,}].*", "", s)
        gsub("\"", "", s)
        return s
    }
    function median(list, n,  i, j, v) {
        for (i = 2; i <= n; i++) {
            v = list[i]
            for (j = i - 1; j > 0 && list[j] > v; j--) list[j + 1] = list[j]
            list[j + 1] = v
        }
        return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
    }
    BEGIN { for (i = split(traced, steps, ","); i > 0; i--) is_traced[steps[i]] = 1 }
    FNR == 1 && FILENAME ~ /trace_step_/ {
        step = FILENAME
        gsub(/.*trace_step_|\.json$/, "", step)
        files++
    }
    /"event":"train"/ {
        step = value("step"); ms[step] = value("ms")
        if (step in is_traced) with[++w] = ms[step]
        else if (step > 4) without[++o] = ms[step]
    }
    /"name":"thread_name"/ && value("pid") == 0 {
        name = $0
        sub(/.*"args":\{"name":"/, "", name)
        sub(/".*/, "", name)
        lane[step, value("tid")] = name
    }
    /^\{"ts":/ && value("pid") == 0 {
        tid = lane[step, value("tid")]
        if (tid != "host" && tid != "GPU") next
        begin = value("ts") + 0; end = begin + value("dur")
        if (begin < last[step, tid]) begin = last[step, tid]
        if (end > begin) { covered[step, tid] += end - begin; last[step, tid] = end }
    }
    END {
        share["host"] = share["GPU"] = 2
        for (step in is_traced)
            for (tid in share) {
                s = covered[step, tid] / (1000 * ms[step])
                if (s < share[tid]) share[tid] = s
            }
        t = median(with, w); u = median(without, o)
        printf "= {\"traced_steps\": %d, \"traced_ms\": %.2f, \"other_ms\": %.2f, ", files, t, u
        printf "\"more\": %.4f, \"host_covers\": %.4f, ", t / u - 1, share["host"]
        printf "\"gpu_covers\": %.4f}\n", share["GPU"]
        if (files != 9 || w != 9) { print "traced: " files " files of 9 steps"; exit 1 }
        if (share["host"] < 0.95) { print "traced: the host covers less than 95% of ms"; exit 1 }
    }' "$WORK/traced/metrics.jsonl" "$WORK"/traced/trace_step_*.json
code=$?
rm -rf "${WORK:?}/traced"
exit "$code"

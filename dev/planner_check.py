#!/usr/bin/python3
"""Holds --plan against published step times: predicted, measured and error of each row of planner_rows.json.

Usage: planner_check.py [--write] [--fit]       (make planner-check)

A row has a config, a machine of scripts/machines/ and what its source measured. The error is of the step
time: predicted / measured - 1. dev/planner_systems.json has at most two shares per system (whose code it
was): of the machine's rates of ops, and of its links; 1 where nothing was fitted. Rows that state a peak of
memory are compared with the plan's, and with what the row's source says that its system keeps: "logit_bytes"
of a micro-batch's logits, "weight_bytes", "gradient_bytes" and "optimizer_bytes" of a parameter. --fit tries
every pair of shares of a grid on the middle row of every three of a system, and writes the file; these rows
have a star in the table. --write puts the tables into dev/README.md.

Exit code 1, with a line for each cause: a row without a plan; shares that a neighbour on the grid beats; half
of the rows or more given to --fit; in bf16 on A100 and H100 a median error above 10%, or fewer than 80% of
the rows within 25%; the reason of an outlier that is none.
"""
import argparse
import glob
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from planner_tables import (README, beyond, by_source, figures, held_out, in_bf16, left_out, memory_error,
                            memory_table, outliers, put, summary, table)

ROWS, SYSTEMS = "dev/planner_rows.json", "dev/planner_systems.json"
# The grid of both shares, of rates that a machine's own file says are reached: at most all of them.
SHARES = [round(0.05 * i, 2) for i in range(2, 21)]
# What attention kernels of this GPU's generation reach, where the machine file has this program's own: not
# fitted, but FlashAttention 3's paper (arXiv 2407.08608), forward and backward at 1,024 to 4,096 tokens.
FLASH = {"h100": 0.35, "h200": 0.35}
PEAK = {m["gpu"]: m["bf16_tflops"] * 1e12 for m in
        (json.load(open(path, encoding="utf-8")) for path in glob.glob("scripts/machines/*.json"))}


# Bytes of a parameter in a plan in bf16, and where the plan counts them.
BYTES = {"weight": ("weights", 2), "gradient": ("gradients", 4), "optimizer": ("optimizer", 12)}


def measured_seconds(row, p):
    """Step time of a row with the plan p, by its source's seconds, tokens/s, MFU or FLOP/s; None: unknown."""
    m, model = row["measured"], row["config"]["model"]
    if not m.keys() - {"memory_gb"}:
        return None
    if "step_seconds" in m:
        return m["step_seconds"]
    if "tokens_per_second" in m:
        return p["step_seconds"] * p["tokens_per_second"] / m["tokens_per_second"]
    batch, params = row["config"]["train"]["batch_tokens"], p["params"]
    L, C, T, V = (model[k] for k in ("layers", "channels", "context", "vocab"))
    if "mfu_percent" in m:              # 6 N + 12 L C T, without tables for look-ups alone
        flops = 6 * (params - (0 if model.get("tied", True) else V * C)) + 12 * L * C * T
        return batch * flops / (m["mfu_percent"] / 100 * PEAK[row["gpu"]] * row["ranks"])
    flops = 96 * batch * L * C * C * (1 + T / (6 * C) + V / (16 * L * C))
    return flops / (m["tflops_per_gpu"] * 1e12 * row["ranks"])


def machine_file(gpu, shares, folder):
    """A machine with the reached rates of a system, whose kernels may take sizes that ours do not."""
    machine = json.load(open(f"scripts/machines/{gpu}.json", encoding="utf-8")) | {"any_size": 1}
    machine["attention"] = FLASH.get(gpu, machine["attention"])
    for key in ("reached", "attention", "copy_gbs"):
        machine[key] *= shares["compute"]
    for dtype, reached in machine.get("reached_by", {}).items():
        share = shares["compute"]
        machine["reached_by"][dtype] = ({side: r * share for side, r in reached.items()}
                                        if isinstance(reached, dict) else reached * share)
    for key in {"links", "nvls"} & machine.keys():
        machine[key] *= shares["communication"]
    path = f"{folder}/{gpu}_{shares['compute']}_{shares['communication']}.json"
    with open(path, "w", encoding="utf-8") as f:
        json.dump(machine, f)
    return path


def plan(row, shares, folder):
    """The object printed by --plan --json, or None with the reason on stderr."""
    path = f"{folder}/{row['id']}.json"
    config = dict(row["config"], sample={"every": 0}, eval={"every": 0})
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f)
    command = ["./train_gpt", path, "--plan", "--json", "--run.precision=bf16",
               f"--parallel.ranks={row['ranks']}",
               "--cluster.file=" + machine_file(row["gpu"], shares, folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{row['id']}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def planned_memory(row, p):
    """Bytes of the fullest pipeline stage: as planned, and as the row's system keeps them."""
    config = row["config"]
    more = sum((row[f"{key}_bytes"] / own - 1) * p["memory"][part]
               for key, (part, own) in BYTES.items() if f"{key}_bytes" in row)
    stages = [stage + more for stage in p["memory_of_stages"]]
    logits = config["train"]["micro_batch"] * config["model"]["context"] * config["model"]["vocab"]
    stages[-1] += row.get("logit_bytes", 0) * logits / p["mesh"]["tp"]
    return p["memory_bytes"], max(stages)


def outcome(row, shares, folder):
    p = plan(row, shares, folder)
    if not p:
        return None
    measured, memory = measured_seconds(row, p), planned_memory(row, p)
    return {"id": row["id"], "source": row["source"], "system": row["system"], "gpu": row["gpu"],
            "precision": row.get("precision", "bf16"), "ranks": row["ranks"],
            "predicted": p["step_seconds"], "measured": measured,
            "error": p["step_seconds"] / measured - 1 if measured else None,
            "own_gb": memory[0] / 1e9, "memory_gb": memory[1] / 1e9,
            "measured_gb": row["measured"].get("memory_gb")}


def rows_to_fit(rows):
    """Of each system with several timed rows the middle one of every three; a single row would fit itself."""
    timed = [r for r in rows if r["measured"].keys() - {"memory_gb"}]
    by_system = {s: [r for r in timed if r["system"] == s] for s in sorted({r["system"] for r in timed})}
    return {system: own[1::3] for system, own in by_system.items() if len(own) > 1}


def loss(own, shares):
    """The mean of |log(predicted / measured)| over these rows."""
    with tempfile.TemporaryDirectory() as folder:
        found = [outcome(r, shares, folder) for r in own]
    return statistics.mean(abs(math.log(1 + f["error"])) if f else math.inf for f in found)


def best_of(own, shares):
    """Of these pairs of shares the one with the least loss; of equals the first."""
    pairs = [{"compute": ops, "communication": links} for ops, links in shares]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        losses = list(pool.map(lambda pair: round(loss(own, pair), 9), pairs))
    return pairs[losses.index(min(losses))]


def links_of(own):
    """Shares of the links on the grid: 1 alone where no row leaves a node."""
    return SHARES if any(r["ranks"] > 8 for r in own) else [1]


def fit(rows):
    """For each system the best pair of shares of the whole grid on its rows to fit."""
    systems = {}
    for system, own in rows_to_fit(rows).items():
        systems[system] = best_of(own, itertools.product(SHARES, links_of(own)))
        print(system, systems[system], flush=True)
    return systems


def stale_shares(rows, systems):
    """Systems whose shares have a better neighbour on the grid: prices or rows have changed since the fit."""
    def near(share, of):
        at = of.index(share)
        return [share, *of[max(0, at - 1):at], *of[at + 1:at + 2]]
    stale = []
    for system, own in rows_to_fit(rows).items():
        shares = systems[system]
        around = itertools.product(near(shares["compute"], SHARES),
                                   near(shares["communication"], links_of(own)))
        if (best := best_of(own, around)) != shares:
            stale.append(f"{SYSTEMS}: {system} has {shares}, {best} is better: run {sys.argv[0]} --fit")
    return stale


def stale_reasons(errors, reasons, name):
    return [f"{ROWS}: {name} names {row}, which is within 25%: remove it" for group in reasons
            for row in group["rows"] if not beyond(errors[row])]


def wrong(rows, planned, systems, file):
    """What the exit code is about, a line each."""
    found = [f for f in planned if f["measured"]]
    given = sum(len(own) for own in rows_to_fit(rows).values())
    _, median, within = figures(in_bf16(found))
    lines = stale_shares(rows, systems)
    if len(planned) < len(rows):
        lines.append(f"{len(rows) - len(planned)} rows of {ROWS} have no plan, see above")
    if given >= len(found) - given:
        lines.append(f"{given} of {len(found)} rows are given to --fit, expected less than half")
    if median > 0.10 or within < 0.80:
        lines.append(f"A100 and H100 in bf16: median error {median:.1%}, expected at most 10%; {within:.0%} "
                     "within 25%, expected at least 80%")
    return (lines + stale_reasons({f["id"]: f["error"] for f in found}, file["outliers"], "outliers") +
            stale_reasons({f["id"]: memory_error(f) for f in planned if f["measured_gb"]},
                          file["memory_outliers"], "memory_outliers"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--fit", action="store_true", help="search the shares of each system")
    parser.add_argument("--write", action="store_true", help=f"put the table into {README}")
    args = parser.parse_args()
    file = json.load(open(ROWS, encoding="utf-8"))
    rows = file["rows"]
    if args.fit:
        systems = fit(rows)
        with open(SYSTEMS, "w", encoding="utf-8") as f:
            f.write(json.dumps(systems, indent=2) + "\n")
    systems = json.load(open(SYSTEMS, encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        shares = [systems.get(r["system"], {"compute": 1, "communication": 1}) for r in rows]
        planned = [f for f in (outcome(r, s, folder) for r, s in zip(rows, shares)) if f]
    fitted = {r["id"] for own in rows_to_fit(rows).values() for r in own}
    found = [f | {"fitted": f["id"] in fitted} for f in planned if f["measured"]]
    of_both = [f for f in found if f["gpu"] in ("a100", "h100")]
    totals = [summary(in_bf16(found), "A100 and H100 in bf16"), summary(of_both, "With the rows in fp16"),
              summary(found, "With other GPUs"),
              summary(held_out(in_bf16(found)), "Held back, of A100 and H100 in bf16"),
              summary(held_out(found), "All that are held back")]
    times = [*table(found), "", *by_source(found), "", *totals,
             *outliers({f["id"]: f["error"] for f in found}, file["outliers"]), *left_out(file["left_out"])]
    memory = memory_table(planned) + outliers({f["id"]: memory_error(f) for f in planned if f["measured_gb"]},
                                              file["memory_outliers"])
    print("\n".join([*times, "", *memory]))
    if args.write:
        put(times, "planner-check")
        put(memory, "planner-check-memory")
    lines = wrong(rows, planned, systems, file)
    print("".join(line + "\n" for line in lines), end="", file=sys.stderr)
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()

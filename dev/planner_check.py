#!/usr/bin/python3
"""Holds --plan against published step times: predicted, measured and error of each row of planner_rows.json.

Usage: planner_check.py [--write] [--fit]       (make planner-check)

A row has a config, a machine of scripts/machines/ and what its source measured. The error is of the step
time: predicted / measured - 1. dev/planner_systems.json has at most two shares per system (whose code it
was): of the machine's rates of ops, and of its links; 1 where nothing was fitted. Rows that state a peak of
memory are compared with the plan's, and with what the row's source says that its system keeps: "logit_bytes"
of a micro-batch's logits, "weight_bytes", "gradient_bytes" and "optimizer_bytes" of a parameter. --fit
searches the shares on every second row of a system with several, and writes the file; these rows have a star
in the table. --write puts the tables into dev/README.md. Exit code 1: a row without a plan, or on A100 and
H100 a median error above 10% or fewer than 80% of the rows within 25%.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROWS, SYSTEMS, README = "dev/planner_rows.json", "dev/planner_systems.json", "dev/README.md"
SHARES = [1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4]
# What other systems' attention reaches, where the machine file has this program's: FlashAttention 3 (arXiv
# 2407.08608), forward and backward at 1,024 to 4,096 tokens.
FLASH = {"h100": 0.35}
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
            "ranks": row["ranks"], "predicted": p["step_seconds"], "measured": measured,
            "error": p["step_seconds"] / measured - 1 if measured else None,
            "own_gb": memory[0] / 1e9, "memory_gb": memory[1] / 1e9,
            "measured_gb": row["measured"].get("memory_gb")}


def rows_to_fit(rows):
    """For each system with several timed rows every second of them; a single row would fit itself."""
    timed = [r for r in rows if r["measured"].keys() - {"memory_gb"}]
    by_system = {s: [r for r in timed if r["system"] == s] for s in sorted({r["system"] for r in timed})}
    return {system: own[::2] for system, own in by_system.items() if len(own) > 1}


def fit(rows, folder):
    """For each system the shares with the least mean of |log(predicted / measured)| over its rows to fit."""
    systems = {}
    for system, own in rows_to_fit(rows).items():
        many = any(r["ranks"] > 8 for r in own)

        def loss(shares, own=own):
            found = [outcome(r, shares, folder) for r in own]
            return statistics.mean(abs(f["error"]) / (1 + min(0, f["error"])) for f in found if f)
        best = {"compute": 1, "communication": 1}
        for key in ("compute", "communication") if many else ("compute",):
            best = min(({**best, key: s} for s in SHARES), key=loss)
        systems[system] = best
        print(system, best, flush=True)
    return systems


def figures(found):
    """Number of rows, median error, share within 25%."""
    errors = [abs(f["error"]) for f in found]
    return len(found), statistics.median(errors), sum(e <= 0.25 for e in errors) / len(errors)


def summary(found, name):
    rows, median, within = figures(found)
    return f"{name}: {rows} rows, median error {median:.1%}, {within:.0%} within 25%."


def by_source(found):
    lines = ["| source | system | rows | median error | within 25% |", "|---|---|---|---|---|"]
    for source, system in sorted({(f["source"], f["system"]) for f in found}):
        rows, median, within = figures([f for f in found if (f["source"], f["system"]) == (source, system)])
        lines.append(f"| {source} | {system} | {rows} | {median:.1%} | {within:.0%} |")
    return lines


def held_out(found):
    return [f for f in found if not f["fitted"]]


def left_out(groups):
    """Rows that no plan can be held against."""
    return ["", "Left out:", "", *[f"- {', '.join(g['rows'])}: {g['reason']}" for g in groups]]


def table(found):
    lines = ["| row | system | GPUs | predicted | measured | error |", "|---|---|---|---|---|---|"]
    for f in found:
        star = " *" if f["fitted"] else ""
        lines.append(f"| {f['id']}{star} | {f['system']} | {f['ranks']} {f['gpu']} | "
                     f"{f['predicted']:.3g} s | {f['measured']:.3g} s | {f['error']:+.0%} |")
    held = len(held_out(found))
    given = f"With a star: the {len(found) - held} rows that `--fit` reads; {held} are held back."
    return lines + ["", given]


def memory_table(found):
    """Of the rows whose source states a peak."""
    own = [f for f in found if f["measured_gb"]]
    lines = ["| row | this program's tensors | as their system keeps them | measured | error |",
             "|---|---|---|---|---|"]
    for f in own:
        lines.append(f"| {f['id']} | {f['own_gb']:.1f} GB | {f['memory_gb']:.1f} GB | "
                     f"{f['measured_gb']:.1f} GB | {f['memory_gb'] / f['measured_gb'] - 1:+.0%} |")

    def median(key):
        return statistics.median(f[key] / f["measured_gb"] - 1 for f in own)
    return lines + ["", f"Memory: {len(own)} rows, median error {median('memory_gb'):+.1%}; "
                    f"of this program's tensors alone {median('own_gb'):+.1%}."]


def put(lines, name):
    """Replaces the text between the marks of a name in README."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = open(README, encoding="utf-8").read()
    before, after = text.split(begin)[0], text.split(end)[1]
    with open(README, "w", encoding="utf-8") as f:
        f.write("\n".join([before + begin, *lines, end]) + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--fit", action="store_true", help="search the shares of each system")
    parser.add_argument("--write", action="store_true", help=f"put the table into {README}")
    args = parser.parse_args()
    file = json.load(open(ROWS, encoding="utf-8"))
    rows = file["rows"]
    with tempfile.TemporaryDirectory() as folder:
        if args.fit:
            with open(SYSTEMS, "w", encoding="utf-8") as f:
                f.write(json.dumps(fit(rows, folder), indent=2) + "\n")
        systems = json.load(open(SYSTEMS, encoding="utf-8")) if os.path.exists(SYSTEMS) else {}
        shares = [systems.get(r["system"], {"compute": 1, "communication": 1}) for r in rows]
        planned = [f for f in (outcome(r, s, folder) for r, s in zip(rows, shares)) if f]
    fitted = {r["id"] for own in rows_to_fit(rows).values() for r in own}
    found = [f | {"fitted": f["id"] in fitted} for f in planned if f["measured"]]
    lines, sources = table(found), by_source(found)
    of_both = [f for f in found if f["gpu"] in ("a100", "h100")]
    totals = [summary(of_both, "A100 and H100"), summary(found, "all"),
              summary(held_out(of_both), "of A100 and H100 without the rows of --fit")]
    memory = memory_table(planned)
    print("\n".join([*lines, "", *sources, "", *totals, *left_out(file["left_out"]), "", *memory]))
    if args.write:
        tables = [*lines, "", *sources, ""]
        put([*tables, *totals, *left_out(file["left_out"])], "planner-check")
        put(memory, "planner-check-memory")
    errors = sorted(abs(f["error"]) for f in of_both)
    good = statistics.median(errors) <= 0.10 and sum(e <= 0.25 for e in errors) >= 0.80 * len(errors)
    sys.exit(len(planned) < len(rows) or not good)


if __name__ == "__main__":
    main()

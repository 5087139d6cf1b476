#!/usr/bin/python3
"""Holds --plan against this program's own steps on GPUs: the newest run of each model in dev/results/.

Usage: planner_gpu.py [--write]       (a part of make planner-check)

The runs are those of scripts/gpu_check.sh; the machine is the GPU's file of scripts/machines/. --write puts
the table into dev/README.md. Exit code 1: a run without a plan, an error of the step time above 5%, or
memory used beyond the plan by more than a megabyte, or below the plan by more than 1%.
"""
import argparse
import glob
import json
import subprocess
import sys

from planner_check import put

MACHINES = {"H100": "h100", "H200": "h200"}
OPTIONS = {"simple": ["--model.document_mask=true"]}        # as scripts/gpu_check/72_modern.sh runs it


def runs():
    """The newest result of each GPU and model, by GPU."""
    found = {}
    for path in sorted(glob.glob("dev/results/gpu_check_*.json")):
        file = json.load(open(path, encoding="utf-8"))
        gpu = next((m for name, m in MACHINES.items() if name in file["gpu"]), None)
        for part in file["parts"] if gpu else []:
            if part["part"] in ("step", "models", "modern"):
                found |= {(gpu, r["run"]): r for r in part["results"] if "ms" in r}
    return dict(sorted(found.items(), key=lambda item: item[0][0]))


def plan(gpu, run):
    """The object of --plan --json for the settings of a run."""
    batch = round(run["ms"] / 1000 * run["tokens_per_s"] / 1024) * 1024
    command = ["./train_gpt", f"scripts/{run['run']}.json", "--plan", "--json", f"--cluster.gpu={gpu}",
               f"--train.batch_tokens={batch}", f"--train.micro_batch={run['micro_batch']}",
               "--run.precision=bf16", "--data.tokenizer=", *OPTIONS.get(run["run"], [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{run['run']}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return batch, json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true", help="put the table into dev/README.md")
    args = parser.parse_args()
    titles = ("GPU", "model", "tokens a step", "micro-batch", "step planned", "measured", "error", "tokens/s",
              "mfu", "memory planned", "used")
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    good = True
    for (gpu, name), r in runs().items():
        planned = plan(gpu, r)
        if not planned:
            good = False
            continue
        batch, p = planned
        error, memory = p["step_seconds"] / (r["ms"] / 1000) - 1, p["memory_bytes"] / 1e6
        good &= abs(error) <= 0.05 and -1 <= memory - r["used_MB"] <= 0.01 * memory
        lines.append(f"| {gpu} | {name} | {batch:,} | {r['micro_batch']} | "
                     f"{p['step_seconds'] * 1000:,.0f} ms | {r['ms']:,.0f} ms | {error:+.1%} | "
                     f"{r['tokens_per_s']:,.0f} | {r['mfu']:.1%} | {memory / 1000:.3f} GB | "
                     f"{r['used_MB'] / 1000:.3f} GB |")
    print("\n".join(lines))
    if args.write:
        put(lines, "planner-gpu")
    sys.exit(not good)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Bits flipped on purpose in short runs of a tiny model: what finds them, how often, and how soon.

Usage: flips.py [--trials=10] [--jobs=2] [--seed=1] [--json=FILE]

Each run has three data-parallel ranks on threads, 40 steps, and two micro-batches a rank in each step. A
random bit of a random place is flipped on a random rank, in step 6 to 15 (FAULT and FAULT_PLACE;
llmc/base/guard/flip.h). A cell has runs that ended with exit code 75, of all runs with a flip; then the
median of steps from the flip to the end, 0 being its own step. In brackets: runs that named another rank,
runs that ended with 77.
"""
import argparse
import concurrent.futures
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile

from show_help import show_help

STEPS, RANKS, VOCAB = 40, 3, 512
MESHES = {"fp32, ZeRO 0": ["--run.precision=fp32", "--parallel.zero=0"],
          "bf16, ZeRO 1": ["--run.precision=bf16", "--parallel.zero=1"]}
CHECKS = {"check 1": ["--run.check_every=1"], "check 10": ["--run.check_every=10"],
          "replay 1": ["--run.replay_every=1"],
          "check 1, replay 1": ["--run.check_every=1", "--run.replay_every=1"],
          "check 10, replay 10": ["--run.check_every=10", "--run.replay_every=10"]}
# What is flipped: its action, and about how many places a step has of it.
PLACES = {"weights": ("flip-weights", 28), "moments": ("flip-moments", 28),
          "gradients": ("flip-gradients", 56), "activations": ("flip-activations", 4),
          "message": ("flip-message", 10),
          # of the first micro-batch alone, as a replay is of it
          "gradients, every step": ("flips-gradients", 28),
          "activations, every step": ("flips-activations", 2)}


def write_tokens(path, count, seed):
    draw = random.Random(seed)
    ids = [(7 * i + draw.randrange(5)) % 500 for i in range(count)]
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + struct.pack(f"<{count}H", *ids))


def config(folder):
    tokens, path = os.path.join(folder, "tokens.bin"), os.path.join(folder, "config.json")
    write_tokens(tokens, 21000, 1)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({
            "run": {"threads": 1},
            "model": {"layers": 2, "heads": 2, "channels": 64, "context": 32, "vocab": VOCAB},
            "data": {"train": tokens, "val": tokens},
            "train": {"steps": STEPS, "batch_tokens": 12 * 32, "micro_batch": 2},
            "optimizer": {"lr": 1e-3, "warmup": 2},
            "parallel": {"ranks": RANKS, "transport": "threads"},
            "eval": {"every": 0}, "sample": {"every": 0}, "checkpoint": {"every": 0}, "log": {"every": 0},
        }, f)
    return path


def corrupt_row(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    return next((r for r in rows if r["event"] == "corrupt"), None)


def trial(folder, number, mesh, checks, place, draw):
    """Exit code, steps until the end, and whether the flipped rank was named; None: nothing was flipped."""
    action, count = PLACES[place]
    step, rank = draw.randrange(6, 16), draw.randrange(RANKS)
    run, stamp = os.path.join(folder, f"run{number}"), os.path.join(folder, f"stamp{number}")
    env = os.environ | {"FAULT": f"train:{step}:{action}:{rank}", "FAULT_STAMP": stamp,
                        "FAULT_PLACE": f"{draw.randrange(count)}:{draw.randrange(1 << 40)}"}
    command = ["./train_gpt", os.path.join(folder, "config.json"), f"--run.dir={run}", *MESHES[mesh]]
    ran = subprocess.run(command + CHECKS[checks], env=env, capture_output=True, text=True, check=False,
                         timeout=120)
    if ran.returncode not in (0, 75, 77):
        sys.exit(f"{env['FAULT']} {env['FAULT_PLACE']}: exit code {ran.returncode}: {ran.stderr}")
    if not os.path.exists(stamp):
        return None
    row = corrupt_row(run) if ran.returncode == 75 else None
    return {"code": ran.returncode, "steps": row and row["step"] + 1 - step,
            "named": bool(row and row["rank"] == rank)}


def cell(trials):
    """"9/10, 3": found of all, and the median of the steps until then."""
    found = [t for t in trials if t["code"] == 75]
    wrong = sum(not t["named"] for t in found)
    ended = sum(t["code"] == 77 for t in trials)
    text = f"{len(found)}/{len(trials)}"
    if found:
        text += f", {statistics.median(t['steps'] for t in found):g}"
    return text + (f" ({wrong} other rank)" if wrong else "") + (f" ({ended} x 77)" if ended else "")


def main():
    show_help(__doc__)
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(prefix="flips_") as folder, \
            concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        config(folder)
        number = 0
        for mesh in MESHES:
            print(f"| {mesh} | " + " | ".join(CHECKS) + " |\n|---|" + "---|" * len(CHECKS), flush=True)
            for place in PLACES:
                row = []
                for checks in CHECKS:
                    jobs = []
                    for i in range(args.trials):
                        # the same flips for each of the checks
                        draw = random.Random(f"{args.seed} {mesh} {place} {i}")
                        jobs.append(pool.submit(trial, folder, number, mesh, checks, place, draw))
                        number += 1
                    done = [t for t in (j.result() for j in jobs) if t]
                    results[f"{mesh} | {place} | {checks}"] = done
                    row.append(cell(done))
                print(f"| {place} | " + " | ".join(row) + " |", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()

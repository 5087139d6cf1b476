#!/usr/bin/python3
"""Two ranks of one thread against one rank of two threads: GPT-2 124M, 4,096 tokens a step; see bench.sh.

Usage: bench_ranks.py [PRECISION...]
"""
import json
import os
import subprocess
import sys
import tempfile
import time

from bench import CHANNELS, LAYERS, VOCAB, lines, random_shard
from show_help import show_help

MPI = "mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np 2".split()
# as torchrun starts them
TCP = ["bash", "-c", "export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29517; "
       "RANK=1 LOCAL_RANK=1 \"$@\" & RANK=0 LOCAL_RANK=0 \"$@\"; wait", "bash"]
THREADS = ["--parallel.ranks=2", "--parallel.transport=threads"]
GOAL = 0.9
# name, launcher, settings
CASES = [("1 rank, 2 threads", [], ["--run.threads=2"])]
for zero in (0, 1, 2, 3):
    for launcher in ("mpi", "tcp"):
        CASES.append((f"dp 2, zero {zero}, {launcher}", MPI if launcher == "mpi" else TCP,
                      ["--run.threads=1", f"--parallel.zero={zero}"]))
    CASES.append((f"dp 2, zero {zero}, threads", [],
                  ["--run.threads=1", f"--parallel.zero={zero}", *THREADS]))
for axis in ("tp", "pp"):
    for launcher in ("mpi", "tcp"):
        CASES.append((f"{axis} 2, {launcher}", MPI if launcher == "mpi" else TCP,
                      ["--run.threads=1", f"--parallel.{axis}=2"]))
    CASES.append((f"{axis} 2, threads", [], ["--run.threads=1", f"--parallel.{axis}=2", *THREADS]))
LONG = ["--model.context=4096", "--train.micro_batch=1"]
CASES.append(("1 rank, rows of 4,096", [], ["--run.threads=2", *LONG]))
for name, settings in (("tp 2", ["--parallel.tp=2"]), ("cp 2", ["--parallel.cp=2"]),
                       ("cp 2 by heads", ["--parallel.cp=2", "--parallel.cp_kind=heads"])):
    CASES.append((f"{name}, rows of 4,096, threads", [], ["--run.threads=1", *settings, *THREADS, *LONG]))


def config(folder, precision):
    tokens = os.path.join(folder, "tokens.bin")
    path = os.path.join(folder, f"{precision}.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({
            "run": {"precision": precision},
            "model": {"layers": LAYERS, "heads": 12, "channels": CHANNELS, "context": 256,
                      "vocab": VOCAB},
            "data": {"train": tokens, "val": tokens},
            "train": {"steps": 4, "batch_tokens": 4096, "micro_batch": 2},
            "eval": {"every": 0}, "sample": {"every": 0}, "checkpoint": {"every": 0}, "log": {"comm": True},
        }, f)
    return path


def measure(folder, precision, case):
    """The fastest of a few steps, with the bytes that rank 0 sent and its time of waiting."""
    name, launcher, settings = case
    run = os.path.join(folder, f"{precision} {name}".replace(" ", "_"))
    subprocess.run([*launcher, "./train_gpt", config(folder, precision), f"--run.dir={run}", *settings],
                   check=True, stdout=subprocess.DEVNULL)
    rows = lines(os.path.join(run, "metrics.jsonl"))
    best = max((r for r in rows if r["event"] == "train"), key=lambda r: r["tokens_per_s"])
    comm = next((r for r in rows if r["event"] == "comm" and r["step"] == best["step"]), {})
    start = next(r for r in rows if r["event"] == "start")
    return {"name": name, "precision": precision, "tokens_per_s": best["tokens_per_s"], "ms": best["ms"],
            "wait_ms": comm.get("wait_ms", 0), "sent_bytes": comm.get("bytes", 0),
            "plan_bytes": start["plan_bytes"], "device": start["device"]}


def main():
    precisions = sys.argv[1:] or ["bf16"]
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    result = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": git.stdout.strip(),
              "ranks": []}
    print("GPT-2 124M, 4,096 tokens a step; times and bytes are of one step, of rank 0\n")
    with tempfile.TemporaryDirectory() as folder:
        random_shard(os.path.join(folder, "tokens.bin"), VOCAB)
        for precision in precisions:
            one = 0
            for case in CASES:
                row = measure(folder, precision, case)
                if case[0].startswith("1 rank"):        # the cases behind it are compared with it
                    one = row["tokens_per_s"]
                row["ratio"] = row["tokens_per_s"] / one
                result["ranks"].append(row)
                asked = f" (asked: {GOAL})" if ", zero 1," in row["name"] else ""
                print(f"{precision}  {row['name']:24}{row['tokens_per_s']:7.0f} tokens/s  "
                      f"{row['ratio']:.2f}{asked:13} waits {row['wait_ms']:6.0f} of {row['ms']:6.0f} ms   "
                      f"sends {row['sent_bytes'] / 1e6:6.0f} MB   plan {row['plan_bytes'] / 1e6:6.0f} MB",
                      flush=True)
    os.makedirs("dev/results", exist_ok=True)
    path = f"dev/results/ranks_{time.strftime('%Y%m%d_%H%M%S', time.gmtime())}.json"
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
    print(f"\n{path}")


if __name__ == "__main__":
    show_help(__doc__)
    main()

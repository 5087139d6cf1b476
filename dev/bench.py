#!/usr/bin/env python3
"""Whole steps of ./train_gpt at GPT-2 124M, and bench_ops; see bench.sh. Usage: bench.py BUILD PRECISION..."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

PARAMETERS, LAYERS, CHANNELS, VOCAB = 124439808, 12, 768, 50257
SHAPES = ((4, 256, 0.80, 0.70), (1, 1024, 0.80, 0.70))     # B, T, share of the matmul rate asked in fp32 and in bf16


def random_shard(path, count=200_000):
    """Tokens without structure: speed does not depend on them."""
    rng = random.Random(1)
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
        f.write(struct.pack(f"<{count}H", *(rng.randrange(VOCAB) for _ in range(count))))


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def operations(build, folder, precision, batch, context):
    out = os.path.join(folder, f"ops_{precision}_{context}.jsonl")
    command = [os.path.join(build, "dev", "bench_ops"), f"--json={out}", f"--B={batch}", f"--T={context}", precision]
    subprocess.run(command, check=True)
    return lines(out)


def whole_step(folder, precision, batch, context, steps=6):
    """The fastest of a few steps: tokens/s, and memory planned and taken."""
    run = os.path.join(folder, f"run_{precision}_{context}")
    config = {
        "run": {"dir": run, "precision": precision},
        "model": {"layers": LAYERS, "heads": 12, "channels": CHANNELS, "context": context, "vocab": VOCAB},
        "data": {"train": os.path.join(folder, "tokens.bin"), "val": os.path.join(folder, "tokens.bin")},
        "train": {"steps": steps, "batch_tokens": batch * context, "micro_batch": batch},
        "eval": {"every": 0}, "sample": {"every": 0}, "checkpoint": {"every": 0}, "memory": {"recompute": "none"},
    }
    path = os.path.join(folder, f"{precision}_{context}.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f)
    subprocess.run(["./train_gpt", path], check=True, stdout=subprocess.DEVNULL)
    rows = lines(os.path.join(run, "metrics.jsonl"))
    of = lambda event: [r for r in rows if r["event"] == event]
    return {"tokens_per_s": max(r["tokens_per_s"] for r in of("train")), "device": of("start")[0]["device"],
            "plan_bytes": of("start")[0]["plan_bytes"], "peak_bytes": of("done")[0]["peak_bytes"]}


def main():
    build, precisions = sys.argv[1], sys.argv[2:]
    result = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "ops": [], "steps": []}
    table = []
    with tempfile.TemporaryDirectory() as folder:
        random_shard(os.path.join(folder, "tokens.bin"))
        for precision in precisions:
            for batch, context, goal32, goal16 in SHAPES:
                ops = operations(build, folder, precision, batch, context)
                result["ops"] += ops
                rate = next(r for r in ops if r["event"] == "ops")["matmul_gflops"]
                step = whole_step(folder, precision, batch, context)
                flops = 6 * PARAMETERS + 6 * LAYERS * CHANNELS * context
                share = step["tokens_per_s"] * flops / 1e9 / rate
                goal = goal16 if precision == "bf16" else goal32
                step.update(precision=precision, B=batch, T=context, matmul_gflops=rate, of_peak=share, goal=goal)
                result["steps"].append(step)
                table.append(f"{precision}  B={batch} T={context:<5}{step['tokens_per_s']:9.0f} tokens/s   "
                             f"{share:.2f} of {rate:.0f} GFLOP/s (asked: {goal:.2f})   memory {step['peak_bytes'] / 1e6:.0f} MB, "
                             f"planned {step['plan_bytes'] / 1e6:.0f} MB ({100 * (step['peak_bytes'] / step['plan_bytes'] - 1):+.2f}%)")
    os.makedirs("dev/results", exist_ok=True)
    path = f"dev/results/bench_{time.strftime('%Y%m%d_%H%M%S', time.gmtime())}.json"
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
    print("\nwhole steps, GPT-2 124M: forward, backward, clip, AdamW\n")
    print("\n".join(table))
    print(f"\n{path}")


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Whole steps of ./train_gpt at GPT-2 124M and a Llama of its size, bench_ops, and ./tokenize; see bench.sh.

Usage: bench.py BUILD [PRECISION...] [PART...]
"""
import glob
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import bench_plans
import bench_scores
import bench_tokenize
from show_help import show_help

LAYERS, CHANNELS, VOCAB = 12, 768, 50257
PARAMETERS = {"gpt2": 124439808, "llama": 114114048}       # both tie the head to the embedding
SHAPES = (("gpt2", 4, 256), ("gpt2", 1, 1024), ("llama", 4, 256))      # model, B, T
OPERATIONS = (*SHAPES, ("features", 4, 256), ("packed", 4, 256))          # as bench_models.h has them
KINDS = {"gpt2": {}, "llama": {
    "kv_heads": 4, "norm": "rmsnorm", "bias": False, "position": "rope", "activation": "swiglu",
    "ffn_channels": 2048}}
GOALS = {"fp32": 0.80, "bf16": 0.70}       # share of the matmul rate
PRECISIONS = tuple(GOALS)
PARTS = ("ops", "steps", "muon", "trace", "scores", "quickstart", "plans", "tokenizer")


def random_shard(path, vocab, count=200_000):
    """Tokens without structure: speed does not depend on content."""
    rng = random.Random(1)
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
        f.write(struct.pack(f"<{count}H", *(rng.randrange(vocab) for _ in range(count))))


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def operations(build, folder, precision, *options):
    out = os.path.join(folder, "ops.jsonl")
    program = os.path.join(build, "dev", "bench_ops")
    subprocess.run([program, f"--json={out}", *options, precision], check=True)
    return lines(out)


def whole_steps(folder, precision, model, batch, context, turn, steps=4):
    """Tokens/s of each step but the first; memory planned and taken."""
    run = os.path.join(folder, f"run_{precision}_{model}_{context}_{turn}")
    tokens = os.path.join(folder, "tokens.bin")
    config = {
        "run": {"dir": run, "precision": precision},
        "model": {"layers": LAYERS, "heads": 12, "channels": CHANNELS, "context": context, "vocab": VOCAB,
                  **KINDS[model]},
        "data": {"train": tokens, "val": tokens},
        "train": {"steps": steps, "batch_tokens": batch * context, "micro_batch": batch},
        "eval": {"every": 0}, "sample": {"every": 0}, "checkpoint": {"every": 0},
        "memory": {"recompute": "none"},
    }
    path = os.path.join(folder, f"{precision}_{model}_{context}.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f)
    subprocess.run(["./train_gpt", path], check=True, stdout=subprocess.DEVNULL)
    rows = lines(os.path.join(run, "metrics.jsonl"))
    start = next(r for r in rows if r["event"] == "start")
    return {"tokens_per_s": [r["tokens_per_s"] for r in rows if r["event"] == "train"][1:],
            "device": start["device"], "plan_bytes": start["plan_bytes"],
            "peak_bytes": next(r for r in rows if r["event"] == "done")["peak_bytes"]}


def against_matmul(build, folder, precision, model, batch, context, turns=5):
    """Whole steps and the matmul rate, in turn: the machine may be twice as fast a second later."""
    asked = subprocess.Popen([os.path.join(build, "dev", "bench_ops"), "--rates", f"--model={model}",
                              f"--B={batch}", f"--T={context}", precision], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, bufsize=1)
    rates, steps = [], []
    for turn in range(turns):
        asked.stdin.write("\n")
        rates.append(float(asked.stdout.readline()))
        steps.append(whole_steps(folder, precision, model, batch, context, turn))
    asked.stdin.close()
    if asked.wait() != 0:
        sys.exit("error: bench_ops --rates failed")
    tokens = [statistics.median(s["tokens_per_s"]) for s in steps]
    flops = 6 * PARAMETERS[model] + 6 * LAYERS * CHANNELS * context
    rate, speed = statistics.median(rates), statistics.median(tokens)
    return {**steps[0], "model": model, "precision": precision, "B": batch, "T": context,
            "tokens_per_s": speed, "turns_tokens_per_s": tokens,
            "turns_matmul_gflops": rates, "matmul_gflops": rate,
            "of_peak": speed * flops / 1e9 / rate, "goal": GOALS[precision]}


def quickstart(build, folder):
    """The quickstart, in a few hundred steps, with this project's source as the text."""
    run, text = os.path.join(folder, "quickstart"), os.path.join(folder, "source.txt")
    tokens, tokenizer = os.path.join(folder, "source"), os.path.join(folder, "tokenizer.json")
    with open(text, "w", encoding="utf-8") as out:
        names = [n for ending in ("h", "cpp", "cu") for n in glob.glob(f"llmc/**/*.{ending}", recursive=True)]
        for name in sorted(names):
            with open(name, encoding="utf-8") as source:
                out.write(source.read())
    for command in (["train", "--vocab=4096", f"--out={tokenizer}", text],
                    ["encode", f"--tokenizer={tokenizer}", "--val=0.1", f"--out={tokens}", text]):
        subprocess.run(["./tokenize", *command], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    data = [f"--data.train={tokens}_train_*.bin", f"--data.val={tokens}_val_*.bin",
            f"--data.tokenizer={tokenizer}"]
    subprocess.run(["./train_gpt", "scripts/quickstart.json", f"--run.dir={run}", *data, "--train.steps=300",
                    "--optimizer.warmup=40", "--sample.every=100", "--eval.every=100",
                    "--checkpoint.every=100"], check=True, stdout=subprocess.DEVNULL)
    rows = lines(os.path.join(run, "metrics.jsonl"))
    event = lambda name: next(r for r in rows if r["event"] == name)
    return {"plan_bytes": event("start")["plan_bytes"], "peak_bytes": event("done")["peak_bytes"],
            "logs": logs(build, folder, data)}


def logs(build, folder, data):
    """What logs add to a step of the quickstart: calls timed by themselves, and steps that measure health,
    every third, against the others of the same run."""
    calls = json.loads(subprocess.run([os.path.join(build, "dev/bench_logs"), folder], check=True,
                                      capture_output=True, text=True).stdout)
    run = os.path.join(folder, "health")
    subprocess.run(["./train_gpt", "scripts/quickstart.json", f"--run.dir={run}", *data, "--train.steps=150",
                    "--optimizer.warmup=40", "--sample.every=0", "--eval.every=0", "--checkpoint.every=0",
                    "--log.health=3"], check=True, stdout=subprocess.DEVNULL)
    steps = [r for r in lines(os.path.join(run, "metrics.jsonl")) if r["event"] == "train"][20:]
    usual = statistics.median(r["ms"] for r in steps if r["step"] % 3)
    health = statistics.median(r["ms"] for r in steps if r["step"] % 3 == 0)
    # the .prom file is written once a second
    us = calls["event_file_us"] + calls["prometheus_us"] + calls["prometheus_write_us"] * usual / 1000
    always = calls["step_meter_us"] + calls["rank_file_us_per_s"] * usual / 1000
    return {**calls, "step_ms": usual, "files_of_step": us / (1000 * usual), "health_step_ms": health,
            "health_of_step": health / usual - 1, "always_of_step": always / (1000 * usual)}


def memory(s):
    over = 100 * (s["peak_bytes"] / s["plan_bytes"] - 1)
    return f"memory {s['peak_bytes'] / 1e6:.1f} MB, planned {s['plan_bytes'] / 1e6:.1f} MB ({over:+.2f}%)"


def line(s):
    return (f"{s['model']:<6}{s['precision']}  B={s['B']} T={s['T']:<5}{s['tokens_per_s']:9.0f} tokens/s   "
            f"{s['of_peak']:.2f} of {s['matmul_gflops']:.0f} GFLOP/s (asked: {s['goal']:.2f})   "
            f"{memory(s)}")


def measure(build, precisions, parts, keep):
    """keep(name, rows) is called after each part."""
    with tempfile.TemporaryDirectory() as folder:
        random_shard(os.path.join(folder, "tokens.bin"), VOCAB)
        for precision in precisions:
            for model, batch, context in OPERATIONS if "ops" in parts else ():
                keep("ops", operations(build, folder, precision, f"--model={model}", f"--B={batch}",
                                       f"--T={context}"))
            for shape in SHAPES if "steps" in parts else ():
                keep("steps", [against_matmul(build, folder, precision, *shape)])
            for part in ("muon", "trace"):
                if part in parts:
                    keep(part, operations(build, folder, precision, f"--{part}"))
            if "scores" in parts:
                keep("scores", [bench_scores.row(folder, precision)])
        if "quickstart" in parts:
            keep("quickstart", quickstart(build, folder))
    for part, rows in (("plans", bench_plans.rows), ("tokenizer", bench_tokenize.rows)):
        if part in parts:
            keep(part, rows())


def show(result):
    if "steps" in result:
        print("\nwhole steps of 12 x 768: forward, backward, clip, AdamW\n")
        print("\n".join(line(step) for step in result["steps"]))
    if "quickstart" in result:
        print(f"\nquickstart, 300 steps: {memory(result['quickstart'])}, within 2% asked")
        s = result["quickstart"]["logs"]
        print(f"tensorboard and prometheus: {100 * s['files_of_step']:.3f}% of a step of {s['step_ms']:.1f} "
              f"ms (asked: 0.1%); a step with log.health takes {100 * s['health_of_step']:.0f}% more; with "
              f"all off, figures of a step and ranks/0.json take {100 * s['always_of_step']:.4f}%")
    for part, module in (("scores", bench_scores), ("plans", bench_plans), ("tokenizer", bench_tokenize)):
        if part in result:
            print("\n" + "\n".join(module.line(row) for row in result[part]))


def main():
    build, words = sys.argv[1], sys.argv[2:]
    precisions = [w for w in words if w in PRECISIONS] or list(PRECISIONS)
    parts = [w for w in words if w not in PRECISIONS] or list(PARTS)
    unknown = set(parts) - set(PARTS)
    if unknown:
        sys.exit(f"make bench: BENCH names {', '.join(sorted(unknown))}; known are {' '.join(PRECISIONS)}, "
                 f"and the parts {' '.join(PARTS)}")
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    result = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": git.stdout.strip()}
    os.makedirs("dev/results", exist_ok=True)
    path = f"dev/results/bench_{time.strftime('%Y%m%d_%H%M%S', time.gmtime())}.json"

    def keep(name, found):
        result[name] = result[name] + found if isinstance(found, list) and name in result else found
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
        os.replace(path + ".new", path)

    measure(build, precisions, parts, keep)
    show(result)
    print(f"\n{path}")


if __name__ == "__main__":
    show_help(__doc__)
    main()

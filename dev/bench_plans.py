#!/usr/bin/python3
"""How long --plan and --plan=search take: seconds of the process and of all its cores, the best of three.

Usage: bench_plans.py
"""
import json
import resource
import subprocess
import time

from show_help import show_help

TURNS = 3
GPU = ["--cluster.gpu=h100", "--json"]
PLAN = [*GPU, "--plan", "--parallel.tp=8", "--train.micro_batch=1"]
LARGE = [*PLAN, "--parallel.pp=16", "--parallel.zero=1"]
SHARDED = [*PLAN, "--parallel.pp=16", "--parallel.zero=3"]
CHUNKS = [*PLAN, "--parallel.pp=2", "--parallel.zero=2", "--parallel.schedule=interleaved",
          "--parallel.virtual_stages=7"]
FOUND = [*GPU, "--plan=search"]
CASES = [       # config, ranks, options
    ("gpt3_175B", 1024, [*LARGE, "--train.batch_tokens=3145728"]),
    ("gpt3_175B", 16384, [*LARGE, "--train.batch_tokens=3145728"]),
    ("llama3_405B", 1024, [*LARGE, "--train.batch_tokens=16777216"]),
    ("llama3_405B", 16384, [*LARGE, "--train.batch_tokens=16777216"]),
    ("llama3_405B", 16384, [*SHARDED, "--train.batch_tokens=16777216"]),
    ("llama3_405B", 16384, [*CHUNKS, "--train.batch_tokens=16777216"]),
    ("llama3_8B", 8, [*FOUND, "--train.batch_tokens=4194304"]),
    ("llama3_70B", 256, [*FOUND, "--train.batch_tokens=4194304"]),
    ("llama3_405B", 16384, [*FOUND, "--train.batch_tokens=16777216"]),
]


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(name, ranks, options):
    command = ["./train_gpt", f"scripts/{name}.json", f"--parallel.ranks={ranks}", *options]
    best, cpu, printed = float("inf"), float("inf"), ""
    for _ in range(TURNS):
        begin, used = time.perf_counter(), cpu_seconds()
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        best, cpu = min(best, time.perf_counter() - begin), min(cpu, cpu_seconds() - used)
    found = json.loads(printed)
    plans = found["rejected"] + len(found["candidates"]) if "rejected" in found else 1
    zero = found.get("options", {}).get("zero")     # of a plan
    return {"model": name, "ranks": ranks, "zero": zero, "plans": plans, "seconds": best, "cpu_seconds": cpu}


def rows():
    return [row(*case) for case in CASES]


def line(r):
    what = f"a plan of ZeRO {r['zero']}" if r["plans"] == 1 else f"a search of {r['plans']:,} plans"
    return (f"{r['model']} on {r['ranks']:,} ranks: {what} in {r['seconds']:.2f} s"
            f" ({r['cpu_seconds']:.2f} s of all cores)")


if __name__ == "__main__":
    show_help(__doc__)
    for case in CASES:
        print(line(row(*case)), flush=True)

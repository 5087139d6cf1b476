#!/usr/bin/python3
"""Holds --plan against runs on this machine: step times with cluster.gpu=auto, and memory of every mesh.

Usage: planner_here.py [--write] [--part=time|memory] [--only=PRESET,...]       (make planner-here)

Times: a plan that measures this machine anew and a run, in turn, so that a busy moment meets both; medians
over the turns. Memory: plan_bytes of the start against peak_bytes of the end of metrics.jsonl. Presets have
at most 4 layers there, and rows of at most 128 tokens; a preset whose embeddings need more than 14 GB is left
out, and named. Ranks are processes of mpirun, each with a peak of its own; without mpirun they are threads,
which share a peak evenly. --write puts the tables into dev/README.md. Exit code 1: a time off by more than
15%, a peak above its plan, or a plan above the peak by more than 1%.
"""
import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

from planner_check import README, put

TURNS, STEPS = 3, 6
LARGEST = 14e9                  # bytes of a preset whose memory is measured: minutes, not an hour
QUIET = ["--eval.every=0", "--eval.tasks=[]", "--sample.every=0", "--checkpoint.every=0", "--data.tokenizer=",
         "--run.hang_timeout=1000", "--optimizer.warmup=0", "--optimizer.decay=0"]

SHAPES = {          # name: preset, settings
    "GPT-2 124M": ("gpt2_124M", {"train.batch_tokens": 1024, "train.micro_batch": 4, "model.context": 256}),
    "SmolLM2-135M": ("smollm2_135M",
                     {"train.batch_tokens": 1024, "train.micro_batch": 4, "model.context": 256}),
    "quickstart": ("quickstart", {}),
}
TWO_RANKS = {"parallel.ranks": 2, "parallel.zero": 1, "parallel.transport": "threads", "run.threads": 1,
             "train.micro_batch": 1}

MESHES = {          # name: ranks, tp, pp, zero
    "1": (1, 1, 1, 0), "zero 1": (2, 1, 1, 1), "pp 2": (2, 1, 2, 0), "tp 2, zero 3": (4, 2, 1, 3),
    "tp 2, pp 2, zero 1": (8, 2, 2, 1), "zero 2": (8, 1, 1, 2),
}


def options(settings):
    return [f"--{key}={value}" for key, value in settings.items()]


def shard(path, vocab, tokens=60000):
    """Ids without a meaning."""
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240801, 7, tokens, vocab, *[0] * 252))
        f.write(struct.pack(f"<{tokens}I", *[(i * 7919 + 5) % vocab for i in range(tokens)]))
    return [f"--data.train={path}", f"--data.val={path}"]


def call(command, cache):
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                               **os.environ, "XDG_CACHE_HOME": cache})
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[0])
    return done.stdout


def rows_of(run):
    with open(f"{run}/metrics.jsonl", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


# ------------------------------------------------------------------------------------------------------------
# times

def planned_and_measured(preset, settings, folder):
    config, plans, runs = f"scripts/{preset}.json", [], []
    vocab = json.load(open(config, encoding="utf-8"))["model"]["vocab"]
    data = shard(f"{folder}/data.bin", vocab)
    for _ in range(TURNS):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            args = ["./train_gpt", config, *QUIET, *data, *options(settings), f"--run.dir={own}/run"]
            plan = json.loads(call([*args, "--plan", "--json", "--cluster.gpu=auto"], own))
            plans.append(plan["step_seconds"])
            call([*args, f"--train.steps={STEPS}"], own)
            steps = [r["ms"] for r in rows_of(f"{own}/run") if r["event"] == "train"][1:]
            runs.append(statistics.median(steps) / 1000)
    return statistics.median(plans), statistics.median(runs)


def times(only, folder):
    lines = ["| model | ranks | predicted | measured | error |", "|---|---|---|---|---|"]
    errors = []
    for name, (preset, settings) in SHAPES.items():
        if only and preset not in only:
            continue
        for ranks, mesh in ((1, {}), (2, TWO_RANKS)):
            planned, took = planned_and_measured(preset, {**settings, **mesh}, folder)
            errors.append(abs(planned / took - 1))
            lines.append(f"| {name} | {ranks} | {planned:.3g} s | {took:.3g} s | {planned / took - 1:+.1%} |")
            print(lines[-1], flush=True)
    lines += ["", f"Largest error: {max(errors):.1%}. Load average at the end: {os.getloadavg()[1]:.1f}."]
    return lines, max(errors) <= 0.15


# ------------------------------------------------------------------------------------------------------------
# memory

def shortened(preset, room):
    """Settings of a preset, reduced to fit in `room` bytes on every mesh; None: the embeddings do not fit."""
    model = json.load(open(f"scripts/{preset}.json", encoding="utf-8"))["model"]
    channels = model.get("channels", 1024)
    context = min(model["context"], 128)
    tables = model["vocab"] * channels * (1 if model.get("tied", True) else 2)
    block = 4 * channels**2 + 3 * channels * model.get("ffn_channels", 4 * channels)
    for layers in (4, 2):
        copies = 4 * 8 + 12             # bytes of a parameter, of 8 ranks with zero 2 and sharded state
        if (tables + layers * block) * copies < room:
            return {"model.layers": min(layers, model.get("layers", layers)), "model.context": context}
    return None


def bytes_of(preset, settings, mesh, folder):
    """(peak, plan) of the fullest rank; None: the run failed, most often as the mesh is impossible."""
    ranks, tp, pp, zero = mesh
    dp = ranks // (tp * pp)
    all_settings = {**settings, "train.batch_tokens": settings["model.context"] * dp * pp, "train.steps": 1,
                    "train.micro_batch": 1, "parallel.tp": tp, "parallel.pp": pp,
                    "parallel.zero": zero, "run.threads": 1}
    launcher = []
    if ranks > 1 and shutil.which("mpirun"):
        launcher = ["mpirun", "--oversubscribe", "-n", str(ranks)]
    else:
        all_settings |= {"parallel.ranks": ranks, "parallel.transport": "threads"}
    vocab = json.load(open(f"scripts/{preset}.json", encoding="utf-8"))["model"]["vocab"]
    with tempfile.TemporaryDirectory(dir=folder) as own:
        command = [*launcher, "./train_gpt", f"scripts/{preset}.json", *QUIET,
                   *shard(f"{own}/data.bin", vocab), *options(all_settings), f"--run.dir={own}/run"]
        try:
            call(command, own)
        except RuntimeError as e:
            print(f"{preset}, {mesh}: {e}", file=sys.stderr)
            return None
        rows = rows_of(f"{own}/run")
    planned = next(r["plan_bytes"] for r in rows if "plan_bytes" in r)
    return [r["peak_bytes"] for r in rows if "peak_bytes" in r][-1], planned


def is_close(peak, planned):
    """A plan is never less than the peak, and at most 1% more."""
    return peak <= planned <= 1.01 * peak


def available():
    with open("/proc/meminfo", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable")) * 1024


def memory(only, folder):
    presets = sorted(f[:-5] for f in os.listdir("scripts") if f.endswith(".json"))
    presets = [p for p in presets if "model" in json.load(open(f"scripts/{p}.json", encoding="utf-8"))]
    presets = [p for p in presets if not only or p in only]
    names = [f"{mesh[0]}: {name}" if mesh[0] > 1 else "1 rank" for name, mesh in MESHES.items()]
    lines = ["| preset | layers | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(MESHES)]
    pairs, left_out = [], []
    for preset in presets:
        settings = shortened(preset, min(LARGEST, 0.7 * available()))
        if not settings:
            left_out.append(preset)
            continue
        found = [bytes_of(preset, settings, mesh, folder) for mesh in MESHES.values()]
        pairs += [pair for pair in found if pair]
        cells = [f"{pair[0] / pair[1] - 1:+.2%}" if pair else "-" for pair in found]
        lines.append(f"| {preset} | {settings['model.layers']} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    errors = [abs(peak / planned - 1) for peak, planned in pairs]
    good = all(is_close(*pair) for pair in pairs)
    above = sum(peak > planned for peak, planned in pairs)
    lines += ["", f"{len(errors)} runs: median {statistics.median(errors):.2%}, largest {max(errors):.2%}, "
              f"{sum(e <= 0.01 for e in errors)} within 1%, {above} above the plan."]
    if left_out:
        lines[-1] += f" Left out, for memory: {', '.join(left_out)}."
    return lines, good


# ------------------------------------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true", help=f"put the tables into {README}")
    parser.add_argument("--part", choices=("time", "memory"))
    parser.add_argument("--only", type=lambda text: text.split(","), help="presets, apart by commas")
    args = parser.parse_args()
    good = True
    for part, table in (("time", times), ("memory", memory)):
        if args.part in (None, part):
            with tempfile.TemporaryDirectory() as folder:
                lines, within = table(args.only, folder)
            good &= within
            print("\n".join(lines))
            if args.write:
                put(lines, f"planner-{part}")
    sys.exit(not good)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Speed of ./tokenize: encoding on one core from a cold start, training a vocabulary on all cores.

Usage: bench_tokenize.py        (make bench calls it through bench.py, which keeps its rows)

The text is what Debian's linux-doc-6.1 holds, 48 MB of distinct English; encoding takes GPT-2's vocabulary,
which data/gpt2_vocab.py brings. Where either cannot be fetched, a line says so and the row is left out.
Seconds are of the whole process, its start, reading and writing included; the text is in the page cache.
"""
import glob
import gzip
import json
import math
import os
import subprocess
import sys
import tempfile
import time

from show_help import show_help

PACKAGE, RANKS = "linux-doc-6.1", "data/gpt2/gpt2.tiktoken"
TEXT = "build/bench/linux-doc.txt"
GOAL_MBS, GOAL_RATIO, GOAL_SECONDS = 150, 1.3, 30
PATTERNS, GOAL_OF_GPT2 = ("gpt2", "llama3", "qwen2", "smollm", "o200k"), 0.6
TRAIN_BYTES, TRAIN_VOCAB = 100_000_000, 32768


def quiet(command, folder="."):
    return subprocess.run(command, cwd=folder, shell=True, capture_output=True, check=False).returncode == 0


def fetch_text():
    """The text of the package's .rst files, in the order of names; None without the package."""
    if os.path.exists(TEXT):
        return TEXT
    with tempfile.TemporaryDirectory() as folder:
        get = f"apt-get download {PACKAGE} && dpkg -x *.deb x"
        if not quiet(get, folder) and not quiet(f"apt-get update && {get}", folder):
            return None
        names = glob.glob(folder + "/x/**/*.rst*", recursive=True)
        data = []
        for name in sorted(n for n in names if os.path.isfile(n)):
            with (gzip.open if name.endswith(".gz") else open)(name, "rb") as f:
                data.append(f.read())
    os.makedirs(os.path.dirname(TEXT), exist_ok=True)
    with open(TEXT + ".part", "wb") as f:
        f.write(b"".join(data))
    os.replace(TEXT + ".part", TEXT)
    return TEXT


def seconds_of(command, runs):
    best = math.inf
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - start)
    return best


def as_json_lines(text, folder):
    """The same text, 50 lines a document."""
    path = os.path.join(folder, "text.jsonl")
    with open(text, encoding="utf-8", errors="replace", newline="") as f, open(path, "w") as out:
        lines = f.readlines()
        for i in range(0, len(lines), 50):
            out.write(json.dumps({"text": "".join(lines[i:i + 50])}) + "\n")
    return path


def encoding(text, folder):
    """MB/s of text on a single core, the best of ten turns of a third of a second."""
    core = min(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(core), "./tokenize", "encode", f"--tokenizer={RANKS}"]
    inputs = {"encode": text, "encode .jsonl": as_json_lines(text, folder)}
    seconds = dict.fromkeys(inputs, math.inf)
    for turn in range(10):
        for what, path in inputs.items():
            out = f"--out={folder}/{turn}"
            seconds[what] = min(seconds[what], seconds_of([*command, out, path], 1))
    size = os.path.getsize(text)
    goals = {"encode": GOAL_MBS, "encode .jsonl": size / 1e6 / seconds["encode"] / GOAL_RATIO}
    return [{"what": what, "bytes": size, "threads": 1, "seconds": s, "mb_per_s": size / 1e6 / s,
             "goal_mb_per_s": goals[what]} for what, s in seconds.items()]


def patterns(text, folder):
    """MB/s of each pre-tokenization with a vocabulary of its own, in turns; asked is a share of GPT-2's."""
    core, seconds = min(os.sched_getaffinity(0)), dict.fromkeys(PATTERNS, math.inf)
    for name in PATTERNS:
        subprocess.run(["./tokenize", "train", f"--pattern={name}", f"--vocab={TRAIN_VOCAB}",
                        f"--out={folder}/{name}.json", text], check=True, stdout=subprocess.DEVNULL)
    for _ in range(5):
        for name in PATTERNS:
            command = ["taskset", "-c", str(core), "./tokenize", "encode", f"--out={folder}/{name}",
                       f"--tokenizer={folder}/{name}.json", text]
            seconds[name] = min(seconds[name], seconds_of(command, 1))
    size = os.path.getsize(text)
    goal = GOAL_OF_GPT2 * size / 1e6 / seconds["gpt2"]
    return [{"what": "as " + name, "bytes": size, "threads": 1, "seconds": s, "mb_per_s": size / 1e6 / s,
             "goal_mb_per_s": goal} for name, s in seconds.items()]


def training(text, folder):
    """Seconds for a vocabulary of 32k ids on 100 MB: the text, repeated."""
    with open(text, "rb") as f:
        data = f.read()
    many = os.path.join(folder, "many.txt")
    with open(many, "wb") as f:
        f.write((data * (TRAIN_BYTES // len(data) + 1))[:TRAIN_BYTES])
    command = ["./tokenize", "train", f"--vocab={TRAIN_VOCAB}", f"--out={folder}/t.json", many]
    return {"what": "train", "bytes": TRAIN_BYTES, "vocab": TRAIN_VOCAB, "seconds": seconds_of(command, 1),
            "threads": len(os.sched_getaffinity(0)), "goal_seconds": GOAL_SECONDS}


def rows():
    text = fetch_text()
    if not text:
        print(f"./tokenize is not measured: apt-get could not download {PACKAGE}")
        return []
    have_ranks = os.path.exists(RANKS) or quiet(f"{sys.executable} data/gpt2_vocab.py")
    with tempfile.TemporaryDirectory() as folder:
        result = encoding(text, folder) if have_ranks else []
        if not have_ranks:
            print(f"./tokenize encode is not measured: data/gpt2_vocab.py could not bring {RANKS}")
        return result + patterns(text, folder) + [training(text, folder)]


def line(row):
    if row["what"] != "train":
        return (f"tokenize {row['what']:13}  {row['bytes'] / 1e6:.0f} MB of linux-doc, one core, cold start: "
                f"{row['mb_per_s']:.0f} MB/s (asked: {row['goal_mb_per_s']:.0f})")
    return (f"tokenize {row['what']:13}  {row['vocab']} ids on {row['bytes'] / 1e6:.0f} MB, "
            f"{row['threads']} threads: {row['seconds']:.1f} s (asked: {row['goal_seconds']})")


if __name__ == "__main__":
    show_help(__doc__)
    for measured in rows():
        print(line(measured))

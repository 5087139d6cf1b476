#!/usr/bin/python3
"""Speed of --evaluate on HellaSwag's shape by a GPT-2 124M: documents/s, with and without shared beginnings.

Usage: bench_scores.py          (make bench calls it through bench.py, which keeps its row)

A document has a context of some 60 words and four continuations of some 20, of this project's prose. Without
sharing, the contexts of a document differ in their first word. The weights are random, as speed does not
depend on them. Seconds are of a run with all documents minus a run with two, which goes first: the first run
after others have taken the memory also waits for its pages. The row is of the turn with the median gain.
"""
import glob
import json
import os
import random
import statistics
import subprocess
import tempfile
import time

from show_help import show_help

DOCUMENTS, CONTEXT, CONTINUATION = 96, 60, 20           # of words
TURNS = 3
MODEL = {"layers": 12, "heads": 12, "channels": 768, "context": 1024, "vocab": 50257}
GOAL = 0.85                                             # of the gain by the number of tokens


def prose():
    """The words of this project's READMEs."""
    words = []
    for name in sorted(glob.glob("**/README.md", recursive=True)):
        with open(name, encoding="utf-8") as f:
            words += f.read().split()
    return words


def write_task(path, words, documents, shared):
    """Writes a task. shared: whether the contexts of a document are equal."""
    rng = random.Random(3)
    with open(path, "w", encoding="utf-8") as f:
        head = {"task": os.path.basename(path)[:-6], "accuracy": "sum", "accuracy_norm": "bytes"}
        print(json.dumps(head), file=f)
        for doc in range(documents):
            at = rng.randrange(len(words) - CONTEXT)
            for idx in range(4):
                first = "abcd"[0 if shared else idx]
                end = rng.randrange(len(words) - CONTINUATION)
                print(json.dumps({"doc_id": doc, "idx": idx, "label": 0,
                                  "context": " ".join([first] + words[at:at + CONTEXT]),
                                  "continuation": " " + " ".join(words[end:end + CONTINUATION])}), file=f)


def tokens_of(tokenizer, path, shared):
    """Number of tokens for the model to read; a shared context counts once per document."""
    rows = [json.loads(line) for line in open(path, encoding="utf-8")][1:]
    texts = [r["context"] for r in rows if not shared or r["idx"] == 0] + [r["continuation"] for r in rows]
    ids = subprocess.run(["./tokenize", "ids", f"--tokenizer={tokenizer}", "-"], input="\n".join(texts),
                         text=True, capture_output=True, check=True).stdout
    return len(ids.split()) - len(texts) + 1            # without the newlines in between


def seconds_of(config, path):
    start = time.monotonic()
    subprocess.run(["./train_gpt", config, f"--evaluate={path}"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return time.monotonic() - start


def turn(folder, config, tokens):
    found = {}
    for name in ("shared", "apart"):
        few, all_documents = (seconds_of(config, f"{folder}/{name}{part}.jsonl") for part in ("_few", ""))
        found[name] = {"documents_per_s": (DOCUMENTS - 2) / (all_documents - few), "tokens": tokens[name]}
    return {**found, "gain": found["shared"]["documents_per_s"] / found["apart"]["documents_per_s"]}


def row(folder, precision):
    words, tokenizer, text = prose(), f"{folder}/words.json", f"{folder}/words.txt"
    with open(text, "w", encoding="utf-8") as f:
        f.write(" ".join(words))
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["./tokenize", "train", "--vocab=1500", f"--out={tokenizer}", text], **quiet)
    encode = ["encode", f"--tokenizer={tokenizer}", f"--out={folder}/words", text]
    subprocess.run(["./tokenize", *encode], **quiet)
    config = f"{folder}/scores.json"
    data = f"{folder}/words_train_*.bin"
    with open(config, "w", encoding="utf-8") as f:
        json.dump({"run": {"dir": f"{folder}/scores_{precision}", "precision": precision}, "model": MODEL,
                   "data": {"train": data, "val": data, "tokenizer": tokenizer},
                   "train": {"steps": 0, "batch_tokens": 1024}, "eval": {"every": 0},
                   "sample": {"every": 0}}, f)
    subprocess.run(["./train_gpt", config], **quiet)    # saves random weights as step_0
    tokens = {}
    for name, shared in (("shared", True), ("apart", False)):
        path = f"{folder}/{name}.jsonl"
        write_task(path, words, DOCUMENTS, shared)
        write_task(f"{folder}/{name}_few.jsonl", words, 2, shared)
        tokens[name] = tokens_of(tokenizer, path, shared)
    turns = sorted((turn(folder, config, tokens) for _ in range(TURNS)), key=lambda t: t["gain"])
    return {**turns[TURNS // 2], "precision": precision, "gains": [t["gain"] for t in turns],
            "gain_of_tokens": tokens["apart"] / tokens["shared"]}


def line(r):
    shares = [gain / r["gain_of_tokens"] for gain in r["gains"]]
    return (f"HellaSwag's shape, 124M {r['precision']}: {r['shared']['documents_per_s']:.2f} documents/s, "
            f"{r['apart']['documents_per_s']:.2f} without shared beginnings; "
            f"{statistics.median(shares):.2f} of the gain of {r['gain_of_tokens']:.2f} that the tokens allow "
            f"(asked: {GOAL}; {min(shares):.2f} to {max(shares):.2f} in {len(shares)} turns)")


if __name__ == "__main__":
    show_help(__doc__)
    with tempfile.TemporaryDirectory() as place:
        print(line(row(place, "fp32")))

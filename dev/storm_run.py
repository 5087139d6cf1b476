"""The run of dev/storm.py: its settings, and its rows as they come."""
import collections
import json
import os
import random
import struct
import time

HANG = 4                        # seconds: run.hang_timeout


def write_tokens(path, count):
    draw = random.Random(1)
    ids = [(7 * i + draw.randrange(5)) % 500 for i in range(count)]
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + struct.pack(f"<{count}H", *ids))


def write_config(folder, args):
    tokens = os.path.join(folder, "tokens.bin")
    write_tokens(tokens, 200_000)
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({
            "run": {"threads": 1, "precision": "fp32", "hang_timeout": HANG, "elastic": True,
                    "slots": args.slots},
            "model": {"layers": 2, "heads": 2, "channels": 64, "context": 32, "vocab": 512},
            "data": {"train": tokens, "val": tokens},
            "train": {"steps": 10_000_000, "batch_tokens": 32 * args.ranks * args.rows, "micro_batch": 1},
            "optimizer": {"schedule": "constant", "lr": 1e-3, "warmup": 2},
            "parallel": {"ranks": args.ranks, "transport": "tcp", "zero": 2},
            "eval": {"every": 0}, "sample": {"every": 0}, "checkpoint": {"every": 100, "keep_last": 2},
        }, f)
    return path


class Rows:
    """Rows of metrics.jsonl as they come. A run that goes back to a checkpoint cuts the last rows off."""

    def __init__(self, path):
        self.path, self.at, self.tail, self.rest = path, 0, b"", b""
        self.times = []                 # (when, step) of each step that came
        self.events = collections.Counter()
        self.seconds = []               # of rows regroup

    def look(self):
        try:
            with open(self.path, "rb") as f:
                f.seek(self.at - len(self.tail))
                data = f.read()
                known = data.startswith(self.tail)
                if not known:
                    self.at, self.tail, self.rest = 0, b"", b""
                    f.seek(0)
                    data = f.read()
        except OSError:
            return
        data = data[len(self.tail):]
        self.at += len(data)
        self.tail = (self.tail + data)[-200:]
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        anew = not known and bool(self.times)
        for line in lines:
            self.take(json.loads(line), anew)

    def take(self, row, anew):
        if row["event"] == "train" and (not anew or row["step"] > self.times[-1][1]):
            self.times.append((time.monotonic(), row["step"]))
        if not anew:
            self.events[row["event"]] += 1
            if row["event"] == "regroup":
                self.seconds.append(row["seconds"])

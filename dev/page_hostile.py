#!/usr/bin/python3
"""Checks of the page on rows that no trainer writes, in headless Chromium.

    dev/page_hostile.py FOLDER

Writes runs below FOLDER, which is new, and looks at each of them in their report. A line per check that
fails, and exit code 1; the last line counts. Exit code 3: no Chromium.
"""
import json
import os
import subprocess
import sys

from page_tab import Page, check, end, need_chromium
from show_help import show_help

DRAWN = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"


def train_rows(steps, loss=lambda step: 3.0, **more):
    return [{"event": "train", "step": step, "loss": loss(step), "norm": 1, "ms": 10, "tokens": step, **more}
            for step in steps]


def hostile_runs():
    """Run -> rows, and the points that the page can draw of training or validation."""
    few, wild = range(1, 20), [5e-324, 1.7e308, -1.7e308, 0, 3]
    val = [{"event": "val", "step": step, "loss": 3.5} for step in (0, 10, 20)]
    events = ("sample", "health", "grad_norms", "task", "spike", "resume", "done", "comm", "memory")
    keys = ("text", "norms", "loss", "task", "blocks")
    values = ((5, "x"), (2**53, [1, "x", {"name": 7}]), ("x", {"a": -1e308}), (-1, None))
    odd = [{"event": event, "step": step, **dict.fromkeys(keys, value)}
           for event in events for step, value in values]
    return {
        "denormal": (train_rows(few, lambda s: 5e-324), 19),
        "denormals": (train_rows(few, lambda s: 1e-310 * s, ms=5e-324, lr=5e-324), 19),
        "huge": (train_rows(few, lambda s: 1.7e308 * (-1)**s, ms=1e308, tokens_per_s=1e308), 19),
        "wild": (train_rows(few, lambda s: wild[s % 5], norm=-1, ms=-5), 19),
        "late": (train_rows(range(2**53 - 8, 2**53)), 8),
        "negative": (train_rows(range(-8, 4)), 12),
        "falling": (train_rows(range(50, 0, -1)), 1),
        "equal": (train_rows([7] * 9), 1),
        "tiny": (train_rows([i * 5e-324 for i in few]), 1),
        "one": (train_rows([1]), 1),
        "val": (val, 3),
        "strings": (train_rows(few, str, norm=[1], lr={"a": 1}) + train_rows([30]) + odd, 1),
    }


def look(folder):
    names = hostile_runs()
    for name, (rows, _) in names.items():
        os.makedirs(f"{folder}/{name}")
        with open(f"{folder}/{name}/metrics.jsonl", "w", encoding="utf-8") as f:
            f.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        with open(f"{folder}/{name}/config.json", "w", encoding="utf-8") as f:
            json.dump({"train": {"steps": "x"}, "model": {"layers": 1e300}, "parallel": {"pp": 1e9}}, f)
    subprocess.run(["./train_gpt", *(f"{folder}/{name}" for name in names), f"--report={folder}/all.html"],
                   check=True, stdout=subprocess.DEVNULL)
    views = [f"x={axis}&{how}" for axis in ("time", "flops", "step")
             for how in ("logx=1&logy=train/loss&logy=val/loss", "smooth=0")]
    with Page() as page:
        page.open(f"file://{folder}/all.html")
        page.until("document.querySelectorAll('#legend li').length")
        for name, (_, points) in names.items():
            chart = "val/loss" if name == "val" else "train/loss"
            hashes = [view + "".join(f"&off={other}" for other in names if other != name) for view in views]
            page.js(f"(async () => {{ for (location.hash of {json.dumps(hashes)}) await {DRAWN} }})()")
            found = page.curves(chart).get(name, (0, 0))[0]
            check(f"hostile rows are drawn: {name}", found == points, f"{found} points, expected {points}")
            left, top, width, height = page.plot(chart)
            page.mouse("Moved", left + width / 2, top + height / 2)
            page.drag(left + width / 3, top + 40, left + width / 2, top + 120)
            page.js(DRAWN)
        page.clean(f"file://{folder}")


if __name__ == "__main__":
    show_help(__doc__)
    need_chromium()
    look(sys.argv[1])
    end()

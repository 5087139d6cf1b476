#!/usr/bin/python3
"""Writes a run as one HTML file to send to someone: the page of `./train_gpt --watch` with the data inside.

    scripts/report.py runs/NAME [runs/OTHER ...] [--out=FILE.html]

Needs Python alone. The file is report.html in the folder of the first run unless --out names another. Of a
long run some 2,000 training rows stay, with the smallest and the largest loss and gradient norm of each
interval; all validations, scores and texts stay. Damaged lines of metrics.jsonl are left out and counted.
"""
import argparse
import fcntl
import glob
import json
import math
import os
import struct
import sys
import time
import unicodedata

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, HERE + "/report"]         # python3 -I leaves the script's folder out
import history as metrics                                                   # noqa: E402
from history import by_task, columns, finite, mark_of, number, rows_of, text   # noqa: E402
from plot import printable, say                                             # noqa: E402

PAGE = os.path.join(HERE, "../llmc/train/watch/page.html")
MOST_ROWS = 2000
OF_A_RANK = ("rank", "host", "dp", "pp", "tp", "doing", "step", "collective")
DATA = '<script type="application/json" id="data">null</script>'


def fail(path, error):
    sys.exit(printable(f"error: {path}: {getattr(error, 'strerror', None) or error}"))


def joined(path):
    """The page with a file in place of each line "/* join FILE */", as by dev/make/join.awk."""
    lines = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("/* join ") and line.endswith(" */\n"):
                with open(os.path.join(os.path.dirname(path), line.split()[2]), encoding="utf-8") as part:
                    line = part.read()
            lines.append(line)
    return "".join(lines)


def rows_beside(folder, name):
    """Rows with a step, of a file that a run may lack."""
    path = os.path.join(folder, name)
    rows = rows_of(path) if os.path.exists(path) else ()
    return [row for row in rows if row and math.isfinite(number(row, "step"))]


def kept_rows(table, figures):
    """Indices of the rows that stay, as llmc/train/watch/columns.h chooses them."""
    count = len(table.get("step", ()))
    if count <= MOST_ROWS:
        return list(range(count))
    intervals, kept = MOST_ROWS // 5, {count - 1}
    for i in range(intervals):
        interval = range(count * i // intervals, count * (i + 1) // intervals)
        kept.add(interval[0])
        for column in (table[key] for key in figures if key in table):
            there = [j for j in interval if column[j] is not None]
            if there:
                kept |= {min(there, key=column.__getitem__), max(there, key=column.__getitem__)}
    return sorted(kept)


def thinned(table, figures):
    """(some of the rows of a long table, whether rows were left out)"""
    kept = kept_rows(table, figures)
    return {key: [column[i] for i in kept] for key, column in table.items()}, \
        len(kept) < len(table.get("step", ()))


def config_of(folder):
    try:
        with open(os.path.join(folder, "config.json"), "rb") as f:
            return metrics.object_of(f.read(), 32)
    except OSError:
        return None


def is_locked(folder):
    """Whether a process holds the run's lock: looked at, never taken. None: no lock file, or unknown."""
    free = struct.pack("@hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)         # struct flock
    try:
        with open(os.path.join(folder, "train_gpt.lock"), "rb") as f:
            found = struct.unpack("@hhqqi4x", fcntl.fcntl(f, fcntl.F_OFD_GETLK, free))[0]
    except (OSError, AttributeError):           # AttributeError: Python 3.8
        return None
    return found != fcntl.F_UNLCK


def ranks_of(folder, current):
    """What the ranks do, by files that are written every two seconds, as llmc/train/watch/ranks.h has it."""
    ranks, paths = {}, glob.glob(os.path.join(glob.escape(folder), "ranks", "*.json"))
    for path in paths:
        try:
            age, rows = time.time() - os.stat(path).st_mtime, list(rows_of(path))
        except OSError:
            continue                    # of a process that ended just now
        if age > max(current, 3 / 16 * len(paths)):
            continue                    # of a process that was killed
        for row in rows:
            if row and text(row, "event") == "rank" and math.isfinite(number(row, "rank")):
                seconds, old = number(row, "seconds") + max(0, age), round(max(0, age), 1)
                ranks[row["rank"]] = {**{key: row.get(key) for key in OF_A_RANK},
                                      "seconds": round(seconds, 1) if finite(seconds) else None,
                                      "age": old}
    return [ranks[rank] for rank in sorted(ranks)] or None


def state_of(history, locked, ranks, age):
    """As llmc/train/watch/watched_run.h has it."""
    if history.ended:
        return "done"
    if locked is False and ranks is None:
        return "stopped"
    return "training" if age < max(15, 10 * history.ms / 1000) else "quiet"


def name_of(folder):
    """The folder's name, as printable() of llmc/base/json.h; a byte that is no UTF-8 is a surrogate here."""
    unclean = lambda c: unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"
    return "".join("\ufffd" if unclean(c) else c for c in os.path.basename(os.path.abspath(folder)))


def run_object(folder):
    """The run as the page knows it, and the number of damaged lines."""
    path = os.path.join(folder, "metrics.jsonl")
    history = metrics.History(path)
    age = max(0.0, time.time() - os.stat(path).st_mtime)
    train, sampled = thinned(columns(history.of["train"]), ("loss", "norm"))
    comm, _ = thinned(columns(history.of["comm"]), ("wait_ms", "device_wait_ms"))
    evals = by_task(rows_beside(folder, "evals.jsonl"))
    checkpoints = [mark_of(row, "checkpoint", text(row, "dir"))
                   for row in rows_beside(folder, "checkpoints.jsonl")]
    locked = is_locked(folder)
    ranks = ranks_of(folder, 10 if locked is False else 60)
    return {
        "run": name_of(folder), "reset": True, "state": state_of(history, locked, ranks, age),
        "age": round(age, 1),
        "config": config_of(folder), "start": history.start, "done": history.done,
        "train": train, "sampled": sampled, "val": columns(history.of["val"]),
        "tasks": by_task(history.of["task"]), **({"evals": evals} if evals else {}), "comm": comm,
        "memory": metrics.table_of(history.of["memory"]), "health": history.of["health"][-100:],
        "samples": [{"step": row["step"], "text": text(row, "text")} for row in history.of["sample"]],
        "marks": history.marks + checkpoints, "ranks": ranks,
    }, history.damaged


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders with metrics.jsonl")
    parser.add_argument("--out", help="the file (default: report.html in the folder of the first run)")
    args = parser.parse_args()
    objects, lost = [], 0
    for folder in args.runs:
        path = os.path.join(folder, "metrics.jsonl")
        try:
            run, damaged = run_object(folder)
        except OSError as e:
            fail(path, e)
        if any(other["run"] == run["run"] for other in objects):
            run["run"] = os.path.normpath(folder)
        objects.append(run)
        lost += damaged
        if not run["train"] and not run["val"]:
            fail(path, "no training or validation rows yet")
    try:
        page = joined(PAGE)
    except OSError as e:
        fail(e.filename, e)
    data = json.dumps(objects, separators=(",", ":")).replace("<", "\\u003c")
    page = page.replace(DATA, DATA.replace("null", data), 1)
    out = args.out or os.path.join(args.runs[0], "report.html")
    try:
        with open(out, "w", encoding="utf-8") as f:
            f.write(page)
    except OSError as e:
        fail(out, e)
    rows = sum(len(run["train"]["step"]) for run in objects)
    say(f"{out}: {rows} training rows, {os.path.getsize(out) / 1e6:.2f} MB" +
        (f"; {lost} damaged lines left out" if lost else ""))


if __name__ == "__main__":
    main()

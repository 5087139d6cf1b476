#!/usr/bin/python3
"""Writes a run as one HTML file to send to someone: the page of `./train_gpt --watch` with the data inside.

    scripts/report.py runs/NAME [runs/OTHER ...] [--out=FILE.html]

Needs Python alone. The file is report.html in the folder of the first run unless --out names another. Of a
long run some 2,000 training rows stay, with the smallest and the largest loss and gradient norm of each
interval; all validations, scores and texts stay. Damaged lines of metrics.jsonl are left out and counted.
"""
import argparse
import fcntl
import json
import math
import os
import struct
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)                # python3 -I leaves the script's folder out
from plot import integer, printable, say                                    # noqa: E402

PAGE = os.path.join(HERE, "../llmc/train/watch/page.html")
MOST_ROWS = 2000
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


def shallow(value, levels=16):
    """Whether lists and objects nest no deeper than files of train_gpt do."""
    if not isinstance(value, (dict, list)):
        return True
    inside = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(shallow(v, levels - 1) for v in inside)


def rows_of(path, event=None):
    """(rows, damaged lines) of a file; the last line may be half written. event: of rows that name none."""
    rows, damaged = [], 0
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            if not line.endswith("\n"):
                break
            try:
                row = json.loads(line, parse_int=integer)
            except (ValueError, RecursionError):
                row = None
            if event and isinstance(row, dict):
                row.setdefault("event", event)
            known = isinstance(row, dict) and isinstance(row.get("event"), str) and shallow(row)
            if known and (row["event"] in ("start", "done") or type(row.get("step")) is int):
                rows.append(row)
            else:
                damaged += 1
    return rows, damaged


def flat(row, prefix=""):
    """Figures of a row, nested figures under a name with a dot."""
    for key, value in row.items():
        if isinstance(value, dict):
            yield from flat(value, prefix + key + ".")
        elif value is None or isinstance(value, (bool, int, float)):
            yield prefix + key, value


def columns(rows):
    """Rows of an event as columns: the last row of each step, None where a row lacks a figure."""
    by_step = {row["step"]: dict(flat(row)) for row in rows}
    order = [by_step[step] for step in sorted(by_step)]
    keys = list(dict.fromkeys(key for row in order for key in row)) or ["step"]
    return {key: [row.get(key) for row in order] for key in keys}


def finite(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def kept_rows(table, most, figures):
    """Indices of some `most` rows: of each interval the first and those with extremes of the figures."""
    count = len(table["step"])
    if count <= most:
        return list(range(count))
    intervals, kept = most // 5, {0, count - 1}
    for i in range(intervals):
        part = range(count * i // intervals, count * (i + 1) // intervals)
        kept.add(part[0])
        for column in (table[key] for key in figures if key in table):
            there = [j for j in part if finite(column[j])]
            if there:
                kept |= {min(there, key=column.__getitem__), max(there, key=column.__getitem__)}
    return sorted(kept)


def thinned(table, figures):
    """(some of the rows of a long table, whether rows were left out)"""
    kept = kept_rows(table, MOST_ROWS, figures)
    return {key: [column[i] for i in kept] for key, column in table.items()}, len(kept) < len(table["step"])


def train_columns(rows):
    """(columns of the train rows with seconds in training steps, whether rows were left out)"""
    train = columns(rows)
    seconds, sums = 0.0, []
    for ms in train.get("ms", [None] * len(train["step"])):
        seconds += ms / 1000 if finite(ms) else 0
        sums.append(round(seconds, 3))
    train["seconds"] = sums
    return thinned(train, ("loss", "norm"))


def number(row, key):
    value = row.get(key)
    return value if type(value) in (int, float) else math.nan


def spike_text(row):
    text = f"spike: {row.get('of', '')} {number(row, 'value'):.4g}, z {number(row, 'z'):.1f}"
    if row.get("first"):
        moved = f"{row['first']} (z {number(row, 'first_z'):.1f} at step {number(row, 'first_step')})"
        text += f"; first moved: {moved}"
    return text


def marks_of(rows, folder):
    marks = [{"step": row["step"], "kind": "restart", "text": f"resumed at {row['step']}"}
             for row in rows if row["event"] == "resume"]
    not_finite = "step {} was skipped: its loss or gradient was not finite"
    marks += [{"step": row["step"], "kind": "skipped", "text": not_finite.format(row["step"])}
              for row in rows if row["event"] == "train" and row.get("skipped") is True]
    marks += [{"step": row["step"], "kind": "spike", "text": spike_text(row)}
              for row in rows if row["event"] == "spike"]
    try:
        with open(os.path.join(folder, "checkpoints.jsonl"), encoding="utf-8", errors="replace") as f:
            for line in f:
                row = json.loads(line)
                if type(row.get("step")) is int:
                    marks.append({"step": row["step"], "kind": "checkpoint", "text": str(row.get("dir", ""))})
    except (OSError, ValueError, AttributeError):
        pass                            # no checkpoint, or a line half written
    return sorted(marks, key=lambda mark: mark["step"])


def config_of(folder):
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8", errors="replace") as f:
            config = json.load(f, parse_int=integer)
    except (OSError, ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) and shallow(config) else None


def memory_rows(rows):
    """Planned memory, and memory used so far."""
    plan, found = math.nan, []
    for row in rows:
        if row["event"] in ("start", "resume"):
            plan = number(row, "plan_bytes")
        if row["event"] in ("start", "memory", "done"):
            found.append({"step": row.get("step", 0), "peak_bytes": number(row, "peak_bytes"),
                          "plan_bytes": plan})
    return found


def by_task(rows):
    tasks = {}
    for row in rows:
        tasks.setdefault(str(row.get("task")), []).append(row)
    return {task: columns(own) for task, own in tasks.items()}


def is_locked(folder):
    """Whether a process holds the run's lock: looked at, never taken. None: no lock file, or unknown."""
    free = struct.pack("@hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)         # struct flock
    try:
        with open(os.path.join(folder, "train_gpt.lock"), "rb") as f:
            found = struct.unpack("@hhqqi4x", fcntl.fcntl(f, fcntl.F_OFD_GETLK, free))[0]
    except (OSError, AttributeError):           # AttributeError: Python 3.8
        return None
    return found != fcntl.F_UNLCK


def state_of(folder, rows, age):
    """As llmc/train/watch/watched_run.h has it, without the ranks."""
    if rows and rows[-1]["event"] == "done":
        return "done"
    if is_locked(folder) is False:
        return "stopped"
    times = [number(row, "ms") for row in rows if row["event"] == "train"]
    step = times[-1] / 1000 if times and finite(times[-1]) else 0
    return "training" if age < max(15, 10 * step) else "quiet"


def run_object(folder):
    """The run as the page knows it, and the number of damaged lines."""
    path = os.path.join(folder, "metrics.jsonl")
    rows, damaged = rows_of(path)
    age = max(0.0, time.time() - os.stat(path).st_mtime)
    events = ("train", "val", "task", "comm", "sample")
    of = {event: [row for row in rows if row["event"] == event] for event in events}
    starts = [row for row in rows if row["event"] in ("start", "resume")]
    train, sampled = train_columns(of["train"])
    comm, _ = thinned(columns(of["comm"]), ("wait_ms", "device_wait_ms"))
    evals_path = os.path.join(folder, "evals.jsonl")
    evals, _ = rows_of(evals_path, "task") if os.path.exists(evals_path) else ([], 0)
    ended = rows and rows[-1]["event"] == "done"
    return {
        "run": os.path.basename(os.path.realpath(folder)), "reset": True, "age": round(age, 1),
        "state": state_of(folder, rows, age),
        "config": config_of(folder), "start": starts[-1] if starts else None,
        "done": rows[-1] if ended else None, "train": train, "sampled": sampled,
        "val": columns(of["val"]),
        "tasks": by_task(of["task"]), "evals": by_task(evals), "comm": comm,
        "memory": columns(memory_rows(rows)),
        "health": [row for row in rows if row["event"] in ("health", "grad_norms")][-100:],
        "marks": marks_of(rows, folder), "ranks": None,
        "samples": [{"step": row["step"], "text": str(row.get("text"))} for row in of["sample"]],
    }, damaged


def without_infinities(value):
    """The value as JSON allows: infinities and NaN become null."""
    if isinstance(value, dict):
        return {str(key): without_infinities(v) for key, v in value.items()}
    if isinstance(value, list):
        return [without_infinities(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
        if not run["train"]["step"] and not run["val"]["step"]:
            fail(path, "no training or validation rows yet")
    try:
        page = joined(PAGE)
    except OSError as e:
        fail(e.filename, e)
    text = json.dumps(without_infinities(objects), separators=(",", ":")).replace("<", "\\u003c")
    page = page.replace(DATA, DATA.replace("null", text), 1)
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

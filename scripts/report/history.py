"""What metrics.jsonl says of a run, as llmc/train/watch/history.h has it with every row kept."""
import itertools
import json
import math

MOST_LINE, MOST_COLUMNS, MOST_TASKS = 1 << 20, 64, 200          # as the program has them


def shallow(value, levels=8):
    """Whether lists and objects nest no deeper than rows of train_gpt do."""
    if not isinstance(value, (dict, list)):
        return True
    inside = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(shallow(v, levels - 1) for v in inside)


def real(digits):
    """The number; ValueError if it is infinite, or NaN."""
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(digits + " is out of range")
    return value


def whole(digits):
    return int(digits) if len(digits) < 19 else real(digits)


def object_of(line, levels=8):
    """The JSON object that the bytes are; None: they are none."""
    try:
        value = json.loads(line.decode(), parse_int=whole, parse_float=real, parse_constant=real)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and shallow(value, levels) else None


def rows_of(path):
    """A row or None of each line; the last line may be half written."""
    with open(path, "rb") as f:
        for line in f:
            if line.endswith(b"\n"):
                yield object_of(line) if len(line) <= MOST_LINE else None


def finite(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def number(row, key):
    return row[key] if finite(row.get(key)) else math.nan


def text(row, key):
    return row[key] if isinstance(row.get(key), str) else ""


def numbers(row, prefix=""):
    """Numbers of a row, nested ones under a name with a dot; true and false as 1 and 0."""
    for key, value in row.items():
        if isinstance(value, dict):
            yield from numbers(value, prefix + key + ".")
        elif finite(value):
            yield prefix + key, int(value) if isinstance(value, bool) else value


def table_of(rows):
    """Flat rows as columns; None where a row lacks a number."""
    keys = list(dict.fromkeys(key for row in rows for key in row))[:MOST_COLUMNS]
    return {key: [row.get(key) for row in rows] for key in keys}


def columns(rows):
    return table_of([dict(itertools.islice(numbers(row), MOST_COLUMNS)) for row in rows])


def by_task(rows):
    tasks = {}
    for row in rows:
        name = text(row, "task")
        if name and (name in tasks or len(tasks) < MOST_TASKS):
            tasks.setdefault(name, []).append(row)
    return {task: columns(own) for task, own in sorted(tasks.items())}


def mark_of(row, kind, words):
    return {"step": row["step"], "kind": kind, "text": words}


def spike_text(row):
    words = f"spike: {text(row, 'of')} {number(row, 'value'):.4g}, z {number(row, 'z'):.1f}"
    if first := text(row, "first"):
        at = number(row, "first_step")
        words += f"; first moved: {first} (z {number(row, 'first_z'):.1f} at step {at})"
    return words


class History:
    """What metrics.jsonl says, as History::whole() of llmc/train/watch/history.h."""

    def __init__(self, path):
        self.of = {event: [] for event in ("train", "val", "task", "comm", "memory", "sample", "health")}
        self.marks, self.start, self.done, self.ended = [], None, None, False
        self.seconds = self.ms = 0.0
        self.plan, self.damaged = math.nan, 0
        for row in rows_of(path):
            event = text(row, "event") if row else ""
            if event and (event in ("start", "done") or math.isfinite(number(row, "step"))):
                self.take(row, event)
            else:
                self.damaged += 1

    def take(self, row, event):
        if event == "train":
            self.train(row)
        elif event in ("start", "resume"):
            self.start, self.done, self.ended, self.plan = row, None, False, number(row, "plan_bytes")
            if event == "resume":
                self.marks.append(mark_of(row, "restart", f"resumed at {row['step']}"))
        elif event == "spike":
            self.marks.append(mark_of(row, "spike", spike_text(row)))
        elif event == "done":
            self.done, self.ended = row, True
        elif event in ("health", "grad_norms"):
            self.of["health"].append(row)
        elif event in self.of and event != "memory":
            self.of[event].append(row)
        if event in ("start", "memory", "done"):
            self.memory(row)

    def train(self, row):
        self.ended = False
        if number(row, "ms") >= 0:
            self.ms = row["ms"]
            self.seconds += 1e-3 * self.ms
        self.of["train"].append({**row, "seconds": row.get("seconds", self.seconds)})
        if number(row, "skipped") > 0:
            words = f"step {row['step']} was skipped: its loss or gradient was not finite"
            self.marks.append(mark_of(row, "skipped", words))

    def memory(self, row):
        """Memory used so far, and planned."""
        peak, known = number(row, "peak_bytes"), lambda value: value if finite(value) else None
        if peak > 0 or self.plan > 0:
            self.of["memory"].append({"step": row["step"] if number(row, "step") > 0 else 0,
                                      "peak_bytes": known(peak), "plan_bytes": known(self.plan)})

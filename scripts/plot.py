#!/usr/bin/python3
"""Curves of one or several runs, as a PNG.

    scripts/plot.py runs/quickstart [runs/other ...] [--out FILE.png] [--x step|tokens] [--also lr,norm]

Draws the training loss (faint, with a running mean above), the validation loss, and bits per byte where
the run has them; --also adds a panel for each further figure of the training rows. A run is a folder with
metrics.jsonl, or such a file. Without --out the picture goes to curve.png beside the first run's metrics; a
folder that --out names gets a curve.png, a name without an ending .png.
"""
import argparse
import json
import math
import os
import sys

FIGURES = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../llmc/train/report/figures.json")


def titles_of_figures():
    """Key -> title of the figures of training rows that have a chart on the page."""
    try:
        with open(FIGURES, encoding="utf-8") as f:
            rows = [row for row in json.load(f) if row["of"] == "train" and "chart" in row]
    except OSError:                 # this script alone: every figure goes by its key
        return {}
    title_of = {row["key"]: (row["chart"]["title"], row["chart"]["unit"]) for row in rows}
    return {key: ", ".join(filter(None, parts)) for key, parts in title_of.items()}


def printable(text):
    """A text for the terminal: control characters and lone surrogates as Python escapes them."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def integer(digits):
    """The number as an int; as a float, perhaps infinite, if larger than any step."""
    return int(digits) if len(digits) < 19 else float(digits)


def is_row(row):
    """Whether a line has an event, a loss or sample its step, and a sample its text."""
    if not isinstance(row, dict) or "event" not in row:
        return False
    if row["event"] == "sample" and not isinstance(row.get("text"), str):
        return False
    return row["event"] not in ("train", "val", "sample") or type(row.get("step")) is int


def rows_of(run):
    path = os.path.join(run, "metrics.jsonl") if os.path.isdir(run) else run
    if not os.path.exists(path):
        sys.exit(f"error: {path}: no such file; a run's folder has metrics.jsonl once it has started")
    rows = []
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            lines = f.readlines()
    except OSError as e:
        sys.exit(f"error: {path}: {e.strerror}")
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            break                   # is being written right now
        try:
            row = json.loads(line, parse_int=integer)
        except (ValueError, RecursionError):
            sys.exit(f"error: {path}:{number}: not JSON: {printable(line[:60].strip())}")
        if not is_row(row):
            sys.exit(f"error: {path}:{number}: no row of a run: {printable(line[:60].strip())}")
        rows.append(row)
    return rows


def say(text):
    try:
        print(printable(text), flush=True)
    except OSError as e:            # a full disk, or a closed pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())      # or Python tries again at its end
        sys.exit(f"error: standard output: {e.strerror}")


def series(rows, event, key, x):
    """The points of a figure; a validation row has no token count and takes the training row's."""
    tokens = {0: 0}
    for row in rows:
        if row.get("event") == "train" and type(row.get("tokens")) is int:
            tokens[row["step"]] = row["tokens"]
    points = []
    for row in rows:
        if row.get("event") == event and isinstance(row.get(key), (int, float)) and math.isfinite(row[key]):
            at = row["step"] if x == "step" else tokens.get(row["step"])
            if at is not None:
                points.append((at, row[key]))
    return [p[0] for p in points], [p[1] for p in points]


def running_mean(values, width):
    """Mean of the last `width` values; of fewer at the start, where the curve is steep."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    spans = [min(width, 1 + i // 8) for i in range(len(values))]
    return [(sums[i + 1] - sums[i + 1 - n]) / n for i, n in enumerate(spans)]


def loss_limits(training, validation):
    """Vertical limits that show the learning and each validation loss; the first drop of the training loss
    from ln V may leave the picture at the top."""
    ordered = sorted(training)
    shown = ordered[:int(len(ordered) * 0.985) + 1] + validation
    low, high = min(shown), max(shown)
    margin = 0.05 * max(high - low, 1e-3)
    return low - margin, high + margin


def last_of(at, values):
    """The last value, for a label, with its place: at the end or at the start."""
    if not values:
        return ""
    return f", {values[-1]:.3f} at the " + ("end" if at[-1] > 0 else "start")


def draw_losses(axis, runs, x):
    trained, validated = [], []
    for i, (name, rows) in enumerate(runs):
        colour, prefix = f"C{i}", f"{name}: " if len(runs) > 1 else ""
        at, loss = series(rows, "train", "loss", x)
        if at:
            width = max(1, min(len(loss) // 50, 200))
            axis.plot(at, loss, color=colour, alpha=0.2, linewidth=0.6)
            axis.plot(at, running_mean(loss, width), color=colour, linewidth=1.4,
                      label=f"{prefix}training" + (f" (mean of {width} steps)" if width > 1 else ""))
            trained += loss
        at, loss = series(rows, "val", "loss", x)
        if at:
            axis.plot(at, loss, color=colour if len(runs) > 1 else "C1", linestyle="--", marker="o",
                      markersize=4, label=f"{prefix}validation{last_of(at, loss)}")
            validated += loss
    if trained or validated:
        axis.set_ylim(*loss_limits(trained, validated))
    axis.set_ylabel("loss, nats a token")


def draw_one(axis, runs, x, event, key, label):
    for i, (name, rows) in enumerate(runs):
        at, values = series(rows, event, key, x)
        name = name if len(runs) > 1 else label
        if event == "val":
            label_here = name + last_of(at, values)
            axis.plot(at, values, color=f"C{i}", linewidth=1.2, marker="o", markersize=4, label=label_here)
        elif key == "lr":
            axis.plot(at, values, color=f"C{i}", linewidth=1.4, label=name)
        else:
            axis.plot(at, values, color=f"C{i}", linewidth=0.6, alpha=0.2)
            mean = running_mean(values, max(1, min(len(values) // 50, 200)))
            axis.plot(at, mean, color=f"C{i}", linewidth=1.4, label=name)
    axis.set_ylabel(label.rsplit(", ", 1)[0])
    if key == "norm":
        axis.set_yscale("log")


def check_place(out):
    """Refuses the folder of a checkpoint, and to replace anything but an earlier picture."""
    if os.path.exists(os.path.join(os.path.dirname(out), "manifest.json")):
        sys.exit(f"error: {out} is in the folder of a checkpoint: name another file by --out")
    if os.path.islink(out) or not os.path.exists(out):      # a link is replaced
        return
    if not os.path.isfile(out):
        sys.exit(f"error: {out} is a device or a pipe; expected the name of a file")
    with open(out, "rb") as f:
        found = f.read()
    if found and b"matplotlib" not in found.lower():
        sys.exit(f"error: {out} is no picture that matplotlib wrote, and would be replaced: name another "
                 f"file by --out")


def main():
    plain, titles = argparse.RawDescriptionHelpFormatter, titles_of_figures()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("runs", nargs="+", help="folders of runs, or metrics.jsonl files")
    parser.add_argument("--out", help="the picture (default: curve.png beside the first run's metrics)")
    parser.add_argument("--x", choices=("step", "tokens"), default="step")
    parser.add_argument("--also", default="", help=f"further figures of training: {','.join(titles)}")
    parser.add_argument("--log", action="store_true", help="logarithmic horizontal axis")
    args = parser.parse_args()
    also = [key for key in args.also.split(",") if key]
    for key in also:
        if titles and key not in titles:
            sys.exit(f"error: --also {key}: expected one of {', '.join(titles)}")
    runs = [(os.path.basename(os.path.normpath(r)), rows_of(r)) for r in args.runs]
    if not any(row.get("event") in ("train", "val") for _, rows in runs for row in rows):
        sys.exit(f"error: {' '.join(args.runs)}: no training or validation rows yet")
    try:
        import matplotlib
    except ImportError:
        system = sys.executable.startswith("/usr/bin/")
        pip = f"{sys.executable} -m pip install matplotlib"
        install = "apt-get install python3-matplotlib" if system else pip
        sys.exit(f"error: no matplotlib for {sys.executable}: {install}")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    has_bytes = any("bits_per_byte" in row for _, rows in runs for row in rows)
    panels = [None] + ["bits_per_byte"] * has_bytes + also
    figure, axes = plt.subplots(len(panels), 1, sharex=True, squeeze=False, layout="constrained",
                                figsize=(9, 1.2 + 2.9 * len(panels)),
                                gridspec_kw={"height_ratios": [1.5] + [1] * (len(panels) - 1)})
    for axis, key in zip(axes[:, 0], panels):
        if key is None:
            draw_losses(axis, runs, args.x)
        elif key == "bits_per_byte":
            draw_one(axis, runs, args.x, "val", key, "bits per byte, validation")
        else:
            draw_one(axis, runs, args.x, "train", key, titles.get(key, key))
        axis.grid(alpha=0.3)
        axis.legend(loc="upper right", frameon=False, fontsize=9)
        if args.log:
            axis.set_xscale("log")
    axes[-1, 0].set_xlabel("optimizer steps" if args.x == "step" else "tokens")
    figure.suptitle(", ".join(name for name, _ in runs), fontsize=11)
    first = args.runs[0]
    folder = first if os.path.isdir(first) else os.path.dirname(first) or "."
    out = args.out or os.path.join(folder, "curve.png")
    if os.path.isdir(out):
        out = os.path.join(out, "curve.png")
    elif not os.path.splitext(out)[1]:
        out += ".png"               # as matplotlib does
    check_place(out)
    new = f"{out}.{os.getpid()}.tmp"            # no link in the place of the picture is followed
    try:
        with open(new, "xb") as f:
            figure.savefig(f, dpi=120, format=os.path.splitext(out)[1][1:])
        os.replace(new, out)
    except (OSError, ValueError) as e:          # a missing folder, or an unknown kind of file
        if os.path.lexists(new):
            os.remove(new)
        sys.exit(f"error: {out}: {getattr(e, 'strerror', e)}")
    say(out)


if __name__ == "__main__":
    main()

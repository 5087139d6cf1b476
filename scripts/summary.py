#!/usr/bin/python3
"""Prints the validation losses of a run and the last text it wrote.

    scripts/summary.py runs/NAME [FILE.jsonl]       FILE: rows of another run of as much time, for comparison
"""
import os
import sys
import textwrap

from plot import rows_of, say


def figure(value, digits):
    """The value with `digits` decimals; "-" for null, a loss without a finite value."""
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else "-"


def validations(path):
    return [row for row in rows_of(path) if row["event"] == "val"]


def main():
    if "--help" in sys.argv[1:]:
        sys.exit(print(__doc__.strip()))
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    path = os.path.join(sys.argv[1], "metrics.jsonl")
    rows, own = rows_of(path), validations(path)
    beside = validations(sys.argv[2]) if len(sys.argv) == 3 else []
    if len(beside) != len(own):         # a run of other steps
        beside = []
    title = "   GPT-2 of 2019, same time" if beside else ""
    lines = ["", "   step   validation loss   bits per byte" + title]
    for i, row in enumerate(own):
        loss, bits = figure(row.get("loss"), 4), figure(row.get("bits_per_byte"), 3)
        other = f"   {figure(beside[i].get('bits_per_byte'), 3):>24}" if beside else ""
        lines.append(f"{row['step']:7d}   {loss:>15}   {bits:>13}{other}")
    samples = [row for row in rows if row["event"] == "sample"]
    if samples:
        lines += ["", f"Text from the model after step {samples[-1]['step']}:", ""]
        for paragraph in samples[-1]["text"].split("\n"):
            lines.append(textwrap.fill(paragraph, 96, initial_indent="    ", subsequent_indent="    "))
    say("\n".join(lines))


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Prints the validation losses of a run and the last text it wrote. Usage: scripts/summary.py runs/NAME"""
import os
import sys
import textwrap

from plot import rows_of, say


def figure(value, digits):
    """A loss that was no finite number is null in the row."""
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else "-"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = rows_of(os.path.join(sys.argv[1], "metrics.jsonl"))
    lines = ["", "   step   validation loss   bits per byte"]
    for row in rows:
        if row["event"] == "val":
            loss, bits = figure(row.get("loss"), 4), figure(row.get("bits_per_byte"), 3)
            lines.append(f"{row['step']:7d}   {loss:>15}   {bits:>13}")
    samples = [row for row in rows if row["event"] == "sample"]
    if samples:
        lines += ["", f"Text from the model after step {samples[-1]['step']}:", ""]
        for paragraph in samples[-1]["text"].split("\n"):
            lines.append(textwrap.fill(paragraph, 96, initial_indent="    ", subsequent_indent="    "))
    say("\n".join(lines))


if __name__ == "__main__":
    main()

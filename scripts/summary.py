#!/usr/bin/python3
"""Prints the validation losses of a run and the last text it wrote. Usage: scripts/summary.py runs/NAME"""
import os
import sys
import textwrap

from plot import rows_of


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = rows_of(os.path.join(sys.argv[1], "metrics.jsonl"))
    print("\n   step   validation loss   bits per byte")
    for row in rows:
        if row["event"] == "val":
            bits = f"{row['bits_per_byte']:.3f}" if "bits_per_byte" in row else "-"
            print(f"{row['step']:7d}   {row['loss']:15.4f}   {bits:>13}")
    samples = [row for row in rows if row["event"] == "sample"]
    if samples:
        print(f"\nText from the model after step {samples[-1]['step']}:\n")
        for paragraph in samples[-1]["text"].split("\n"):
            print(textwrap.fill(paragraph, 96, initial_indent="    ", subsequent_indent="    "))


if __name__ == "__main__":
    main()

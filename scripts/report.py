#!/usr/bin/python3
"""Writes runs as one HTML file to send to someone: runs `./train_gpt RUN... --report=FILE`.

    scripts/report.py runs/NAME [runs/OTHER ...] [--out=FILE.html]

The file is report.html in the folder of the first run unless --out names another.
"""
import argparse
import os
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../train_gpt")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders with metrics.jsonl")
    parser.add_argument("--out", default="", help="the file (default: report.html in the first folder)")
    args = parser.parse_args()
    try:
        os.execv(PROGRAM, [PROGRAM, "--report=" + args.out, *args.runs])
    except OSError as e:
        sys.exit(f"error: {os.path.normpath(PROGRAM)}: {e.strerror}; build the program: make")


if __name__ == "__main__":
    main()

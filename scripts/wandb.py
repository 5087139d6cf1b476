#!/usr/bin/python3
"""Sends a run to Weights & Biases while it trains, or afterwards.

    scripts/wandb.py runs/NAME [--project=NAME] [--entity=NAME] [--once]

Needs the Python package wandb. Follows metrics.jsonl until the run is done; --once sends what is there. Each
step is sent once, also where a resumed run writes its rows again. WANDB_MODE=offline writes to ./wandb
without a network; `wandb sync` sends the files later.
"""
import argparse
import html
import json
import os
import sys
import time

# this script, wandb.py, would be found in place of the package
sys.path = [p for p in sys.path if os.path.realpath(p or ".") != os.path.dirname(os.path.realpath(__file__))]

SENT = ("train", "val", "task", "comm", "memory", "sample")                # events
NOT_FIGURES = {"event", "step", "text", "skipped"}


def figures(row):
    """Name -> figure of a row, under the names of the charts: "train/loss", "tasks/piqa", "memory"."""
    event = row["event"]
    if event == "memory":
        named = {"memory": row.get("peak_bytes")}
    elif event == "task":
        chart = f"tasks/{row.get('task')}"
        named = {chart: row.get("accuracy"), chart + "_norm": row.get("accuracy_norm")}
    else:
        named = {f"{event}/{key}": value for key, value in row.items() if key not in NOT_FIGURES}
    return {name: value for name, value in named.items() if isinstance(value, (int, float))}


class Follower:
    """Rows of a growing file. A resumed run cuts off rows and writes them again."""

    def __init__(self, path):
        self.path, self.at, self.rest, self.last = path, 0, b"", b""

    def is_cut(self, f):
        """Whether the bytes before self.at are others than were read: the file may have grown again since."""
        f.seek(self.at - len(self.last))
        return f.read(len(self.last)) != self.last

    def rows(self):
        try:
            with open(self.path, "rb") as f:
                if self.is_cut(f):
                    self.at, self.rest, self.last = 0, b"", b""
                f.seek(self.at)
                new = f.read()
        except FileNotFoundError:
            return
        self.at += len(new)
        self.last = (self.last + new)[-256:]
        *lines, self.rest = (self.rest + new).split(b"\n")
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                continue                                # cut by a crash
            if isinstance(row, dict) and "event" in row and ("step" in row or row["event"] == "done"):
                yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--project", default="train_gpt")
    parser.add_argument("--entity")
    parser.add_argument("--once", action="store_true")
    args = parser.parse_args()
    path = os.path.join(args.run, "metrics.jsonl")
    if not os.path.exists(path):
        sys.exit(f"scripts/wandb.py: {path} is not there: name the folder of a run")
    try:
        import wandb
    except ImportError:
        sys.exit("scripts/wandb.py: the Python package wandb is missing: pip install wandb")

    config_path = os.path.join(args.run, "config.json")
    config = json.load(open(config_path)) if os.path.exists(config_path) else {}
    run = wandb.init(project=args.project, entity=args.entity, config=config,
                     name=os.path.basename(os.path.normpath(args.run)))
    follower, sent, done = Follower(path), {}, False
    while True:
        for row in follower.rows():
            kind = row["event"] + str(row.get("task", ""))
            done = row["event"] == "done"
            if row["event"] not in SENT or row["step"] <= sent.get(kind, -1):
                continue
            sent[kind] = row["step"]
            values = figures(row)
            if row["event"] == "sample":
                values = {"sample/text": wandb.Html(f"<pre>{html.escape(row['text'])}</pre>")}
            run.log(values, step=row["step"])
        if done or args.once:
            break
        time.sleep(2)
    run.finish()


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Holds what a run writes for other programs against these programs.

    dev/reports_judge.py [--folder=build/full/reports] [--install]

A run of ten steps on two ranks is cut back to its checkpoint of step 5 and resumed: files must hold each
step once. Its scalars of training, validation, a task's scores, memory and communication, by their charts'
names, have to be those of metrics.jsonl:

  - TensorBoard's reader; also histograms of each tensor, and texts
  - trackio.import_tf_events
  - `aim convert tensorboard`
  - scripts/wandb.py into an offline run of wandb, read back by wandb's own reader of such files; also the
    config and texts
  - `promtool check metrics`, for log.prometheus, where Debian's prometheus is installed

--install makes a venv in the folder with the packages and judges there; else the interpreter needs them. A
line "skip ..." names each judge that cannot be had, promtool included, a line "FAIL ..." each that breaks
off. The last line is "N passed, N failed", with ", N skipped" where any is.
"""
import contextlib
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import traceback
import unicodedata

from judging import Count, Missing, main, parser_of, run, write_json

# Aim reads event files by tensorflow. wandb 0.26 and later have no reader of offline runs.
PACKAGES = ["tensorboard", "trackio[tensorboard]", "aim", "tensorflow-cpu", "wandb==0.25.*"]
CONFIG = {
    "run": {"precision": "fp32", "seed": 3, "threads": 1},
    "model": {"layers": 2, "heads": 2, "channels": 64, "context": 32},
    "train": {"steps": 10, "batch_tokens": 256, "micro_batch": 4}, "optimizer": {"lr": 1e-3, "warmup": 2},
    "parallel": {"ranks": 2, "transport": "threads"},
    "eval": {"every": 5, "batches": 2, "task_every": 5},
    "sample": {"every": 5, "tokens": 20, "prompt": "A <b>"}, "checkpoint": {"every": 5, "keep_last": 9},
    "log": {"tensorboard": True, "comm": True, "health": 5, "histograms": 5},
}
TASK, RULES = "colours", {"accuracy": "sum", "accuracy_norm": "characters"}
DOCUMENTS = [("The sky is", [" blue.", " a loud and heavy stone."], 0),
             ("Grass is", [" of glass", " green"], 1),
             ("Snow is", [" white.", " black.", " a word that nobody knows."], 0)]

KINDS = ("train", "val", "tasks", "memory", "comm")                         # of charts
OF_COMM = ("wait_ms", "device_wait_ms", "hidden")                           # in the event file
LEFT_OUT = ("event", "step", "tokens", "skipped", "joules_per_token")       # by the event file


def write_task(path):
    """A task of few documents, in the format of data/README.md; returns the path."""
    lines = [{"task": TASK, **RULES}]
    lines += [{"doc_id": doc, "idx": idx, "context": context, "continuation": continuation, "label": label}
              for doc, (context, continuations, label) in enumerate(DOCUMENTS)
              for idx, continuation in enumerate(continuations)]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return path


def train(folder):
    """Trains the run, and once more from step 5; returns its folder."""
    tokenizer, board = f"{folder}/tokenizer.json", f"{folder}/runs/board"
    shutil.rmtree(f"{folder}/runs", ignore_errors=True)
    run("./tokenize", "train", "--vocab=400", "--as=text", f"--out={tokenizer}", "README.md")
    run("./tokenize", "encode", "--as=text", f"--tokenizer={tokenizer}", "--val=0.2", f"--out={folder}/pages",
        "README.md")
    config = json.loads(json.dumps(CONFIG))
    config["run"]["dir"], config["log"]["prometheus"] = board, f"{folder}/board.prom"
    config["data"] = {"train": f"{folder}/pages_train_*.bin", "val": f"{folder}/pages_val_*.bin",
                      "tokenizer": tokenizer}
    config["eval"]["tasks"] = [write_task(f"{folder}/{TASK}.jsonl")]
    path = write_json(f"{folder}/config.json", config)
    run("./train_gpt", path)
    shutil.rmtree(board + "/step_10")
    run("./train_gpt", path)
    return board


def rows_of(board):
    with open(board + "/metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def charts_of(row):
    """Chart -> value of a row."""
    if row["event"] == "memory":
        return {"memory": row["peak_bytes"]}
    if row["event"] == "task":
        return {f"tasks/{row['task']}": row["accuracy"], f"tasks/{row['task']}_norm": row["accuracy_norm"]}
    if row["event"] == "comm":
        return {f"comm/{key}": row[key] for key in OF_COMM if key in row}
    if row["event"] in ("train", "val"):
        return {f"{row['event']}/{key}": value for key, value in row.items()
                if key not in LEFT_OUT and value is not None}
    return {}


def expected(rows):
    """(chart, step) -> value; each kind of row has to be there."""
    values = {(chart, row["step"]): value for row in rows for chart, value in charts_of(row).items()}
    missing = set(KINDS) - {chart.split("/")[0] for chart, _ in values}
    if missing:
        sys.exit(f"error: metrics.jsonl has no rows of {', '.join(sorted(missing))}")
    return values


def compare(count, what, found, wanted, more=""):
    """found: a list of (chart, step, value), each once, in FP32."""
    single = lambda x: struct.unpack("f", struct.pack("f", x))[0]
    places = [(chart, step) for chart, step, _ in found]
    off = [(chart, step, value) for chart, step, value in found
           if single(value) != single(wanted.get((chart, step), float("nan")))]
    good = len(places) == len(set(places)) == len(wanted) and not off
    detail = f"{len(found)} values of {len(wanted)}{more}"
    count.check(what, good, detail + (f", others first: {off[0]}" if off else ""))


# ---------------------------------------------------------------------------------------------------------
# the judges

def printable(text):
    """As event files have a text: control characters but newline and tab are U+FFFD."""
    return "".join("\ufffd" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text)


def tensorboard(count, board, rows):
    from tensorboard.backend.event_processing import event_accumulator
    everything = {"scalars": 0, "histograms": 0, "tensors": 0}
    read = event_accumulator.EventAccumulator(board, size_guidance=everything)
    read.Reload()
    scalars = [(tag, e.step, e.value) for tag in read.Tags()["scalars"] for e in read.Scalars(tag)]
    compare(count, "TensorBoard, scalars", scalars, expected(rows))
    sizes = {t["name"]: t["count"] for t in next(r for r in rows if r["event"] == "health")["tensors"]}
    found = {(tag, h.step): h.histogram_value for tag in read.Tags()["histograms"]
             for h in read.Histograms(tag)}
    counts = {f"{kind}/{name}": size for name, size in sizes.items() for kind in ("weights", "gradients")}
    counts |= {f"norms/{kind}": len(sizes) for kind in ("weights", "gradients", "updates")}
    whole = {(tag, step) for tag in counts for step in (5, 10)}
    off = [(tag, step, h.num, sum(h.bucket)) for (tag, step), h in found.items()
           if not h.num == sum(h.bucket) == counts.get(tag)]
    count.check("TensorBoard, histograms", whole == set(found) and not off, f"{len(found)} of {len(whole)}" +
                (f", others first: {off[0]}" if off else ""))
    texts = {e.step: e.tensor_proto.string_val[0].decode() for tag in read.Tags()["tensors"]
             for e in read.Tensors(tag)}
    wanted = {row["step"]: printable(row["text"]) for row in rows if row["event"] == "sample"}
    count.check("TensorBoard, texts", texts == wanted and wanted, f"steps {sorted(texts)}")


def trackio(count, board, rows):
    os.environ["TRACKIO_DIR"] = place = os.path.dirname(board) + "_trackio"
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    import trackio as package
    from trackio.sqlite_storage import SQLiteStorage
    with contextlib.redirect_stdout(sys.stderr):
        package.import_tf_events(board, project="judged", name="board")
    logs = [log for name in SQLiteStorage.get_runs("judged")
            for log in SQLiteStorage.get_logs("judged", name)]
    found = [(key, log["step"], value) for log in logs for key, value in log.items() if "/" in key or
             key == "memory"]
    compare(count, "trackio, import_tf_events", found, expected(rows))


def aim(count, board, rows):
    place = os.path.dirname(board) + "_aim"
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    program = os.path.join(os.path.dirname(sys.executable), "aim")
    run(program, "init", cwd=place)
    run(program, "convert", "tensorboard", "--logdir", os.path.abspath(os.path.dirname(board)), cwd=place)
    import aim as package
    repo, found = package.Repo(place), []
    for hash_of_run in repo.list_all_runs():
        one = package.Run(hash_of_run, repo=repo, system_tracking_interval=None)
        for metric in one.metrics():
            table = metric.dataframe()
            found += [(metric.name, int(step), value) for step, value in zip(table["step"], table["value"])]
    compare(count, "aim convert tensorboard", found, expected(rows))


def offline_records(path):
    """Records of a .wandb file, by wandb's reader."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore
    store = DataStore()
    store.open_for_scan(path)
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


def is_chart(key):
    """Whether the event file has a figure that was sent to wandb."""
    kind, _, name = key.partition("/")
    return name in OF_COMM if kind == "comm" else kind in KINDS and name not in LEFT_OUT


def wandb(count, board, rows):
    import wandb as package                 # whether it is there
    place = os.path.dirname(board) + "_wandb"
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    env = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": place}
    run(sys.executable, "scripts/wandb.py", board, "--once", env=env)
    paths, found, texts, about = glob.glob(f"{place}/wandb/offline-run-*/*.wandb"), [], {}, {}
    for record in offline_records(paths[0]):
        if record.WhichOneof("record_type") == "run":
            config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
            about = {"name": record.run.display_name, "project": record.run.project, "config": config}
        if record.WhichOneof("record_type") != "history":
            continue
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json)
                 for item in record.history.item}
        step = record.history.step.num
        found += [(key, step, value) for key, value in items.items() if is_chart(key)]
        if path := items.get("sample/text/path"):
            with open(f"{os.path.dirname(paths[0])}/files/{path}", encoding="utf-8") as file:
                texts[step] = file.read()
    compare(count, f"wandb {package.__version__}, an offline run", found, expected(rows))
    with open(board + "/config.json", encoding="utf-8") as file:
        known = json.load(file)
    same = about.get("name") == "board" and all(about["config"].get(key) == known[key] for key in known)
    count.check("wandb, its config", same, f"{about.get('project')}/{about.get('name')}")
    steps = sorted(row["step"] for row in rows if row["event"] == "sample")
    escaped = all("A &lt;b&gt;" in text for text in texts.values())
    count.check("wandb, texts", sorted(texts) == steps and escaped, f"steps {sorted(texts)}")


def promtool(count, board, rows):
    if not shutil.which("promtool"):
        raise Missing("no promtool (apt-get install prometheus)")
    with open(os.path.join(board, "../../board.prom"), "rb") as text:
        ran = subprocess.run(["promtool", "check", "metrics"], stdin=text, capture_output=True, check=False)
    said = (ran.stdout + ran.stderr).decode().strip()
    count.check("promtool check metrics", ran.returncode == 0, said or "no complaint")


def what_broke(error):
    """One line: the first and the last of what an exception says, and the line of this file it came from."""
    said = [line for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()]
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if
             frame.filename == __file__]
    return f"{' ... '.join(dict.fromkeys((said[0], said[-1])))} (line {lines[-1]})"


def judge(options):
    board, count = train(options.folder), Count()
    rows = rows_of(board)
    for one in (tensorboard, trackio, aim, wandb, promtool):
        try:
            one(count, board, rows)
        except (Missing, ImportError) as error:
            count.skip(one.__name__, error)
        except (Exception, SystemExit) as error:        # the other judges still run
            count.check(one.__name__, False, what_broke(error))
    return count


if __name__ == "__main__":
    sys.exit(main("reports", parser_of(__doc__, "build/full/reports"), judge, PACKAGES))

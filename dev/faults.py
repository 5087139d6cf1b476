#!/usr/bin/python3
"""Plants faults in a copy of the source: does each rule of the design have a test that fails without it?

    dev/faults.py [WORD ...] [--tree=FOLDER] [--test="NAME FILTER"] [--jobs=2] [--json=FILE]

dev/faults.json has a fault a row: the rule that it breaks, a file, a text of the file and what replaces the
text, and the test that must fail: the name of a file of test/ and, after a blank, a filter. "checks/NAME" is
the test with every access of kernels looked at, "full/NAME" the test as `make test-full` runs it.

WORD     only rows with a WORD in their rule, file or test
--tree   another checkout, whose tests are asked; rows whose text or test it lacks are left out
--test   asks this test instead of a row's own

Copies lie in build/faults/ and keep what is built there. The exit code is 1 where a fault survives, does not
compile, or ends no test in time.
"""
import argparse
import filecmp
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = "dev/faults.json"
CHECKS, FULL = "checks/", "full/"
MOST_SECONDS = 60           # of a test; of one that takes long without a fault, five times as much
MOST_BUILD_SECONDS = 1500
ENDS = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def rows_of(root):
    try:
        return json.loads(read(os.path.join(root, TABLE)))
    except (OSError, ValueError):           # dev/check.py reports what is no JSON
        return []


def tests_of(root):
    """Path of each test file by its name."""
    found = {}
    for folder, _, files in os.walk(os.path.join(root, "test")):
        found.update({f[:-4]: os.path.join(folder, f) for f in files if f.endswith(".cpp")})
    return found


def mistakes(root):
    """(table, line, "faults", what is wrong) of each row that plants nothing, or whose test is not there."""
    rows, tests = rows_of(root), tests_of(root)
    lines = read(os.path.join(root, TABLE)).split("\n") if rows else []
    for row, line in zip(rows, (i for i, text in enumerate(lines, 1) if '"rule":' in text)):
        path = os.path.join(root, row["file"])
        times = read(path).count(row["from"]) if os.path.isfile(path) else 0
        if times != 1:
            yield TABLE, line, "faults", f"the text is {times} times in {row['file']}, expected once"
            continue
        name, _, test = row["test"].removeprefix(CHECKS).removeprefix(FULL).partition(" ")
        if row["from"] == row["to"]:
            yield TABLE, line, "faults", "a row that changes nothing"
        if name not in tests or test not in read(tests[name]):
            yield TABLE, line, "faults", f"there is no test '{row['test']}'"


def git(tree, *args):
    return subprocess.run(["git", "-C", tree, *args], check=True, capture_output=True, text=True).stdout


def copy_tree(tree, to):
    """The files that git has or would add, where they differ: what was built of the others stays."""
    names = git(tree, "ls-files", "-co", "--exclude-standard").split("\n")
    names = {n for n in names if os.path.isfile(os.path.join(tree, n))}
    for room in ("llmc", "test", "dev"):
        for folder, _, files in os.walk(os.path.join(to, room)):
            for path in (os.path.join(folder, f) for f in files):
                if os.path.relpath(path, to) not in names:
                    os.remove(path)
    for name in names:
        source, place = os.path.join(tree, name), os.path.join(to, name)
        if not os.path.isfile(place) or not filecmp.cmp(source, place, shallow=False):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy(source, place)


def call(command, folder, seconds, temporary):
    """Output and exit code of a command; no code: it did not end in time."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    env |= {"TMPDIR": temporary, "GOMP_SPINCOUNT": "1000"}
    child = subprocess.Popen(["nice", "-n", "5"] + command, cwd=folder, env=env, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                             errors="replace", start_new_session=True)
    try:
        return child.communicate(timeout=seconds)[0], child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.communicate()[0], None


class Tree:
    """A copy of a checkout, with what is built there."""

    def __init__(self, tree, temporary, jobs):
        self.commit = git(tree, "rev-parse", "--short=7", "HEAD").strip()
        self.temporary, self.jobs = temporary, jobs
        self.folder = os.path.join(ROOT, "build", "faults", "main" if tree == ROOT else self.commit)
        copy_tree(tree, self.folder)
        self.tests = tests_of(self.folder)
        self.most = {}              # seconds that a test may run
        self.whole = {}             # of each test: what becomes of it without a fault

    def place_of(self, row):
        """The file with the row's text: in another checkout it may have another name."""
        sources = [os.path.join(folder, f) for folder, _, files in
                   os.walk(os.path.join(self.folder, "llmc")) for f in files]
        for path in [os.path.join(self.folder, row["file"])] + sources:
            if os.path.isfile(path) and read(path).count(row["from"]) == 1:
                return path
        return None

    def ask(self, test, *flags):
        """(what became of the test, who failed): passed, found, no build, no end, no test."""
        name, _, filters = test.removeprefix(CHECKS).removeprefix(FULL).partition(" ")
        binary = f"build/cpu-native/{CHECKS if test.startswith(CHECKS) else ''}test/{name}"
        make = ["make", f"-j{self.jobs}", "DEVICE=cpu", *flags, "train_gpt", "tokenize", "dev/ckpt", binary]
        output, code = call(make, self.folder, MOST_BUILD_SECONDS, self.temporary)
        if code != 0:
            return "no build", output.strip().split("\n")[-8:]
        start = time.time()
        most = self.most.get(test, 10 * MOST_SECONDS)
        full = ["env", "TEST_FULL=1"] if test.startswith(FULL) else []
        output, code = call([*full, binary] + filters.split(), self.folder, most, self.temporary)
        self.most.setdefault(test, max(MOST_SECONDS, 5 * (time.time() - start)))
        failed = [line.split()[1] for line in output.split("\n") if line.startswith("FAIL ")]
        ends = ENDS.search(output)
        if code is None:
            return "no end", []
        if ends and ends[1] == ends[2] == "0":
            return "no test", ["skipped, or none of this name"]
        return ("passed", []) if ends and code == 0 else ("found", failed or [f"died ({code})"])

    def plant(self, row, test):
        path, start = self.place_of(row), time.time()
        if not path or test.removeprefix(CHECKS).removeprefix(FULL).split(" ")[0] not in self.tests:
            return {"result": "not there", "by": [], "seconds": 0}
        if test not in self.whole:
            self.whole[test] = self.ask(test)
        if self.whole[test][0] != "passed":         # a test that fails anyway finds nothing
            return {"result": "fails without a fault", "by": self.whole[test][1], "seconds": 0}
        text = read(path)
        start = time.time()
        try:
            write(path, text.replace(row["from"], row["to"]))
            became, by = self.ask(test, "WERROR=")     # a fault may leave a name unused
        finally:
            write(path, text)
        became = "survived" if became == "passed" else became
        return {"result": became, "by": by, "seconds": round(time.time() - start, 1)}


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--tree", default=ROOT)
    parser.add_argument("--test")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json")
    args = parser.parse_args()
    for path, line, _, what in mistakes(ROOT):
        sys.exit(f"{path}:{line}: {what}")

    def asked(row):
        return not args.words or any(w in f"{row['rule']} {row['file']} {row['test']}" for w in args.words)
    results = []
    with tempfile.TemporaryDirectory(prefix="faults_") as temporary:
        tree = Tree(os.path.abspath(args.tree), temporary, args.jobs)
        for row in filter(asked, rows_of(ROOT)):
            test = args.test or row["test"]
            r = {"rule": row["rule"], "file": row["file"], "test": test} | tree.plant(row, test)
            results.append(r)
            print(f"{r['rule']} | {r['file']} | {r['result']}: {' '.join(r['by'][:3])} | {r['seconds']} s",
                  flush=True)
            if args.json:
                write(args.json, json.dumps({"commit": tree.commit, "faults": results}, indent=1) + "\n")
    lost = [r for r in results if r["result"] not in ("found", "not there")]
    print(f"{len(results)} faults, {sum(r['result'] == 'found' for r in results)} found, {len(lost)} not")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()

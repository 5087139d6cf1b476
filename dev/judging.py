"""What judges by packages of PyPI share: options, a venv, commands, counts. For parts of `make test-full`."""
import argparse
import json
import os
import subprocess
import sys
import time
import venv


class Missing(Exception):
    """A package from PyPI is missing."""


def install(folder, packages, without_cuda=()):
    """The interpreter of a venv there with the packages; without_cuda: of PyTorch, if its index answers."""
    home = os.path.join(folder, "venv")
    python, done = os.path.join(home, "bin/python3"), os.path.join(home, "complete")
    if os.path.exists(done):
        return python
    venv.create(home, with_pip=True, clear=True)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--timeout=20"]
    for package in without_cuda:
        small = ["--retries=0", "--index-url=https://download.pytorch.org/whl/cpu", package]
        subprocess.run(pip + small, capture_output=True, check=False)
    made = subprocess.run(pip + packages, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        last = made.stderr.strip().split("\n")[-1]
        raise Missing(f"pip cannot install {' '.join(packages)}: {last}")
    open(done, "w", encoding="utf-8").close()
    return python


def run(*command, **options):
    """What a command prints; its failure ends the judge."""
    ran = subprocess.run(command, capture_output=True, check=False, **options)
    if ran.returncode != 0:
        sys.exit(f"error: {' '.join(command)}: exit code {ran.returncode}\n{ran.stderr.decode()}")
    return ran.stdout.decode()


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
    return path


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.start = time.monotonic()

    def check(self, what, holds, detail):
        now = time.monotonic()
        print(f"{'ok   ' if holds else 'FAIL '} {what}: {detail} ({now - self.start:.0f} s)", flush=True)
        self.start = now
        self.passed += bool(holds)
        self.failed += not holds

    def skip(self, what, why):
        print(f"skip  {what}: {why}", flush=True)
        self.skipped += 1


def parser_of(text, folder):
    """The options of every judge. text: of --help."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=folder)
    parser.add_argument("--install", action="store_true")
    return parser


def main(part, parser, judge, packages, fetch=None, without_cuda=()):
    """The exit code of judge(options), which returns a Count, after the line that test/run_full.sh reads.

    With --install fetch(options) comes first, then the judge again, by a venv with the packages.
    """
    options = parser.parse_args()
    options.folder = os.path.abspath(options.folder)
    os.makedirs(options.folder, exist_ok=True)
    try:
        if options.install:
            if fetch:
                fetch(options)
            python = install(options.folder, packages, without_cuda)
            os.execv(python, [python, *(a for a in sys.argv if a != "--install")])
        count = judge(options)
    except (Missing, ImportError) as error:
        print(f"skip  {part}: {error}\n0 passed, 0 failed, 1 skipped")
        return 0
    skipped = f", {count.skipped} skipped" if count.skipped else ""
    print(f"{count.passed} passed, {count.failed} failed{skipped}")
    return count.failed > 0

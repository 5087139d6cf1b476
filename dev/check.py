#!/usr/bin/python3
"""Holds the source to the rules of the house; `make check` calls it through dev/check.sh.

    dev/check.py [--root DIR]

Each violation is a line `file:line: rule: what was found`; the exit code is 1 where there is any.
"""
import argparse
import json
import os
import py_compile
import re
import subprocess
import sys
import tempfile

from check_headers import INCLUDE, Headers
from check_rooms import FLOORS, HOUSE, outside_of_namespaces, place_of, too_large
from check_statements import joined_by_commas, nested_conditionals
from faults import mistakes

FILE_LINES, OPS_FILE_LINES, MAIN_LINES = 300, 500, 120
HOST_LINES, KERNEL_LINES, COLUMNS, MAKE_COLUMNS = 60, 120, 110, 120
CPP = (".h", ".cpp", ".cu", ".cuh")
MAKE = ("Makefile", ".mk")
TEXT = CPP + MAKE + (".py", ".sh", ".json", ".md", ".ci/run")
MODEL_WORDS = re.compile(r"\b(dp|pp|ZeRO)\b|\bzero\.(h|cpp)\b")       # in comments too
MODEL_NAMES = re.compile(r"\b[zZ]ero\b")                               # in code
NAMESPACE = re.compile(r"namespace\b.*\{$")
TYPE = re.compile(r"(?:template <.*> )?(?:struct|class|enum|enum class) (\w+)\s*(?:\{|:(?!:)(?![^{]*;))")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
LAUNCH = re.compile(r"<<<")
FAST_MATH = re.compile(r"-f(fast-math|unsafe-math-optimizations|finite-math-only|associative-math)|-Ofast")
LAUNCH_HELPER = "llmc/ops/cuda/device/runtime."
TOUR = "llmc/README.md"
PARSER = "llmc/base/json/json_events.cpp"   # 4 s to compile
SELF = ("dev/check.py", "test/train/run/house_rules.cpp")


def files_of(root):
    """Files that git has or would add; without git, every file but build outputs."""
    def git(*args):
        return subprocess.run(["git", "-C", root, *args], capture_output=True, text=True)
    listed = git("ls-files", "-co", "--exclude-standard")
    if listed.returncode == 0 and git("rev-parse", "--show-prefix").stdout.strip() == "":
        names = listed.stdout.split("\n")
    else:
        paths = [os.path.join(folder, f) for folder, _, files in os.walk(root) for f in files]
        names = [os.path.relpath(path, root) for path in paths]
    skip = ("build/", "runs/", ".git/", "shared/", "test/fuzz/corpus/", "test/fuzz/found/")
    return sorted(n for n in names if n and not n.startswith(skip) and os.path.isfile(os.path.join(root, n)))


def without_comments_and_strings(text):
    """The C++ text with comments, literals and preprocessor lines blanked; line breaks stay."""
    pattern = re.compile(r'R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                         r'|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\''
                         r'|//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*', re.S | re.M)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def functions_of(text):
    """(first line, last line, header) of each function: bodies in a namespace or a type."""
    code = without_comments_and_strings(text)
    stack, start, found = [], 0, []
    last_closed = None
    for m in re.finditer(r"[{};]", code):
        at, char = m.start(), m.group()
        inside = stack[-1][0] if stack else "namespace"
        if char == "{":
            header = code[start:at]
            if inside in ("function", "data"):
                kind = "inner" if inside == "function" else "data"
            elif last_closed and re.fullmatch(r"\s*(,\s*\w+\s*)?", header):
                kind, start = "function", last_closed       # the body after a member initialiser in braces
            elif re.search(r"\bnamespace\b|\bextern\s*$", header) and "(" not in header:
                kind = "namespace"
            elif re.search(r"\b(struct|class|union|enum)\b", header) and "(" not in header:
                kind = "type"
            else:
                kind = "function" if "(" in header else "data"
            if inside == "inner":
                kind = "inner"
            stack.append((kind, start, header))
            last_closed = None
        elif char == "}" and stack:
            kind, begin, header = stack.pop()
            if kind == "function":
                blanks = len(code[begin:]) - len(code[begin:].lstrip())
                first, last = (code.count("\n", 0, x) + 1 for x in (begin + blanks, at))
                found.append((first, last, header.strip()))
                last_closed = begin
            else:
                last_closed = None
        else:
            last_closed = None
        if not stack or stack[-1][0] in ("namespace", "type"):
            start = at + 1
    return found


def name_of(header):
    """The function's name, for the message."""
    m = re.search(r"([\w:~]+|operator\S+)\s*\(", header)
    return m[1] if m else header.split("\n")[0][:40]


class Check:
    def __init__(self, root):
        self.root, self.violations, self.notes = root, [], []
        self.types = {}             # (folder, name): place of the definition
        self.headers = Headers()

    def report(self, path, line, rule, what):
        self.violations.append(f"{path}:{line}: {rule}: {what}")

    def cpp(self, path, text, lines):
        floor, room = place_of(path)
        if floor and room not in HOUSE.get(floor, []):
            self.report(path, 1, "rooms", f"no floor or room llmc/{floor}/{room}".rstrip("/") +
                        "; dev/check_rooms.py lists them")
        code = without_comments_and_strings(text).split("\n")
        for i, line in enumerate(lines, 1):
            if included := INCLUDE.match(line):
                self.include(path, i, (floor, room), included[1])
            if floor == "model" and (m := MODEL_WORDS.search(line) or MODEL_NAMES.search(code[i - 1])):
                self.report(path, i, "floors", f"model/ must not know of '{m.group()}'")
            if LAUNCH.search(code[i - 1]) and not path.startswith(LAUNCH_HELPER):
                self.report(path, i, "launch", f"'<<<' outside {LAUNCH_HELPER}*; use the launch helper")
            if path.startswith("llmc/") and path != PARSER and "#include <nlohmann/" in line:
                self.report(path, i, "include", f"nlohmann's parser is compiled in {PARSER} alone; use "
                            "llmc/base/json/json_value.h")
        namespaces = 0
        for i, (line, whole) in enumerate(zip(code, lines), 1):
            namespaces += bool(NAMESPACE.match(line)) - whole.startswith("}  // namespace")
            of_tests = path.startswith("test/") and path.endswith(".h") and "/emulator/" not in path
            if (path.startswith("llmc/") or of_tests) and (m := TYPE.match(line)):
                folder, name = os.path.dirname(path), m[1]
                alone = namespaces or folder == "llmc/ops/decl"     # included in namespaces
                others = [self.types.setdefault((where, name), path)
                          for where in ([folder] if alone else [folder, "llmc"])]
                if other := next((o for o in others if o != path), None):
                    self.report(path, i, "one definition", f"{name} is a type of {other}, too: the "
                                "linker takes what was compiled for either")
        for i, line in enumerate(code, 1):
            if path.startswith("llmc/ops/cuda/") and "__global__" in line and not self.has_floor(lines, i):
                self.report(path, i, "floor", "a kernel without a line '// FLOOR bytes = ...' above it")
        kernels = path.startswith(("llmc/ops/cpu/", "llmc/ops/cuda/"))
        if path.startswith(("llmc/", "train_gpt")) and not kernels:
            self.statements(path, "\n".join(code))
            self.violations += outside_of_namespaces(path, code)
        for first, last, header in functions_of(text):
            limit = KERNEL_LINES if kernels or "__global__" in header else HOST_LINES
            if last - first + 1 > limit:
                self.report(path, first, "function length",
                            f"{name_of(header)} has {last - first + 1} lines, at most {limit}")

    def statements(self, path, code):
        for line in joined_by_commas(code):
            self.report(path, line, "statement commas", "statements joined by a comma; one statement a line")
        for line in nested_conditionals(code):
            self.report(path, line, "nested conditionals", "a conditional inside another; use if and return")

    @staticmethod
    def has_floor(lines, number):
        """Whether the comment above a function has a FLOOR; number: of the function's first line."""
        above = lines[number - 2::-1] if number > 1 else []
        for line in above:
            if line.startswith("// FLOOR "):
                return True
            if not line.startswith(("//", "template")):
                return False
        return False

    def include(self, path, line, place, target):
        if path.startswith("llmc/") and target.split("/")[-1].startswith("train_gpt"):
            self.report(path, line, "floors", f"nothing in llmc/ includes {target}")
        (floor, room), (other, other_room) = place, place_of(target)
        if floor not in FLOORS or other not in FLOORS:
            return
        if FLOORS.index(other) > FLOORS.index(floor):
            order = " -> ".join(FLOORS)
            self.report(path, line, "floors", f"{floor}/ must not include {target} (order: {order})")
        elif other == floor and room in (rooms := HOUSE[floor]) and other_room in rooms:
            if rooms.index(other_room) > rooms.index(room):
                order = " -> ".join(f"{floor}/{r}".rstrip("/") for r in rooms)
                self.report(path, line, "rooms", f"{floor}/{room} must not include {target} (order: {order})")

    def lengths(self, path, lines):
        limit = OPS_FILE_LINES if path.startswith("llmc/ops/") else FILE_LINES
        limit = MAIN_LINES if path == "train_gpt.cu" else limit
        if len(lines) > limit:
            self.report(path, limit + 1, "file length", f"{len(lines)} lines, at most {limit}")
        for i, line in enumerate(lines, 1):
            if len(line) > (most := MAKE_COLUMNS if path.endswith(MAKE) else COLUMNS):
                self.report(path, i, "columns", f"{len(line)} columns, at most {most}")

    def text(self, path, lines):
        for i, line in enumerate(lines, 1):
            if "\t" in line and not path.endswith(MAKE):
                self.report(path, i, "blanks", "a tab; indent by four spaces")
            if line != line.rstrip():
                self.report(path, i, "blanks", "blanks at the end of the line")
            if path not in SELF and (m := UNFINISHED.search(line)):
                self.report(path, i, "unfinished", f"'{m.group()}': finish it, or open an issue")
            if path not in SELF and not line.lstrip().startswith(("#", "//")) and not path.endswith(".md"):
                if m := FAST_MATH.search(line):
                    self.report(path, i, "fast math", f"'{m.group()}' changes values")

    def mode(self, path, text):
        executable = os.access(os.path.join(self.root, path), os.X_OK)
        if executable != text.startswith("#!"):
            self.report(path, 1, "mode", "a program has '#!' and may be executed, any other file neither: " +
                        ("no '#!'" if executable else "chmod +x"))
        program = text.startswith("#!") or os.path.dirname(path) in ("scripts", "data")
        if path.endswith(".py") and program and not text.startswith("#!/usr/bin/python3\n"):
            self.report(path, 1, "interpreter", "expected #!/usr/bin/python3, not what PATH has first")

    def python(self, path):
        with tempfile.TemporaryDirectory() as folder:
            try:
                py_compile.compile(os.path.join(self.root, path), cfile=folder + "/c", doraise=True)
            except py_compile.PyCompileError as e:
                self.report(path, getattr(e.exc_value, "lineno", 1), "python", str(e.exc_value))

    def tool(self, command, paths, rule):
        """Runs a linter over the files; its own lines `file:line: ...` are the violations."""
        if not paths:
            return
        try:
            done = subprocess.run(command + paths, cwd=self.root, capture_output=True, text=True)
        except OSError:
            self.notes.append(f"{command[0]} is not there: {len(paths)} files not linted with it")
            return
        if done.returncode:
            for line in (done.stdout + done.stderr).splitlines():
                self.violations.append(re.sub(r"^([^:]+:\d+(?::\d+)?):", rf"\1: {rule}:", line))

    def tour(self, names):
        """llmc/README.md names every file of llmc/."""
        page = os.path.join(self.root, TOUR)
        text = open(page, encoding="utf-8").read() if os.path.isfile(page) else ""
        for path in names:
            name = re.escape(os.path.basename(path).split(".")[0])
            if path.startswith("llmc/") and path.endswith(CPP) and not re.search(rf"\b{name}\b", text):
                self.report(TOUR, 1, "tour", f"{path} is not named")

    def run(self):
        everything = files_of(self.root)
        for path in everything:
            if path.endswith((".d", ".o", ".gch", ".so", ".a")):
                self.report(path, 1, "build output", "a compiler wrote this file: remove it")
        names = [n for n in everything if n.endswith(TEXT)]
        python, shell = [], []
        for path in names:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as f:
                text = f.read()
            lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")
            self.text(path, lines)
            self.mode(path, text)
            if path.endswith(".json"):
                try:
                    json.loads(text)
                except ValueError as e:
                    self.report(path, getattr(e, "lineno", 1), "json", str(e))
            if path.endswith((".json", ".md")) or (lines and re.match(r"(//|#) generated by", lines[0])):
                continue
            self.lengths(path, lines)
            if path.endswith(CPP):
                self.cpp(path, text, lines)
                self.headers.add(path, lines)
            if path.endswith(".py"):
                self.python(path)
                python.append(path)
            if path.endswith(".sh") or text.startswith(("#!/usr/bin/env bash", "#!/bin/bash", "#!/bin/sh")):
                shell.append(path)
        self.tour(names)
        for violation in [*too_large(everything), *self.headers.violations(), *mistakes(self.root)]:
            self.report(*violation)
        for path in shell:
            self.tool(["bash", "-n"], [path], "shell")
        self.tool(["shellcheck", "-f", "gcc"], shell, "shellcheck")
        self.tool(["pyflakes3"], python, "pyflakes")
        return len(names)


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    check = Check(parser.parse_args().root)
    count = check.run()
    for line in check.violations + [f"note: {n}" for n in check.notes]:
        print(line)
    print(f"{count} files checked, {len(check.violations)} violations")
    sys.exit(1 if check.violations else 0)


if __name__ == "__main__":
    main()

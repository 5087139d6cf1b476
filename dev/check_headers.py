"""The rules of dev/check.py between headers: no circles of includes, no two headers of the same name, a text
about each room, and a header compiles by itself (files compiled together hide that it needs another)."""
import os
import re

from check_rooms import mistakes_of_texts

INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
SYSTEM = re.compile(r"\s*#\s*include\s+<([^>]+)>")
STANDARD = re.compile(r"\bstd::(\w+)")
COMMENTS_AND_STRINGS = re.compile(r'//.*|"(?:\\.|[^"\\])*"')
OF_ITS_NAME = ("array", "atomic", "chrono", "condition_variable", "deque", "filesystem", "initializer_list",
               "map", "mutex", "optional", "set", "span", "string", "string_view", "thread", "unordered_map",
               "unordered_set", "variant", "vector")
DEFINED_IN = {name: name for name in OF_ITS_NAME} | {     # name in std: header
    "function": "functional", "ifstream": "fstream", "lock_guard": "mutex", "make_unique": "memory",
    "max": "algorithm", "min": "algorithm", "ofstream": "fstream", "ostringstream": "sstream",
    "shared_ptr": "memory", "sort": "algorithm", "unique_lock": "mutex", "unique_ptr": "memory"}


def backend_of(path):
    """decl, cpu or cuda of a header of ops/; "" of any other."""
    parts = path.split("/")
    return parts[2] if parts[:2] == ["llmc", "ops"] and len(parts) > 3 else ""


class Headers:
    """Collects files; violations() judges the collection."""

    def __init__(self):
        self.modules = {}           # X, for X.h with X.cpp or X.cu: {module it includes: (file, line)}
        self.named = {}             # (llmc or test, base name): headers
        self.files = {}             # file: ([header of the tree], {standard header})
        self.used = {}              # header with an include guard: {name in std: line}
        self.of_rooms = {}          # header of llmc/: lines

    def add(self, path, lines):
        tree, base = path.split("/")[0], os.path.basename(path)
        self.files[path] = ([m.group(1) for m in map(INCLUDE.match, lines) if m],
                            {m.group(1) for m in map(SYSTEM.match, lines) if m})
        if path.endswith((".h", ".cuh")) and "#pragma once" in lines:
            used = self.used.setdefault(path, {})
            for i, line in enumerate(lines, 1):
                for name in STANDARD.findall(COMMENTS_AND_STRINGS.sub("", line)):
                    used.setdefault(name, i)
        of_cuda = path.startswith("test/emulator/include/")          # CUDA's own names
        if tree in ("llmc", "test") and path.endswith((".h", ".cuh")) and not of_cuda:
            self.named.setdefault((tree, base), []).append(path)
        if tree != "llmc":
            return
        if path.endswith(".h"):
            self.of_rooms[path] = lines
        module = os.path.splitext(path)[0]
        included = self.modules.setdefault(module, {})
        for i, line in enumerate(lines, 1):
            if m := INCLUDE.match(line):
                target = os.path.splitext(m.group(1))[0]
                if target != module:
                    included.setdefault(target, (path, i))

    def circle_of(self, module):
        """The shortest list of modules from a module back to itself by includes, or None."""
        queue, reached = [[module]], set()
        for path in queue:
            for target in self.modules.get(path[-1], {}):
                if target == module:
                    return path + [target]
                if target not in reached:
                    reached.add(target)
                    queue.append(path + [target])
        return None

    def circles(self):
        reported = set()
        for module in sorted(self.modules):
            circle = None if module in reported else self.circle_of(module)
            if circle is None:
                continue
            reported.update(circle)
            steps = [self.modules[a][b] + (b,) for a, b in zip(circle, circle[1:])]
            shown = ", ".join(f"{path}:{line} includes {to}.h" for path, line, to in steps)
            yield steps[0][0], steps[0][1], "circles", shown

    def names(self):
        """DESIGN's rule 3 gives one operation one name: ops/decl/X.h declares what ops/cpu and ops/cuda
        compute, each in at most one header X.h. Every other name belongs to one header of its tree."""
        for (_, base), paths in sorted(self.named.items()):
            backends = [backend_of(path) for path in paths]
            declared = f"llmc/ops/decl/{base}" in paths
            for i, path in enumerate(paths):
                one_operation = declared and backends[i] and all(backends[:i])
                if i and not (one_operation and backends[i] not in backends[:i]):
                    yield path, 1, "names", f"{paths[0]} has the same name; rename the less central of both"

    def included_by(self, path):
        """The standard headers that a file includes, by itself or by headers of the tree."""
        found, queue = set(), [path]
        for at in queue:
            own, standard = self.files.get(at, ([], ()))
            found.update(standard)
            queue += [header for header in own if header not in queue]
        return found

    def missing(self):
        for path, used in sorted(self.used.items()):
            included = self.included_by(path)
            for name, line in used.items():
                if (header := DEFINED_IN.get(name)) and header not in included:
                    yield path, line, "include", f"std::{name} without #include <{header}>"

    def violations(self):
        yield from mistakes_of_texts(self.of_rooms)
        yield from self.missing()
        yield from self.circles()
        yield from self.names()

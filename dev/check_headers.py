"""The rules of dev/check.py between headers: no circles of includes, no two headers of the same name."""
import os
import re

INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')


def backend_of(path):
    """decl, cpu or cuda of a header of ops/; "" of any other."""
    parts = path.split("/")
    return parts[2] if parts[:2] == ["llmc", "ops"] and len(parts) > 3 else ""


class Headers:
    """Collects files; violations() judges the collection."""

    def __init__(self):
        self.modules = {}           # X, for X.h with X.cpp or X.cu: {module it includes: (file, line)}
        self.named = {}             # (llmc or test, base name): headers

    def add(self, path, lines):
        tree, base = path.split("/")[0], os.path.basename(path)
        if tree in ("llmc", "test") and path.endswith((".h", ".cuh")):
            self.named.setdefault((tree, base), []).append(path)
        if tree != "llmc":
            return
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
        for way in queue:
            for target in self.modules.get(way[-1], {}):
                if target == module:
                    return way + [target]
                if target not in reached:
                    reached.add(target)
                    queue.append(way + [target])
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

    def violations(self):
        yield from self.circles()
        yield from self.names()

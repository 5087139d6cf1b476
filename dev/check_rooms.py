"""The rooms of llmc/ for dev/check.py: which there are, their order, first headers, namespaces, files."""
import collections
import itertools
import os
import re

# Floors and their rooms (folders; "" is the floor's own): a file includes files of its room, of earlier rooms
# and of earlier floors.
HOUSE = {
    "base": ["numbers", "", "disk", "json", "host", "config", "guard"],
    "io": ["files", "unicode", "text", "corpus"],
    "ops": ["decl", "", "cuda/device", "cuda", "cuda/tuning", "cuda/products", "cuda/attention",
            "cpu/products", "cpu"],
    "comm": ["", "rendezvous", "agents", "transport", "launch"],
    "model": ["", "infer"],
    "train": ["data", "step", "replicas", "save/formats", "hook", "save",
              "survive", "score", "report", "serve",
              "watch", "log", "run", "price", "plan", "explore"],
}
FLOORS = list(HOUSE)
ROOM_FILES = 25
TEXT_LINES = 10
CALLERS, LIMITS = re.compile(r"\bcall(s|ed)?\b", re.I), re.compile(r"\bknows? no\b|\bnot know\b")
# A room's namespace is inline. It has the name of the folder except here, where a function or a library has
# that name. `ops` is the backend of a build; ops/decl is included in the namespaces of the backends.
NAMESPACES = {"explore": "explorer", "json": "json_format", "launch": "launching", "log": "logs",
              "plan": "plans", "run": "runs", "save": "saves", "score": "scores"}


def place_of(path):
    """(floor, room) of a file in llmc/; (None, None) of any other and of the mains."""
    parts = path.split("/")
    return (parts[1], "/".join(parts[2:-1])) if parts[0] == "llmc" and len(parts) > 2 else (None, None)


def too_large(paths):
    """Folders of llmc/ with more files than a room may have; *.md does not count."""
    files = collections.Counter(os.path.dirname(p) for p in paths if not p.endswith(".md"))
    for folder, count in sorted(files.items()):
        if (folder + "/").startswith("llmc/") and count > ROOM_FILES:
            yield folder, 1, "rooms", f"{count} files, at most {ROOM_FILES}; split it by subject"


def mistakes_of_texts(headers):
    """A text about each room is at the top of one header: purpose, callers, what the room may not know.
    headers: {path: lines}."""
    rooms = {}
    for path, lines in sorted(headers.items()):
        first = rooms.setdefault(os.path.dirname(path), [])
        if not lines or not lines[0].startswith("// Room "):
            continue
        first.append(path)
        text = list(itertools.takewhile(lambda line: line.startswith("// "), lines))
        words, name = " ".join(line[3:] for line in text), os.path.dirname(path)[len("llmc/"):]
        if not words.startswith(f"Room {name}: "):
            yield path, 1, "first header", f"expected '// Room {name}: ', then what the room is for"
        if len(text) > TEXT_LINES:
            yield path, TEXT_LINES + 1, "first header", f"more than {TEXT_LINES} lines about the room"
        if not CALLERS.search(words):
            yield path, 1, "first header", "does not say who calls the room: 'Called by ...'"
        if not LIMITS.search(words):
            yield path, 1, "first header", "does not say what the room may not know: 'It knows no ...'"
    for room, first in rooms.items():
        if len(first) != 1:
            found = ", ".join(first) or "none of its headers"
            yield room, 1, "first header", f"one header begins with a text about the room: found {found}"


def namespace_of(path):
    """The namespace that a file of a room opens; None: any."""
    floor, room = place_of(path)
    if floor == "ops":
        return {"": "any_backend", "cpu": "onednn", "cuda": "gpu"}.get(room.split("/")[0])
    name = (room or floor or "").split("/")[-1]
    return NAMESPACES.get(name, name) or None


def outside_of_namespaces(path, code):
    """Violations: code that is in no namespace, and a file without its room's. code: lines without comments
    and literals. A name of another room may be defined with its namespace in front."""
    name, depth, own, others = namespace_of(path), 0, False, False
    if not name:
        return
    for i, line in enumerate(code, 1):
        namespace = re.match(r"(?:inline )?namespace (?:\w+::)?(?:inline )?(\w+)\b", line)
        if depth == 0 and namespace:
            own |= namespace[1] == name
            others |= namespace[1] != name
        elif depth == 0 and re.match(r"[a-z]", line) and not re.match(r"(struct|enum) [^{]*;|asm\b", line):
            defined = re.search(r"\b(\w+)::\w+(\(| \{)", line)
            if not (defined and defined[1] != name):
                yield f"{path}:{i}: namespace: '{line.strip()[:40]}' outside of `inline namespace {name}`"
        depth += line.count("{") - line.count("}")
    if others and not own and not path.startswith("llmc/ops/"):
        yield f"{path}:1: namespace: no `inline namespace {name}` here"

"""The rooms of llmc/ for dev/check.py: which there are, in which order, and how many files one may have."""
import collections
import os

# Floors and their rooms (folders; "" is the floor's own): a file includes files of its room, of earlier rooms
# and of earlier floors.
HOUSE = {
    "base": ["numbers", "", "host", "config", "guard"],
    "io": ["files", "unicode", "text", "corpus"],
    "ops": ["decl", "", "cuda/device", "cuda", "cuda/tuning", "cuda/products", "cuda/attention",
            "cpu/products", "cpu"],
    "comm": ["", "transport"],
    "model": [""],
    "train": ["data", "step", "save/formats", "save", "score", "report", "serve", "watch", "log", "run",
              "price", "plan", "explore"],
}
FLOORS = list(HOUSE)
ROOM_FILES = 25


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

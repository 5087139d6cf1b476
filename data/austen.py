#!/usr/bin/python3
"""Jane Austen's six novels (public domain, 4 MB) as text files, a document each.

    data/austen.py [--out data/austen] [--val 0.1] [--deb FILE]

They come from Debian's package r-cran-janeaustenr, fetched with `apt-get download` and unpacked with
`dpkg -x` (no root, nothing is installed). Its data is a lazy-load database of R: an index (.rdx) with the
offset and length of every variable, and a file (.rdb) of zlib'd values in R's serialization format, read
here without R.

Writes OUT/01_sense_and_sensibility.txt to OUT/06_persuasion.txt, paragraphs unwrapped: one line each, an
empty line between two. `--val F` writes OUT/train/ with the same files less the last fraction F of each,
cut at a line as `./tokenize encode --val=F` cuts them: a tokenizer is trained on these, so that it has
not seen the validation text.
"""
import argparse
import gzip
import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

PACKAGE = "r-cran-janeaustenr"
FOLDER = "usr/lib/R/site-library/janeaustenr/data"
# In order of publication: file, variable, bytes and start of SHA-256 of the lines (each closed by a newline)
# in release 1.0.0 of the package.
NOVELS = [
    ("01_sense_and_sensibility", "sensesensibility", 673688, "105e1651fe93bed7"),
    ("02_pride_and_prejudice", "prideprejudice", 684768, "dfc684d4f857fa93"),
    ("03_mansfield_park", "mansfieldpark", 883280, "98bc90519cdf4ef6"),
    ("04_emma", "emma", 883028, "7c67b5985c6d0de1"),
    ("05_northanger_abbey", "northangerabbey", 433411, "51f91bbe0517db8e"),
    ("06_persuasion", "persuasion", 466854, "8061549557aebd2f"),
]


class RReader:
    """One value in R's XDR serialization, versions 2 and 3 (R Internals, "Serialization Formats").

    Strings become str (None where NA), vectors lists, a list or vector with names a dict; attributes other
    than names are read and dropped. Code, environments and pointers do not occur in data and are refused.
    """
    NIL, REFERENCE, ALTREP, CHARACTERS = 254, 255, 238, 9

    def __init__(self, data):
        self.data, self.at, self.symbols = data, 2, []
        if data[:2] != b"X\n":
            raise ValueError(f"not an XDR serialization of R: it starts with {data[:2]!r}")
        version, _, _ = self.integer(), self.integer(), self.integer()
        if version not in (2, 3):
            raise ValueError(f"serialization version {version}; known are 2 and 3")
        if version == 3:
            self.take(self.integer())  # the writer's native encoding

    def take(self, n):
        if n < 0 or self.at + n > len(self.data):
            raise ValueError(f"the serialization ends within a value, at byte {self.at} of {len(self.data)}")
        self.at += n
        return self.data[self.at - n:self.at]

    def integer(self):
        return struct.unpack(">i", self.take(4))[0]

    def length(self):
        n = self.integer()
        return n if n != -1 else (self.integer() << 32) + (self.integer() & 0xFFFFFFFF)

    def numbers(self, letter, size):
        n = self.length()
        return list(struct.unpack(f">{n}{letter}", self.take(n * size)))

    def value(self):
        flags = self.integer()
        kind, attributes = flags & 0xFF, flags & 0x200
        if kind == self.NIL:
            return None
        if kind == self.REFERENCE:
            return self.symbols[(flags >> 8 or self.integer()) - 1]
        if kind == 1:
            self.symbols.append(self.value())
            return self.symbols[-1]
        if kind == 2:
            return self.pairs(flags)
        if kind == self.CHARACTERS:
            return self.characters(flags)
        if kind == self.ALTREP:
            return self.alternative()
        if kind in (10, 13):
            result = self.numbers("i", 4)
        elif kind == 14:
            result = self.numbers("d", 8)
        elif kind in (16, 19, 20):
            result = [self.value() for _ in range(self.length())]
        elif kind == 24:
            result = self.take(self.length())
        else:
            raise ValueError(f"type {kind} of R before byte {self.at} is not data")
        names = (self.value() or {}).get("names") if attributes else None
        return dict(zip(names, result)) if names else result

    def pairs(self, flags):
        """A pairlist: cells of (attributes, tag, value) up to NIL."""
        result = {}
        while flags & 0xFF == 2:
            if flags & 0x200:
                self.value()
            tag = self.value() if flags & 0x400 else len(result)
            result[tag] = self.value()
            flags = self.integer()
        return result

    def characters(self, flags):
        n = self.integer()
        if n == -1:
            return None
        return self.take(n).decode("latin-1" if flags >> 12 & 4 else "utf-8")

    def alternative(self):
        """ALTREP: only the wrappers, whose state starts with the plain vector."""
        info, state, _ = self.value(), self.value(), self.value()
        name = next(iter(info.values()), "")
        if not str(name).startswith("wrap_"):
            raise ValueError(f"an ALTREP of class {name} is not known")
        return next(iter(state.values())) if isinstance(state, dict) else state[0]


def decode(blob):
    return RReader(blob).value()


def printable(text):
    """A text for the terminal: control characters and lone surrogates as Python escapes them."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def database(folder):
    """The variables of a lazy-load database: a dict from name to value."""
    index_file = open(os.path.join(folder, "Rdata.rdx"), "rb").read()
    unpack = gzip.decompress if index_file[:2] == b"\x1f\x8b" else zlib.decompress
    index = decode(unpack(index_file))
    blob = open(os.path.join(folder, "Rdata.rdb"), "rb").read()
    result = {}
    for name, (offset, length) in index["variables"].items():
        size = struct.unpack(">I", blob[offset:offset + 4])[0]
        raw = zlib.decompress(blob[offset + 4:offset + length])
        if len(raw) != size:
            raise ValueError(f"{name}: {len(raw)} bytes unpacked, {size} announced")
        result[name] = decode(raw)
    return result


def novels_of(folder, package):
    """Lines of each variable of NOVELS."""
    try:
        found = database(folder)
        lines = {variable: found[variable] for _, variable, _, _ in NOVELS}
        if not all(isinstance(line, str) for text in lines.values() for line in text):
            raise ValueError("a novel is no list of lines")
        return lines
    except Exception as e:      # a package of any content leads to errors of any kind
        reason = str(e) if isinstance(e, (OSError, ValueError)) else f"not as expected, {type(e).__name__}"
        sys.exit(f"error: {package}: the novels in it cannot be read ({printable(reason)[:200]}); expected "
                 f"{PACKAGE}_1.0.0-1_all.deb, or train on a text of your own (data/README.md)")


def fetch(folder):
    """Unpacks the package below `folder`; without root, and without installing anything."""
    get = ["apt-get", "download", "-o", "APT::Sandbox::User=root", PACKAGE]
    try:
        done = subprocess.run(get, cwd=folder, capture_output=True, text=True, errors="replace")
    except FileNotFoundError:
        stop("apt-get is not there: this is no Debian or Ubuntu")
    packages = [f for f in os.listdir(folder) if f.endswith(".deb")]
    if done.returncode or not packages:
        reason = printable((done.stderr.strip().splitlines() or ["no output"])[-1])
        stop(f"`apt-get download {PACKAGE}` failed in {folder} (exit {done.returncode}): {reason}")
    return os.path.join(folder, packages[0])


def stop(reason):
    sys.exit(f"""error: the six novels could not be fetched: {reason}
They are in Debian's and Ubuntu's (universe) package {PACKAGE}. With its .deb from another machine:
    data/austen.py --deb {PACKAGE}_1.0.0-1_all.deb
Or train on a text of your own instead: data/README.md says how.""")


def verify(variable, text, size, digest):
    """The known bytes, or, in another release of the package, a text of about the same length."""
    found = hashlib.sha256(text.encode()).hexdigest()[:len(digest)]
    if found != digest:
        if abs(len(text.encode()) - size) > size // 50:
            sys.exit(f"error: {PACKAGE}: {variable} has {len(text.encode())} bytes, expected about {size}")
        print(f"note: {variable} differs from release 1.0.0 of the package (SHA-256 {found}, not {digest})")


def unwrap(lines):
    """A paragraph becomes a line, with an empty line between two; runs of spaces become a space."""
    paragraphs = "\n".join(" ".join(line.split()) for line in lines).strip("\n").split("\n\n")
    joined = (" ".join(p.split("\n")).strip() for p in paragraphs)
    return "\n\n".join(p for p in joined if p) + "\n"


def training_part(text, fraction):
    """The text up to where `./tokenize encode --val=fraction` cuts it: the nearest line, else word."""
    data = text.encode()
    held = int(len(data) * fraction)
    target, slack = len(data) - held, held // 8
    lines = [data.rfind(b"\n", target - slack, target) + 1, data.find(b"\n", target, target + slack) + 1]
    low = max(0, target - 1024)
    word = rb"(?<=\S)[ \t\v\f]|(?<=\n)"
    words = [low + m.start() for m in re.finditer(word, data[low:target + 1024])]
    inside = [p for p in lines if 0 < p < len(data)] or [p for p in words if 0 < p < len(data)]
    cut = min(inside, key=lambda p: abs(p - target), default=target) if held else len(data)
    return data[:cut]


def make_folder(out, below=""):
    """Makes the folder of --out, and `below` in it; the other scripts here call this, too."""
    try:
        os.makedirs(os.path.join(out, below), exist_ok=True)
    except OSError as e:
        sys.exit(f"error: --out={out}: no such folder can be made: {e.strerror}")


def unfinished(path):
    """The name of a file until it is whole. A pipe, a device or a folder in place of either name ends the
    program; a link in place of the unfinished file is removed: the file behind it stays as it was."""
    part = path + ".part"
    for name in (path, part):
        if os.path.exists(name) and not os.path.isfile(name):
            sys.exit(f"error: {name} is a device, a pipe or a folder; expected the name of a file")
    if os.path.islink(part) or (os.path.exists(part) and os.stat(part).st_nlink > 1):
        os.remove(part)
    return part


def write(path, data):
    try:
        part = unfinished(path)
        with open(part, "wb") as f:
            f.write(data)
        os.replace(part, path)
    except OSError as e:
        sys.exit(f"error: {path}: cannot be written: {e.strerror}")


def prepare(args):
    make_folder(args.out, "train")
    with tempfile.TemporaryDirectory(prefix="austen_") as folder:
        package = args.deb or fetch(folder)
        try:
            done = subprocess.run(["dpkg", "-x", package, folder + "/x"], capture_output=True, text=True,
                                  errors="replace")
        except OSError as e:
            stop(f"{package} could not be unpacked: {e}")
        if done.returncode:
            why = printable((done.stderr.strip().splitlines() or ["dpkg gives no reason"])[0])
            sys.exit(f"error: {package}: no Debian package that can be unpacked ({why}); expected "
                     f"{PACKAGE}_1.0.0-1_all.deb, or train on a text of your own (data/README.md)")
        novels = novels_of(os.path.join(folder, "x", FOLDER), package)
    for name, variable, size, digest in NOVELS:
        verify(variable, "".join(line + "\n" for line in novels[variable]), size, digest)
        text = unwrap(novels[variable])
        write(f"{args.out}/train/{name}.txt", training_part(text, args.val))
        write(f"{args.out}/{name}.txt", text.encode())
        print(f"{args.out}/{name}.txt  {len(text.encode())} bytes")


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "austen"))
    parser.add_argument("--val", type=float, default=0.1, help="fraction that OUT/train/ leaves out")
    parser.add_argument("--deb", help="the package, where it is at hand already")
    args = parser.parse_args()
    if not 0 <= args.val < 1:
        sys.exit(f"error: --val={args.val}: expected at least 0 and less than 1")
    try:
        prepare(args)
    except OSError as e:
        stop(printable(e))


if __name__ == "__main__":
    main()

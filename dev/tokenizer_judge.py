#!/usr/bin/python3
"""Compares the ids of ./tokenize with those of Hugging Face's `tokenizers`, for every pre-tokenization.

    dev/tokenizer_judge.py [--mb=200] [--pattern=NAME ...] [--seed=1] [--tokenizer=FILE]

It needs PyPI's tokenizers (0.23). For each pattern ./tokenize train makes a vocabulary, which `tokenizers`
has to read; then both encode MB megabytes of text, made up of many scripts, code, digits, white space and
noise. Where a piece of text is not UTF-8, `tokenizers` splits it with U+FFFD for each such byte, and its
model takes the bytes; what lies between such bytes is normalized by itself (Qwen). The first difference is
shown. The last line is "N passed, N failed".
"""
from show_help import show_help

if __name__ == "__main__":
    show_help(__doc__)          # the packages may not be there

import argparse
import codecs
import concurrent.futures
import os
import random
import re
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

PATTERNS = ["gpt2", "llama3", "qwen2", "smollm", "o200k", "nanochat"]
PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
CHARACTER = {b: chr(b) for b in PRINTABLE}
CHARACTER.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in CHARACTER)})
PIECE = 20_000          # characters of a piece of text
RANGES = [(0x20, 0x7F)] * 8 + [
    (0x80, 0x250), (0x250, 0x370), (0x300, 0x370), (0x370, 0x600), (0x5D0, 0x700), (0x900, 0xE00),
    (0xE00, 0x1200), (0x1C80, 0x1CC0), (0x1D00, 0x2000), (0x2000, 0x2070), (0x2150, 0x2190), (0x3000, 0x3100),
    (0x4E00, 0x5000), (0xAC00, 0xAD00), (0x1100, 0x1200), (0xA640, 0xA800), (0xF900, 0xFB50),
    (0xFF00, 0xFFF0), (0x10400, 0x10500), (0x11000, 0x11100), (0x1D400, 0x1D800), (0x1F600, 0x1F650),
    (0x0, 0xD800), (0xE000, 0x110000),
]
MIXED = (
    "a b c s t d m ll ve re S LL Ab aB ABC Abc aBC ' 's 'S 'll 'LL 'Re 'x '' \u017f '\u017f . , ! !! / // "
    "( ) -- 1 12 123 1234 \xbd \u0661\u0662 \u0301 \u0308\u0301 e\u0301 \xe9 \u01c5 \u02b0 "
    "\u4f60 \u597d\u4e16 "
    "\u0939\u093f \u0627\u064e \u30ab\u3099 \u1100\u1161\u11a8 \U0001f600 \u200d \u2167 \x00 \x7f \ufffd"
).split(" ")
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", "    ", "\xa0", "\u3000",
          "\x85", "\x0b\x0c", "\u2028", "\n    ", " \n", "\n \n"]
CODE = (
    "for (int i = 0; i < n; i++) {\n    total += values[i] * 0x%x;\n}\n// a comment/* here */\n"
    "def parse_HTTPResponse(self, rawBytes=None):\n\treturn {'k': \"v\", 1: [2, %d]}\n\n\n"
    "https://example.org/a/b?c=%d&d=/e/\nSELECT * FROM t WHERE x >= %d;\r\n\r\n"
)


def words(rng):
    """Words of letters of real scripts, with case and marks."""
    out = []
    for _ in range(300):
        low, high = rng.choice([(97, 123)] * 5 + RANGES[8:20])
        word = "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 9)))
        out.append(rng.choice([word, word, word.capitalize(), word.upper()]))
        out.append(rng.choice([" "] * 12 + [", ", ". ", "'s ", "\u2019s ", "\n", "-", "'", " \"", ": "]))
    return "".join(out)


def piece(rng):
    kind = rng.randrange(8)
    if kind < 2:
        text = words(rng)
    elif kind == 2:
        numbers = lambda: tuple(rng.randrange(10 ** rng.randrange(1, 9)) for _ in range(4))
        text = "".join(CODE % numbers() for _ in range(4))
    elif kind == 3:
        text = " ".join(str(rng.randrange(10 ** rng.randrange(1, 20))) for _ in range(150))
    elif kind == 4:
        text = "".join(rng.choice(MIXED) + rng.choice(["", "", rng.choice(SPACES)]) for _ in range(600))
    elif kind == 5:
        text = "".join(chr(rng.randrange(*rng.choice(RANGES))) for _ in range(800))
    elif kind == 6:
        text = "".join(rng.choice(SPACES) + rng.choice(MIXED) * rng.randrange(3) for _ in range(500))
    else:
        letters = [chr(rng.randrange(*rng.choice(RANGES[8:]))) for _ in range(6)] + list("aA'1 /\n.s")
        text = "".join(rng.choice(letters) for _ in range(700))
    return "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000)


def pieces(seed, size):
    """Texts as bytes; 1 in 16 is not UTF-8."""
    rng, made = random.Random(seed), 0
    pool = [piece(rng) for _ in range(4000)]
    while made < size:
        text = piece(rng)
        while len(text) < PIECE:
            some = rng.choice(pool)
            at = rng.randrange(len(some) + 1)
            text += some[at : at + rng.randrange(1, 2000)]
        data = text.encode()
        if rng.randrange(16) == 0:
            data = bytearray(data[:3000])
            for _ in range(200):
                data.insert(rng.randrange(len(data)), rng.randrange(0x80, 0x100))
            data = bytes(data)
        made += len(data)
        yield data


def each_byte(error):
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("each_byte", each_byte)


def normalized(judge, data):
    """Each run of UTF-8 in a text as the judge's normalizer has it; other bytes as they are."""
    if not judge.normalizer:
        return data
    out, text = bytearray(), data.decode(errors="surrogateescape")
    for run in re.findall("[\udc80-\udcff]+|[^\udc80-\udcff]+", text):
        kept = "\udc80" <= run[0] <= "\udcff"
        out += (run if kept else judge.normalizer.normalize_str(run)).encode(errors="surrogateescape")
    return bytes(out)


def ids_of_invalid(judge, data):
    """Splits a text with U+FFFD for each byte outside UTF-8, then encodes the original bytes."""
    data = normalized(judge, data)
    split = Tokenizer.from_str(judge.to_str()).pre_tokenizer
    original, at, ids = [], 0, []
    text = data.decode(errors="each_byte")
    for c in text:                      # the bytes of each character; a real U+FFFD has three
        n = len(c.encode())
        if c == "\ufffd" and data[at : at + 3] != b"\xef\xbf\xbd":
            n = 1
        original.append(data[at : at + n])
        at += n
    for _, (begin, end) in split.pre_tokenize_str(text):
        word = b"".join(original[begin:end])
        ids += [t.id for t in judge.model.tokenize("".join(CHARACTER[b] for b in word))]
    return ids


def ids_of(judge, data):
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ids_of_invalid(judge, data)
    return judge.encode(text, add_special_tokens=False).ids


def show(data, ours, theirs, judge):
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    tokens = lambda ids: [judge.id_to_token(i) for i in ids[max(same - 3, 0) : same + 5]]
    print(f"FAIL  id {same} of a text of {len(data)} bytes\n      ours   {tokens(ours)}\n"
          f"      theirs {tokens(theirs)}")


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def ids_of_ours(tokenizer, data, folder):
    path = os.path.join(folder, "piece.txt")
    with open(path, "wb") as f:
        f.write(data)
    command = ["./tokenize", "ids", f"--tokenizer={tokenizer}", path]
    out = subprocess.run(command, check=True, capture_output=True)
    return [int(i) for i in out.stdout.split()]


def judge_file(path, seed, size, folder):
    """Compares a tokenizer.json on `size` bytes; returns (equal ids, number of bytes)."""
    judge = Tokenizer.from_file(path)
    judge.encode_special_tokens = True          # special tokens' text is ordinary text here
    batch, done = [], 0

    def compare():
        theirs = [ids_of(judge, data) for data in batch]
        joined = b"".join(batch)
        ours = ids_of_ours(path, joined, folder)
        if ours == [i for ids in theirs for i in ids]:
            return True
        for data, ids in zip(batch, theirs):        # a text by itself shows the difference
            found = ids_of_ours(path, data, folder)
            if found != ids:
                show(data, found, ids, judge)
                return False
        print("FAIL  the pieces agree, the joined text does not")
        return False

    # A piece ends in a letter and begins with "\n\n": a split of every pattern lies between.
    for data in pieces(seed, size):
        batch.append(b"\n\nx " + data + b" x")
        done += len(batch[-1])
        if len(batch) == 64:
            if not compare():
                return False, done
            batch.clear()
    return (not batch) or compare(), done


def judge_pattern(job):
    """Trains a vocabulary, or takes the given vocabulary, and judges the ids."""
    name, folder, training, options = job
    own = os.path.join(folder, name)
    os.mkdir(own)
    path = options.tokenizer or os.path.join(own, "tokenizer.json")
    if not options.tokenizer:
        run("./tokenize", "train", "--vocab=20000", f"--pattern={name}", f"--out={path}", training)
    return judge_file(path, options.seed, options.mb * 1e6, own)


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--pattern", action="append", choices=PATTERNS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer", help="a tokenizer.json to judge instead")
    options = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        training = os.path.join(folder, "training.txt")
        with open(training, "wb") as f:
            for data in pieces(options.seed + 1000, 4_000_000):
                f.write(data)
        names = options.pattern or PATTERNS
        jobs = [(name, folder, training, options) for name in names]
        with concurrent.futures.ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for name, (equal, size) in zip(names, pool.map(judge_pattern, jobs)):
                print(f"{'ok   ' if equal else 'FAIL '} {name}: {size / 1e6:.1f} MB", flush=True)
                passed += equal
                failed += not equal
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

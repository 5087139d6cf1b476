#!/usr/bin/python3
"""What test/io/unicode/patterns.cpp compares with, from PyPI's tokenizers. Rewrites
test/data/tokenizer/patterns.*:

patterns.txt    text that pre-tokenizers get wrong, of dev/tokenizer_judge.py
patterns.json   by pattern: bytes of each match, and the ids by the vocabulary of
                hf.json; for llama3, which ignores merges, without the last 300 merges
added.json      texts with added tokens of all flags: tokens, and the ids without and
                with control tokens, by the vocabulary of hf.json
"""
from show_help import show_help

if __name__ == "__main__":
    show_help(__doc__)          # the packages may not be there

import json
import os
import random

from tokenizers import Regex, Tokenizer, normalizers
from tokenizer_judge import MIXED, SPACES, piece
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test", "data", "tokenizer")
WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
REST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA = WORD + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + REST
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{WORD}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{WORD}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + REST)

NANOCHAT = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*"
            r"|\s*[\r\n]|\s+(?!\S)|\s+")


def split(pattern):
    return Sequence([Split(Regex(pattern), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])


GPT2 = ByteLevel(add_prefix_space=False)
PATTERNS = {
    "gpt2": GPT2,
    "llama3": split(LLAMA),
    "qwen2": split(LLAMA.replace("{1,3}", "")),
    "smollm": Sequence([Digits(individual_digits=True), GPT2]),
    "o200k": split(O200K),
    "nanochat": split(NANOCHAT),
}


def main():
    rng = random.Random(5)
    text = "".join(rng.choice(MIXED) + rng.choice(["", "", rng.choice(SPACES)]) for _ in range(500))
    text += "".join(piece(rng)[:150] for _ in range(9))
    open(f"{OUT}/patterns.txt", "w", newline="").write(text)
    result = {}
    for name, pre_tokenizer in PATTERNS.items():
        file = json.load(open(f"{OUT}/hf.json"))
        if name == "llama3":
            file["model"]["ignore_merges"] = True
            del file["model"]["merges"][-300:]
        judge = Tokenizer.from_str(json.dumps(file))
        judge.encode_special_tokens = True
        judge.pre_tokenizer = pre_tokenizer
        normal = text
        if name == "qwen2":
            judge.normalizer = normalizers.NFC()
            normal = judge.normalizer.normalize_str(text)
        ends = [len(normal[:end].encode()) for _, (_, end) in pre_tokenizer.pre_tokenize_str(normal)]
        lengths = [b - a for a, b in zip([0] + ends, ends)]
        result[name] = {"lengths": lengths, "ids": judge.encode(text).ids}
    open(f"{OUT}/patterns.json", "w").write(json.dumps(result, separators=(",", ":")) + "\n")
    write_added(random.Random(6))


NAMES = ["  ", "    ", "<think>", "</think>", "<th", "zq", "zqj", "qjx", " x", "\n\n", "\u00e9q",
         "<|im_start|>", "<|im  end|>", "K;", "\t", "<m>"]
AROUND = [*"zqj1x_-<K", " ", " ", "  ", "\n", "\u00a0", "\u3000",
          "e\u0301q", "\u0301", "\u212a;", "|>", "the", "ok"]


def write_added(rng):
    cases = []
    while len(cases) < 24:
        case = len(cases)
        file = json.load(open(f"{OUT}/hf.json"))
        flags = ("single_word", "lstrip", "rstrip", "normalized")
        added = [{"id": 1500 + i, "content": name, **{flag: rng.random() < 0.3 for flag in flags},
                  "special": rng.random() < 0.3} for i, name in enumerate(rng.sample(NAMES, 7))]
        file["added_tokens"] += added
        nfc, prefix = case % 2 == 0, case % 3 == 0
        file["normalizer"] = {"type": "NFC"} if nfc else None
        file["pre_tokenizer"]["add_prefix_space"] = prefix
        judge = Tokenizer.from_str(json.dumps(file))
        text = "".join(rng.choice(NAMES + AROUND) for _ in range(60))
        ids = []
        try:
            for judge.encode_special_tokens in (True, False):
                ids.append(judge.encode(text, add_special_tokens=False).ids)
        except BaseException:       # tokenizers 0.23 panics where rstrip took the beginning of a name
            continue
        cases.append({"added": added, "nfc": nfc, "prefix": prefix, "text": text, "ids": ids[0],
                      "all": ids[1]})
    lines = (json.dumps(case, separators=(",", ":")) for case in cases)
    open(f"{OUT}/added.json", "w").write("[" + ",\n".join(lines) + "]\n")


main()

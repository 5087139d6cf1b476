#!/usr/bin/python3
"""What the tokenizer's tests compare with, from the judges: PyPI's tokenizers and tiktoken. Usage:

    dev/tokenizer_fixtures.py PROSE.txt     any English text of 30 kB or more; rewrites test/data/tokenizer/

corpus.txt      prose, runs of one character, numbers and other scripts: many ties
hf.json         Hugging Face's BpeTrainer on it, end-of-text added as the last id
hf.tiktoken     the same vocabulary as ranks;  gpt2/vocab.bpe, gpt2/encoder.json: as GPT-2's files
hard.txt        text that pre-tokenizers get wrong;  hard.ids: tiktoken's ids of it, by hf.tiktoken
"""
from show_help import show_help

if __name__ == "__main__":
    show_help(__doc__)          # the packages may not be there

import base64, json, os, random, sys
import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test", "data", "tokenizer")
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
HARD = (
    "Hello world  \n\n  x\t1234567 don't WE'LL it's 'tis x's't 'll!'re '' 's 'v  'd\xe9 \xe9\xe8 na"
    "\xefve \u4f60\u597d\u4e16\u754c\u3002\u4f60\u597d \u0627\u0644\u0639\u0631\u0628\u064a\u0629 "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \xbd "
    "\u2167 \u0661\u0662\u0663 a\xa0b\u2003c\u3000d\u200be\u0301 \xa0\xa0x \u3000\u3000y\u2028 z "
    "\x85\x85q \x00\x01\x7f <|endoftext|> <|endo \r\n\r \x0b\x0c end   "
)


def corpus(prose):
    rng = random.Random(1)
    text = prose[:24000]
    for c in "=-*~ab":
        text += "\n" + " ".join(c * rng.randrange(1, 40) for _ in range(60))
    text += "\n" + " ".join(
        "".join(rng.choice("xyz") for _ in range(rng.randrange(1, 9))) for _ in range(600)
    )
    return (
        text + "\n" + HARD * 3 + "".join(f"{rng.randrange(10 ** rng.randrange(1, 8))} " for _ in range(200))
    )


def main():
    os.makedirs(OUT + "/gpt2", exist_ok=True)
    save = lambda name, text: open(f"{OUT}/{name}", "w", newline="").write(text)
    text = corpus(open(sys.argv[1], newline="").read())
    save("corpus.txt", text)

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(
        [text],
        trainers.BpeTrainer(
            vocab_size=1499, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        ),
    )
    t.add_special_tokens(["<|endoftext|>"])
    assert t.token_to_id("<|endoftext|>") == 1499
    save("hf.json", t.to_str() + "\n")

    model = json.loads(t.to_str())["model"]
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    save("gpt2/vocab.bpe", "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    save("gpt2/encoder.json", json.dumps({**model["vocab"], "<|endoftext|>": 1499}))

    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of = {chr(c): c for c in printable}
    byte_of.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)})
    ranks = {bytes(byte_of[c] for c in token): id for token, id in model["vocab"].items()}
    save(
        "hf.tiktoken",
        "".join(
            f"{base64.b64encode(k).decode()} {v}\n" for k, v in sorted(ranks.items(), key=lambda e: e[1])
        ),
    )

    rng = random.Random(2)
    planes = [(0x20, 0x7F)] * 6 + [
        (0x80, 0x250),
        (0x370, 0x600),
        (0x900, 0xE00),
        (0x2000, 0x2070),
        (0x3000, 0x3100),
        (0x4E00, 0x5000),
        (0x10000, 0x1FFFF),
    ]
    hard = (
        HARD
        + "".join(chr(rng.randrange(*rng.choice(planes))) for _ in range(3000))
        + "".join(rng.choice("ab1'sl .\n\t\u00a0\u3000\u00e9") for _ in range(3000))
        + HARD
    )
    save("hard.txt", hard)
    e = tiktoken.Encoding("hf", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    ids = e.encode_ordinary(hard)
    save("hard.ids", "".join(f"{i}\n" for i in ids))


main()

#!/usr/bin/python3
"""Scores of a model on task files by transformers, written from the rules: judges ./train_gpt --evaluate.

    dev/score_judge.py --model=FOLDER --out=ANSWERS [--limit=N] [--threads=1] TASK.jsonl ...
    dev/score_judge.py --compare ANSWERS RUN/answers [--tolerance=1e-3]

FOLDER is a model in Hugging Face's form, with its tokenizer.json (--export=hf: writes one).
ANSWERS/TASK.jsonl gets a line for each document, as run.dir/answers has it; lines that are there are kept. It
computes in fp32, a document at a time: the tokens that its continuations have in common at the start run
once, the rest follows as a batch. It needs PyPI's torch, transformers and tokenizers. --compare prints the
largest difference of each task of ANSWERS, and the first document that differs; the last line is
"N passed, N failed".

Rules (data/README.md): context and continuation are encoded together. White space that ends the context
belongs to the continuation, whose tokens are those after as many as the context alone has. An empty context
is end-of-text. What is too long for the model loses tokens on its left. Ties go to the first.
"""
import argparse
import itertools
import json
import os
import sys
import warnings


def characters(text):
    """The length without the space after the context, as lm-eval counts."""
    return len(text.removeprefix(" "))


# A continuation's figure from its sum of log probabilities, its text, and its number of tokens.
RULES = {
    "sum": lambda total, text, tokens: total,
    "characters": lambda total, text, tokens: total / max(characters(text), 1),
    "bytes": lambda total, text, tokens: total / max(len(text.removeprefix(" ").encode()), 1),
    "tokens": lambda total, text, tokens: total / max(tokens, 1),
}


class Model:
    def __init__(self, folder, threads):
        import tokenizers
        import torch
        import transformers

        torch.set_num_threads(threads)
        warnings.simplefilter("ignore", FutureWarning)      # transformers renames arguments
        transformers.utils.logging.disable_progress_bar()
        self.torch = torch
        kind = transformers.AutoModelForCausalLM
        self.net = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        self.tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.room = self.net.config.max_position_embeddings
        end = self.tokenizer.token_to_id("<|endoftext|>")
        self.end = self.net.config.eos_token_id if end is None else end

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def split(self, context, continuation):
        """Ids of the context and of the continuation."""
        left = self.encode(context.rstrip())
        if not left:
            return [self.end], self.encode(context + continuation)
        return left, self.encode(context + continuation)[len(left):]

    def logits(self, ids, cache, keep):
        """(rows, keep, vocabulary) after the last `keep` ids of each row; the ids follow the cache."""
        with self.torch.no_grad():
            return self.net(self.torch.tensor(ids), past_key_values=cache, use_cache=True,
                            logits_to_keep=keep).logits

    def score(self, pairs):
        """(sum of log p, tokens, whether each token is the likeliest) of each (context, continuation)."""
        import transformers

        split = [self.split(*pair) for pair in pairs]
        rights = [right for _, right in split]
        if max(map(len, rights)) > self.room:
            raise SystemExit(f"error: a continuation of more tokens than the model takes, {self.room}")
        rows = [(left + right)[-(self.room + 1):][:-1] for left, right in split]
        same = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*rows))
        # each row keeps the ids before the tokens of its continuation
        most = min(len(row) - max(len(right), 1) for row, right in zip(rows, rights))
        shared = min(len(list(same)), most) if len(rows) > 1 else 0
        cache = transformers.DynamicCache(config=self.net.config)
        if shared > 0:
            self.logits([rows[0][:shared]], cache, 1)
            cache.batch_repeat_interleave(len(rows))
        rest = [row[shared:] for row in rows]
        longest = max(map(len, rest))       # zeros behind a row change nothing before them
        starts = [len(row) - len(right) for row, right in zip(rest, rights)]
        keep = longest - min(starts)
        logits = self.logits([row + [0] * (longest - len(row)) for row in rest], cache, max(keep, 1))
        found = []
        for right, start, row in zip(rights, starts, logits):
            at = start - (longest - keep)
            logp = row[at : at + len(right)].double().log_softmax(-1)
            want = self.torch.tensor(right, dtype=self.torch.long)
            total = float(logp.gather(1, want[:, None]).sum())
            found.append((total, len(right), bool((logp.argmax(-1) == want).all())))
        return found


def documents(path, limit):
    """(head, documents) of a task file; a document is its lines."""
    with open(path, encoding="utf-8") as f:
        head, rows = json.loads(f.readline()), (json.loads(line) for line in f if line.strip())
        groups = itertools.groupby(rows, key=lambda row: row["doc_id"])
        kept = groups if limit == 0 else itertools.islice(groups, limit)
        return head, [list(group) for _, group in kept]


def first_best(figures):
    return max(range(len(figures)), key=lambda i: (figures[i], -i))


def answer(head, rows, scored):
    """A line of answers/TASK.jsonl. By the rule greedy a wrong continuation is not chosen: -1."""
    line = {"doc_id": rows[0]["doc_id"], "label": rows[0]["label"]}
    for key, rule in (("chosen", head["accuracy"]), ("chosen_norm", head.get("accuracy_norm"))):
        if rule == "greedy":
            line[key] = next((i for i, (_, _, greedy) in enumerate(scored) if greedy), -1)
        elif rule:
            line[key] = first_best([RULES[rule](total, row["continuation"], tokens)
                                    for row, (total, tokens, _) in zip(rows, scored)])
    totals, tokens, greedy = map(list, zip(*scored))
    return {**line, "logprob": totals, "tokens": tokens, "greedy": greedy}


def judge(model, path, out, limit):
    head, docs = documents(path, limit)
    path = f"{out}/{head['task']}.jsonl"
    have = read_answers(path) if os.path.exists(path) else {}
    right = {"chosen": 0, "chosen_norm": 0}
    with open(path, "w") as f:
        for rows in docs:
            line = have.get(rows[0]["doc_id"])
            if line is None:
                pairs = [(row["context"], row["continuation"]) for row in rows]
                line = answer(head, rows, model.score(pairs))
            print(json.dumps(line), file=f, flush=True)
            for key in right:
                right[key] += line.get(key) == line["label"]
    by_norm = f", {right['chosen_norm']} by {head['accuracy_norm']}" if "accuracy_norm" in head else ""
    by = f"right {right['chosen']} by {head['accuracy']}{by_norm}"
    print(f"{head['task']}  {len(docs)} documents, {by}", flush=True)


def read_answers(path):
    with open(path) as f:
        whole = (line for line in f if line.endswith("\n"))
        return {row["doc_id"]: row for row in map(json.loads, whole)}


def difference(a, b):
    """(largest difference of log probabilities, what else differs) of two lines."""
    keys = [key for key in ("label", "tokens", "greedy", "chosen", "chosen_norm") if a.get(key) != b.get(key)]
    if len(a["logprob"]) != len(b["logprob"]):
        return float("inf"), ["logprob", *keys]
    off = [abs(x - y) for x, y in zip(a["logprob"], b["logprob"])]
    return max(x if x == x else float("inf") for x in off), keys        # not a number is far from any


def compare(ours, theirs, tolerance):
    """Whether each task of `ours` has the same answers in `theirs`."""
    failed, names = 0, sorted(n for n in os.listdir(ours) if n.endswith(".jsonl"))
    for name in names:
        a, path = read_answers(f"{ours}/{name}"), f"{theirs}/{name}"
        b = read_answers(path) if os.path.exists(path) else {}
        found = {i: difference(a[i], b[i]) for i in a if i in b}
        wrong = [i for i, (off, keys) in found.items() if off > tolerance or keys]
        good = not wrong and a.keys() == b.keys() and a
        failed += not good
        largest = max((off for off, _ in found.values()), default=float("inf"))
        print(f"{'ok   ' if good else 'FAIL '} {name[:-6]}: {len(found)} documents of {len(a)} and {len(b)}, "
              f"log probabilities to {largest:.1e}, {len(wrong)} differ")
        if wrong:
            first = wrong[0]
            print(f"      {', '.join(found[first][1]) or 'logprob'}\n      {a[first]}\n      {b[first]}")
    print(f"{len(names) - failed} passed, {failed} failed")
    return not failed and names


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--model", help="folder in Hugging Face's form")
    parser.add_argument("--out", help="folder for answers")
    parser.add_argument("--limit", type=int, default=0, help="documents of a task (0: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compare", nargs=2, metavar="FOLDER")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="of a log probability")
    parser.add_argument("tasks", nargs="*")
    args = parser.parse_args()
    if args.compare:
        sys.exit(0 if compare(*args.compare, args.tolerance) else 1)
    if not (args.model and args.out and args.tasks):
        parser.error("expected --model, --out and task files, or --compare")
    os.makedirs(args.out, exist_ok=True)
    model = Model(args.model, args.threads)
    for path in args.tasks:
        judge(model, path, args.out, args.limit)


if __name__ == "__main__":
    main()

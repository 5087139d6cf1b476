"""Small models trained here, and texts by this program and llama.cpp, for the judges of exports."""
import glob
import json
import os
import sys

from judging import run, write_json

NEW = 64
SMALL = {
    "run": {"precision": "fp32", "seed": 3}, "data": {"shuffle": True},
    "model": {"layers": 3, "heads": 4, "channels": 96, "context": 128, "kv_heads": 2, "head_channels": 32,
              "ffn_channels": 192, "norm": "rmsnorm", "norm_eps": 1e-6, "bias": False, "position": "rope",
              "rope_theta": 1e4, "activation": "swiglu"},
    "train": {"steps": 600, "batch_tokens": 1024, "micro_batch": 8},
    "optimizer": {"lr": 4e-3, "warmup": 20}, "eval": {"every": 0}, "sample": {"every": 0},
    "checkpoint": {"every": 600},
}


def ids_of(tokenizer, text, folder):
    path = os.path.join(folder, "text.txt")
    with open(path, "wb") as file:
        file.write(text.encode())
    return [int(i) for i in run("./tokenize", "ids", f"--tokenizer={tokenizer}", path).split()]


def greedy(config, prompt, *settings, chat=False):
    text = run("./train_gpt", config, *settings, "--run.precision=fp32", f"--sample.tokens={NEW}",
               "--sample.temperature=0", f"--generate={prompt}", *(["--chat"] if chat else []))
    return text[0 if chat else len(prompt):].removesuffix("\n")


def llama_cpp(path, prompts):
    return json.loads(run(sys.executable, "dev/llama_cpp.py", path, str(NEW), *prompts).splitlines()[-1])


def pages_of(folder):
    """This repository's pages as a text file."""
    pages = sorted(glob.glob("**/*.md", recursive=True) + glob.glob("llmc/model/*.h"))
    pages = [p for p in pages if not p.startswith("build/")]
    text = os.path.join(folder, "pages.txt")
    with open(text, "w", encoding="utf-8") as file:
        for page in pages:
            with open(page, encoding="utf-8") as f:
                file.write(f.read())
    return text


def add_bos(path):
    """The tokenizer.json then begins each text with BOS, as Llama 3's does."""
    bos = "<|begin_of_text|>"
    with open(path, encoding="utf-8") as file:
        tokenizer = json.load(file)
    number = 1 + max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])])
    tokenizer["added_tokens"].append({"id": number, "content": bos, "special": True, "single_word": False,
                                      "lstrip": False, "rstrip": False, "normalized": False})
    special = {"SpecialToken": {"id": bos, "type_id": 0}}
    sequences = [{"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB")]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [special, sequences[0]], "pair": [special, *sequences],
        "special_tokens": {bos: {"id": bos, "ids": [number], "tokens": [bos]}}}
    write_json(path, tokenizer)


def train_small(folder, name, pattern, model, bos=False):
    """Trains a model of three layers on this repository's pages; returns its config."""
    home = os.path.join(folder, name)
    os.makedirs(home, exist_ok=True)
    text, tokenizer = pages_of(folder), os.path.join(home, "tokenizer.json")
    run("./tokenize", "train", "--vocab=512", f"--pattern={pattern}", f"--out={tokenizer}", text)
    if bos:
        add_bos(tokenizer)
    run("./tokenize", "encode", f"--tokenizer={tokenizer}", "--val=0.05", f"--out={home}/pages", text)
    config = json.loads(json.dumps(SMALL))
    config["model"] |= model
    config["run"]["dir"] = os.path.join(home, "run")
    config["data"] |= {"train": f"{home}/pages_train_*.bin", "val": f"{home}/pages_val_*.bin",
                       "tokenizer": tokenizer}
    path = write_json(os.path.join(home, "config.json"), config)
    run("rm", "-rf", config["run"]["dir"])
    run("./train_gpt", path)
    return path


def check_texts(count, what, own, theirs, detail=""):
    same = all(a == b and a for a, b in zip(own, theirs, strict=True))
    shown = "" if same else f": {own} against {theirs}"
    count.check(what, same, f"{len(own)} texts of {NEW} tokens{detail}{shown}")


def decoded(tokenizer, ids, folder):
    """The text of ids, as far as their end-of-text, by ./tokenize decode."""
    import numpy as np
    shard = os.path.join(folder, "said.bin")
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240520, 1, len(ids)
    with open(shard, "wb") as file:
        file.write(header.tobytes() + np.array(ids, dtype=np.uint16).tobytes())
    return run("./tokenize", "decode", f"--tokenizer={tokenizer}", shard)

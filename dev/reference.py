#!/usr/bin/python3
"""A GPT-2 in PyTorch, to compare ours with. Needs torch (apt-get install python3-torch, or PyPI's).

  dev/reference.py              writes test/data/gpt_reference.safetensors, which test/test_gpt reads
  dev/reference.py --check      computes it again and compares with the file
  dev/reference.py --checkpoint=runs/X/step_N --tokens=1,2,3
  dev/reference.py --export=DIR --tokens=1,2,3       DIR: of ./train_gpt --export=hf:DIR
                                loss of every next token, and logits after the last one, as JSON;
                                of context + 1 tokens the last is a target only

The fixture holds what float64 computes: logits, losses, gradients and ten steps of AdamW; and how far
the same computation is off when all that a run in bf16 or fp32 stores is rounded to that format at random
(error.bf16.grad.wte: largest and root mean square of the difference, for each part of a fused matrix). That
is the unit of the tolerances in test/model/test_gpt.cpp. fp8.*: by run.products=fp8's products.
"""
from show_help import show_help

if __name__ == "__main__":
    show_help(__doc__)          # the packages may not be there
import argparse
import json
import math
import os
import random
import struct
import sys
from array import array

import torch
import torch.nn.functional as F

from reference_fp8 import fp8_linear

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../test/data/gpt_reference.safetensors")
DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "I32": torch.int32}
BITS = {torch.bfloat16: 8, torch.float32: 24}      # of the significand
# V % 8 = 2, odd B and T, a context longer than T: its last positions have no gradient
DIMS = {"layers": 2, "heads": 3, "channels": 48, "context": 21, "vocab": 66, "batch": 3, "tokens": 19,
        "steps": 10}
# the clip is below the norms of the first steps and above the norms of the last steps
HYPER = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 2.5}
LR = [3e-3 * min((i + 1) / 4, (DIMS["steps"] - i) / 6) for i in range(DIMS["steps"])]


# ---------------------------------------------------------------------------------------------------------
# the model

def rounded(x, dtype):
    """To a value of dtype, up or down at random: to the nearest after adding half a unit at most."""
    unit = torch.ldexp((x != 0).to(x.dtype), torch.frexp(x.detach()).exponent - BITS[dtype])
    return (x + (torch.rand_like(x) - 0.5) * unit).to(dtype).to(x.dtype)


class Stored(torch.autograd.Function):
    """x rounded to a buffer of dtype, and the gradient likewise."""
    @staticmethod
    def forward(ctx, x, dtype):
        ctx.dtype = dtype
        return rounded(x, dtype)

    @staticmethod
    def backward(ctx, dx):
        return rounded(dx, ctx.dtype), None


class StoredAttention(torch.autograd.Function):
    """Blocked attention: backward uses the stored output, where softmax's backward uses the exact output."""
    @staticmethod
    def forward(ctx, q, k, v, future, dtype):
        weights = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(future, -math.inf).softmax(-1)
        out = rounded(weights @ v, dtype)
        ctx.save_for_backward(q, k, v, weights, out)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, weights, out = ctx.saved_tensors
        dscores = weights * (dout @ v.transpose(2, 3) - (dout * out).sum(-1, keepdim=True))
        dscores /= math.sqrt(q.shape[3])
        return dscores @ k, dscores.transpose(2, 3) @ q, weights.transpose(2, 3) @ dout, None, None


def attention(q, k, v, dtype):
    future = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    if dtype:
        return StoredAttention.apply(q, k, v, future, dtype)
    return (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(future, -math.inf).softmax(-1) @ v


def forward(p, tokens, layers, heads, dtype=None, linear=F.linear):
    """Logits (B, T, V). Matrices are (out, in); qkv is packed [Q|K|V]. linear: of blocks."""
    B, T = tokens.shape
    C = p["wte"].shape[1]
    s = lambda x: Stored.apply(x, dtype) if dtype else x
    norm = lambda x, name: s(F.layer_norm(x, (C,), p[name + "w"], p[name + "b"], eps=1e-5))
    x = s(p["wte"][tokens] + p["wpe"][:T])
    for i in range(layers):
        h = f"h.{i}."
        qkv = s(linear(norm(x, h + "ln1"), p[h + "qkvw"], p[h + "qkvb"]))
        q, k, v = (t.view(B, T, heads, C // heads).transpose(1, 2) for t in qkv.split(C, dim=2))
        y = s(attention(q, k, v, dtype).transpose(1, 2).reshape(B, T, C))
        x = s(x + (s(linear(y, p[h + "attprojw"])) + p[h + "attprojb"]))
        pre = s(linear(norm(x, h + "ln2"), p[h + "fcw"], p[h + "fcb"]))
        act = s(F.gelu(pre, approximate="tanh"))
        x = s(x + (s(linear(act, p[h + "fcprojw"])) + p[h + "fcprojb"]))
    return s(F.linear(norm(x, "lnf"), p["wte"]))


def shapes(layers, channels, context, vocab):
    C = channels
    block = {"ln1w": (C,), "ln1b": (C,), "qkvw": (3 * C, C), "qkvb": (3 * C,),
             "attprojw": (C, C), "attprojb": (C,), "ln2w": (C,), "ln2b": (C,),
             "fcw": (4 * C, C), "fcb": (4 * C,), "fcprojw": (C, 4 * C), "fcprojb": (C,)}
    return {"wte": (vocab, C), "wpe": (context, C),
            **{f"h.{i}.{k}": v for i in range(layers) for k, v in block.items()}, "lnfw": (C,), "lnfb": (C,)}


def initial(rng):
    """Random tensors, so no gradient is trivial; bf16 holds the values exactly."""
    p = {}
    for name, shape in shapes(*(DIMS[k] for k in ("layers", "channels", "context", "vocab"))).items():
        std = 0.2 if len(shape) == 1 else 1 / math.sqrt(shape[1])
        mean = 1.0 if name.endswith(("ln1w", "ln2w", "lnfw")) else 0.0
        values = [rng.gauss(mean, std) for _ in range(math.prod(shape))]
        p[name] = torch.tensor(values, dtype=torch.float64).to(torch.bfloat16).float().view(shape)
    return p


# ---------------------------------------------------------------------------------------------------------
# ten steps

def train(init, tokens, dtype=None, linear=F.linear):
    """With a dtype: master weights are FP32, and the model uses master weights rounded to the dtype."""
    master = {k: v.double().requires_grad_() for k, v in init.items()}
    groups = [{"params": [v for v in master.values() if (v.dim() == 2) == matrix],
               "weight_decay": HYPER["weight_decay"] * matrix} for matrix in (True, False)]
    optimizer = torch.optim.AdamW(groups, betas=(HYPER["beta1"], HYPER["beta2"]), eps=HYPER["eps"])
    out = {"loss": [], "norm": []}
    for step, batch in enumerate(tokens.long()):
        p = {k: (v.detach().to(dtype or v.dtype).double()).requires_grad_() for k, v in master.items()}
        logits = forward(p, batch[:, :-1], DIMS["layers"], DIMS["heads"], dtype, linear)
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        norm = math.sqrt(sum(float(v.grad.square().sum()) for v in p.values()))
        if step == 0:
            out["logits"] = logits.detach()
            out.update({"grad." + k: v.grad.clone() for k, v in p.items()})
        for k, v in master.items():      # clip / norm exactly: clip_grad_norm_ adds 1e-6 to the norm
            v.grad = p[k].grad * min(1.0, HYPER["grad_clip"] / norm)
        for group in optimizer.param_groups:
            group["lr"] = LR[step]
        optimizer.step()
        for v in master.values() if dtype else ():
            v.data = rounded(v.data, torch.float32)
        out["loss"].append(loss.item())
        out["norm"].append(norm)
    out.update({"final." + k: v.detach() for k, v in master.items()})
    return {k: torch.as_tensor(v, dtype=torch.float64) for k, v in out.items()}


def errors(exact, init, tokens, dtype):
    """Per tensor (2, parts): largest and root mean square of its difference, over four runs."""
    torch.manual_seed(1)
    runs = [train(init, tokens, dtype) for _ in range(4)]
    difference = lambda k: torch.cat([(r[k] - exact[k]).view(3 if "qkv" in k else 1, -1) for r in runs], 1)
    numbers = lambda d: torch.stack([d.abs().amax(1), d.square().mean(1).sqrt()])
    return {k: numbers(difference(k)) for k in exact}


def fixture():
    rng = random.Random(1234)
    init = initial(rng)
    shape = (DIMS["steps"], DIMS["batch"], DIMS["tokens"] + 1)
    ids = [rng.randrange(DIMS["vocab"]) for _ in range(math.prod(shape))]
    tokens = torch.tensor(ids, dtype=torch.int32).view(shape)
    exact = train(init, tokens)
    out = {**exact, "lr": torch.tensor(LR, dtype=torch.float64)}
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        out.update({f"error.{name}.{k}": v for k, v in errors(exact, init, tokens, dtype).items()})
    fp8 = {"fp8." + k: v for k, v in train(init, tokens, linear=fp8_linear).items() if k in ("loss", "norm")}
    return {**out, **fp8, **{"init." + k: v for k, v in init.items()}, "tokens": tokens}


# ------ safetensors

def write(path, tensors, metadata):
    names = {t: d for d, t in DTYPES.items()}
    codes = {torch.float64: "d", torch.float32: "f", torch.int32: "i"}
    header, at = {"__metadata__": metadata}, 0
    for k, v in tensors.items():
        n = v.numel() * v.element_size()
        header[k] = {"dtype": names[v.dtype], "shape": list(v.shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for v in tensors.values():
            f.write(array(codes[v.dtype], v.flatten().tolist()).tobytes())


def read(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), bytearray(f.read())
    metadata = header.pop("__metadata__", {})
    part = lambda e: torch.frombuffer(data[slice(*e["data_offsets"])], dtype=DTYPES[e["dtype"]])
    return {k: part(e).view(e["shape"]) for k, e in header.items()}, metadata


def check(now, then):
    """Inputs have to be equal; results may differ as the order of sums does."""
    worst = 0.0
    assert list(now) == list(then), "other tensors: " + ", ".join(set(now) ^ set(then))
    for k, v in now.items():
        if k.startswith(("init.", "tokens", "lr")):
            assert torch.equal(v, then[k]), f"{k} differs"
        elif not k.startswith("error."):      # samples, which depend on the version of torch
            error = float((v - then[k]).abs().max() / then[k].abs().max())
            assert error <= 1e-10, f"{k}: relative error {error:.2e}"
            worst = max(worst, error)
    print(f"{len(now)} tensors agree, largest relative error {worst:.1e}")
    return 0


def of_checkpoint(folder):
    """Weights and shape of a checkpoint, whatever mesh wrote it."""
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    pieces = manifest["tensors"]
    part = "weights" if any(p["part"] == "weights" for p in pieces) else "master"    # fp32: masters alone
    files, whole = {}, {}
    for piece in pieces:
        if piece["part"] != part:
            continue
        name, dtype = piece["tensor"], DTYPES[piece["dtype"]]
        if piece["file"] not in files:
            with open(os.path.join(folder, piece["file"]), "rb") as f:
                files[piece["file"]] = bytearray(f.read())
        whole.setdefault(name, torch.full(piece["shape"], math.nan, dtype=torch.float64))
        values = torch.frombuffer(files[piece["file"]], dtype=dtype, offset=piece["at"],
                                  count=math.prod(piece["extent"]))
        box = tuple(slice(a, a + n) for a, n in zip(piece["start"], piece["extent"]))
        whole[name][box] = values.view(piece["extent"]).double()
    model = manifest["config"]["model"]
    return whole, model["layers"], model["heads"], model["context"]


def of_hugging_face(folder):
    """Names and transposed matrices (Conv1D) as transformers' modeling_gpt2.py has them."""
    stored, _ = read(os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    names = {"ln_1": "ln1", "attn.c_attn": "qkv", "attn.c_proj": "attproj", "ln_2": "ln2", "mlp.c_fc": "fc",
             "mlp.c_proj": "fcproj", "ln_f": "lnf", "wte": "", "wpe": ""}
    p = {}
    for name, v in stored.items():
        module, kind = name.removeprefix("transformer.").rsplit(".", 1)
        block = module.split(".", 2)[:2] if module.startswith("h.") else []
        module = module.split(".", 2)[2] if block else module
        own = names[module] + kind[0] if names[module] else module
        conv = block and v.dim() == 2
        p[".".join(block + [own])] = (v.t().contiguous() if conv else v).double()
    return p, config["n_layer"], config["n_head"], config["n_positions"]


def judge(model, tokens):
    p, layers, heads, context = model
    if not 1 <= len(tokens) <= context + 1:
        sys.exit(f"{len(tokens)} tokens, expected 1 to {context + 1}")
    ids = torch.tensor([tokens])
    logits = forward(p, ids[:, :context], layers, heads)[0]
    losses = F.cross_entropy(logits[:len(tokens) - 1], ids[0, 1:], reduction="none").tolist()
    mean = sum(losses) / len(losses) if losses else None
    print(json.dumps({"loss": mean, "losses": losses, "logits": logits[-1].tolist()}))
    return 0


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--check", action="store_true")
    a.add_argument("--checkpoint")
    a.add_argument("--export")
    a.add_argument("--tokens", default="", help="ids, apart by commas")
    args = a.parse_args()
    if args.checkpoint or args.export:
        model = of_checkpoint(args.checkpoint) if args.checkpoint else of_hugging_face(args.export)
        return judge(model, [int(t) for t in args.tokens.split(",") if t])
    tensors = fixture()
    if args.check:
        return check(tensors, read(PATH)[0])
    # 8-byte elements first, to align every tensor
    tensors = dict(sorted(tensors.items(), key=lambda kv: -kv[1].element_size()))
    write(PATH, tensors, {k: repr(v) for k, v in {**DIMS, **HYPER}.items()})
    print(f"{PATH}: {os.path.getsize(PATH)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

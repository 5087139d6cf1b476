#!/usr/bin/python3
"""Models of every kind in PyTorch, each by the settings that ./train_gpt reads. Needs torch.

  dev/reference_kinds.py            writes test/data/kinds_reference.safetensors, which
                                    test/model/kinds_pytorch.cpp reads
  dev/reference_kinds.py --check    computes it again and compares with the file

float64 throughout. The file holds for each kind, with the config as metadata: the initial weights, the
tokens, the learning rates, the first step's logits (before a softcap) and gradients, every step's loss and
norm, and the last weights.
"""
from show_help import show_help

if __name__ == "__main__":
    show_help(__doc__)          # the packages may not be there

import json
import math
import os
import random
import sys

import torch
import torch.nn.functional as F

from reference import check, read, write
from reference_rotary import frequencies, lengthened, turned

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../test/data/kinds_reference.safetensors")
GATE = 12                   # channels that the gates of value embeddings read
BATCH, TOKENS = 3, 13       # odd, and shorter than the context
SIZES = {"layers": 2, "heads": 4, "channels": 16, "context": 15, "vocab": 35}
MODERN = {"norm": "rmsnorm", "bias": False, "position": "rope"}
LLAMA = {**SIZES, **MODERN, "norm_eps": 1e-5, "kv_heads": 2, "activation": "swiglu", "ffn_channels": 24}
SIMPLE = {**SIZES, "norm": "rmsnorm", "norm_eps": 1.2e-7, "position": "rope", "rope_theta": 1024,
          "rope_still": 0.5, "qk_norm": "before", "qk_gain": False, "attention_scale": 0.12,
          "activation": "relu2", "ffn_channels": 32, "tied": False, "softcap": 2, "softcap_kind": "sqrt",
          "embed_norm": True, "head_channels": 8}
ADAMW = {"lr": 3e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 2.5}
KINDS = {       # settings of the model, of the optimizer, steps
    "llama": ({**LLAMA, "tied": False}, ADAMW, 10),
    "llama3": ({**LLAMA, "rope_theta": 100,
                "rope_scaling": {"type": "llama3", "factor": 4, "low": 1, "high": 3, "context": 20}},
               ADAMW, 10),
    "qwen3": ({**LLAMA, "norm_eps": 1e-6, "head_channels": 6, "qk_norm": "before", "window": [5, 0]},
              ADAMW, 10),
    "qwen2": ({**LLAMA, "norm_eps": 1e-6, "qkv_bias": True,
               "rope_scaling": {"type": "yarn", "factor": 3, "context": 12, "beta_fast": 1.5,
                                "beta_slow": 0.5}}, ADAMW, 10),
    "nanochat": ({**SIZES, **MODERN, "norm_gain": False, "norm_eps": 1e-6, "embed_norm": True, "kv_heads": 2,
                  "qk_norm": "after", "qk_gain": False, "activation": "relu2", "ffn_channels": 32,
                  "tied": False, "softcap": 2},
                 {**ADAMW, "embed_lr": 6e-3, "head_lr": 2e-3, "vector_lr": 1e-3}, 10),
    "simple": (SIMPLE, ADAMW, 10),
    "simple_muon": (SIMPLE, {"kind": "muon", "matrix_lr": 0.025, "matrix_decay": 0.05, "momentum": 0.95,
                             "momentum_warmup": 5, "polynomial": "cubic", "iterations": 12, "embed_lr": 0.07,
                             "head_lr": 0.004, "vector_lr": 0.015, "lr": 0.004, "beta1": 0.8, "beta2": 0.95,
                             "eps": 1e-10, "weight_decay": 0.001, "grad_clip": 0}, 20),
    "nano_muon": ({**SIZES, **MODERN, "norm_gain": False, "embed_norm": True, "kv_heads": 2,
                   "qk_norm": "after", "qk_gain": False, "activation": "swiglu", "ffn_channels": 24,
                   "tied": False},
                  {"kind": "muon", "matrix_lr": 0.02, "matrix_decay": 0.28, "momentum": 0.95,
                   "momentum_warmup": 0, "polynomial": "polar", "iterations": 5, "cautious": True, "lr": 3e-3,
                   "beta1": 0.8, "beta2": 0.95, "eps": 1e-10, "weight_decay": 0, "grad_clip": 1}, 10),
    "nanochat_muon": ({**SIZES, **MODERN, "layers": 3, "norm_gain": False, "embed_norm": True, "kv_heads": 2,
                       "qk_norm": "after", "qk_gain": False, "activation": "relu2", "ffn_channels": 16,
                       "tied": False, "softcap": 2, "window": [5, 0], "shortcut": "x0",
                       "value_embeddings": "alternate"},
                      {"kind": "muon", "matrix_lr": 0.02, "matrix_decay": 0.1, "momentum": 0.95,
                       "momentum_warmup": 0, "polynomial": "cubic", "iterations": 5, "embed_lr": 0.05,
                       "head_lr": 2e-3, "vector_lr": 0.03, "lr": 3e-3, "beta1": 0.8, "beta2": 0.95,
                       "eps": 1e-10, "weight_decay": 0.01, "grad_clip": 2.5}, 10),
}
# Amsel et al. 2025, "The Polar Express" (arXiv 2505.16932); the cubic is Newton-Schulz's
POLAR = [(8.156554524902461, -22.48329292557795, 15.878769915207462),
         (4.042929935166739, -2.808917465908714, 0.5000178451051316),
         (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
         (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
         (2.3465413258596377, -1.7097828382687081, 0.42323551169305323)]


# ---------------------------------------------------------------------------------------------------------
# the model, by its settings

def sizes(m):
    """Channels of a head, heads of keys."""
    return m.get("head_channels") or m["channels"] // m["heads"], m.get("kv_heads") or m["heads"]


def has_values(m, i):
    """Whether block i has a value embedding: every other block, the last included."""
    return m.get("value_embeddings") == "alternate" and (m["layers"] - 1 - i) % 2 == 0


def shapes(m):
    """Names and shapes of the trainer's tensors (llmc/model/params.h)."""
    C, V, (D, KV) = m["channels"], m["vocab"], sizes(m)
    A, ffn, biases = m["heads"] * D, m["ffn_channels"], m.get("bias", True)
    rows, inner = A + 2 * KV * D, 2 * ffn if m["activation"] == "swiglu" else ffn
    norm = lambda name: {name + "w": (C,)} if m.get("norm_gain", True) else {}
    bias = lambda name, out, has=biases: {name + "b": (out,)} if has else {}
    linear = lambda name, out, cols: {name + "w": (out, cols), **bias(name, out)}
    heads = {"qnw": (D,), "knw": (D,)} if m.get("qk_norm") and m.get("qk_gain", True) else {}
    block = {**norm("ln1"), **linear("qkv", rows, C), **bias("qkv", rows, m.get("qkv_bias", biases)), **heads,
             **linear("attproj", C, A), **norm("ln2"), **linear("fc", inner, C), **linear("fcproj", C, ffn)}
    mixes = {"residw": (1,), "x0w": (1,)} if m.get("shortcut") == "x0" else {}
    values = {"gatew": (KV, GATE), "wve": (V, KV * D)}
    rows_of = lambda i: {**mixes, **block, **(values if has_values(m, i) else {})}
    return {"wte": (V, C), **(norm("lne") if m.get("embed_norm") else {}),
            **{f"h.{i}.{k}": v for i in range(m["layers"]) for k, v in rows_of(i).items()}, **norm("lnf"),
            **({} if m.get("tied", True) else linear("head", V, C))}


def attention(p, h, x, tokens, m, layer):
    """Of rows x (B, T, C): the heads' outputs (B, T, heads D)."""
    B, T, _ = x.shape
    D, KV = sizes(m)
    q, k, v = (t.view(B, T, -1, D).transpose(1, 2) for t in
               F.linear(x, p[h + "qkvw"], p.get(h + "qkvb")).split([m["heads"] * D, KV * D, KV * D], 2))
    if has_values(m, layer):        # nanochat's gated value embeddings
        gate = 3 * F.linear(x[..., :GATE], p[h + "gatew"]).sigmoid()
        v = v + (gate[..., None] * p[h + "wve"][tokens].view(B, T, KV, D)).transpose(1, 2)
    rms = lambda t, gain: t * torch.rsqrt(t.square().mean(-1, keepdim=True) + m.get("norm_eps", 1e-5)) * gain
    normed = lambda: (rms(q, p.get(h + "qnw", 1.0)), rms(k, p.get(h + "knw", 1.0)))
    f = frequencies(m, D)
    if m.get("qk_norm") == "before":
        q, k = normed()
    q, k = lengthened(m) * turned(q, f), lengthened(m) * turned(k, f)
    if m.get("qk_norm") == "after":
        q, k = normed()
    k, v = (t.repeat_interleave(m["heads"] // KV, 1) for t in (k, v))
    seen = torch.ones(T, T, dtype=torch.bool).tril()
    window = m.get("window", [0])
    if window[layer % len(window)]:
        seen = seen.triu(1 - window[layer % len(window)])
    scores = q @ k.transpose(2, 3) * (m.get("attention_scale") or D ** -0.5)
    return (scores.masked_fill(~seen, -math.inf).softmax(-1) @ v).transpose(1, 2).reshape(B, T, -1)


def activated(pre, kind):
    if kind == "relu2":
        return F.relu(pre).square()
    gate, up = pre.chunk(2, -1)
    return F.silu(gate) * up


def forward(p, tokens, m):
    """Logits (B, T, V), before a softcap."""
    eps = m.get("norm_eps", 1e-5)
    norm = lambda x, name: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * p.get(name, 1.0)
    linear = lambda x, name: F.linear(x, p[name + "w"], p.get(name + "b"))
    x = p["wte"][tokens]
    if m.get("embed_norm"):
        x = norm(x, "lnew")
    x0 = x
    for i in range(m["layers"]):
        h = f"h.{i}."
        if m.get("shortcut") == "x0":
            x = p[h + "residw"] * x + p[h + "x0w"] * x0
        x = x + linear(attention(p, h, norm(x, h + "ln1w"), tokens, m, i), h + "attproj")
        x = x + linear(activated(linear(norm(x, h + "ln2w"), h + "fc"), m["activation"]), h + "fcproj")
    x = norm(x, "lnfw")
    return F.linear(x, p["wte"]) if m.get("tied", True) else linear(x, "head")


def capped(logits, m):
    cap = m.get("softcap")
    if not cap:
        return logits
    if m.get("softcap_kind") == "sqrt":
        return cap * logits / torch.sqrt(logits.square() + cap * cap)
    return cap * torch.tanh(logits / cap)


# ---------------------------------------------------------------------------------------------------------
# the optimizers

def orthogonal(u, o):
    """The polar factor of u, nearly (Jordan et al. 2024, "Muon")."""
    x = u.T if u.shape[0] > u.shape[1] else u
    x = x / (1.01 * u.norm() + 1e-7)
    for a, b, c in POLAR if o["polynomial"] == "polar" else [(2, -1.5, 0.5)] * o["iterations"]:
        A = x @ x.T
        x = a * x + (b * A + c * A @ A) @ x
    return x.T if u.shape[0] > u.shape[1] else x


def parts(name, m):
    """Rows of each part of a fused matrix; None: the matrix is not fused."""
    D, KV = sizes(m)
    if name.endswith("qkvw"):
        return [m["heads"] * D, KV * D, KV * D]
    return [m["ffn_channels"]] * 2 if name.endswith("fcw") and m["activation"] == "swiglu" else None


def muon(w, g, momentum, o, step, m, name, rate):
    mu = o["momentum"]
    if step < o["momentum_warmup"]:
        mu = 0.85 + (mu - 0.85) * step / o["momentum_warmup"]
    momentum.mul_(mu).add_((1 - mu) * g)
    u = (1 - mu) * g + mu * momentum
    update = torch.cat([math.sqrt(max(1, t.shape[0] / t.shape[1])) * orthogonal(t, o)
                        for t in u.split(parts(name, m) or [u.shape[0]])])
    lr = o["matrix_lr"] * rate
    decays = (update * w >= 0).double() if o.get("cautious") else 1.0
    w.sub_(lr * o["matrix_decay"] * decays * w).sub_(lr * update)


def adamw(w, g, state, o, step, name, rate):
    b1, b2 = o["beta1"], o["beta2"]
    group = {"wte": "embed_lr", "wve": "embed_lr", "headw": "head_lr"}.get(
        name.split(".")[-1], "vector_lr" if w.dim() == 1 else "lr")
    lr = (o.get(group) or o["lr"]) * rate
    state["m"].mul_(b1).add_((1 - b1) * g)
    state["v"].mul_(b2).add_((1 - b2) * g * g)
    update = state["m"] / (1 - b1 ** (step + 1)) / ((state["v"] / (1 - b2 ** (step + 1))).sqrt() + o["eps"])
    decay = o["weight_decay"] if w.dim() == 2 else 0
    w.sub_(lr * decay * w).sub_(lr * update)


def train(init, tokens, m, o, rates):
    p = {k: v.double().requires_grad_() for k, v in init.items()}
    state = {k: {"m": torch.zeros_like(v), "v": torch.zeros_like(v)} for k, v in p.items()}
    out = {"loss": [], "norm": []}
    for step, batch in enumerate(tokens.long()):
        logits = forward(p, batch[:, :-1], m)
        loss = F.cross_entropy(capped(logits, m).flatten(0, 1), batch[:, 1:].flatten())
        grads = dict(zip(p, torch.autograd.grad(loss, list(p.values()))))
        norm = math.sqrt(sum(float(g.square().sum()) for g in grads.values()))
        if step == 0:
            out["logits"] = logits.detach()
            out.update({"grad." + k: g for k, g in grads.items()})
        out["loss"].append(loss.item())
        out["norm"].append(norm)
        clip = min(1.0, o["grad_clip"] / norm) if o["grad_clip"] else 1.0
        with torch.no_grad():
            for k, w in p.items():
                if o.get("kind") == "muon" and k.startswith("h.") and w.dim() == 2 and not k.endswith("wve"):
                    muon(w, clip * grads[k], state[k]["m"], o, step, m, k, rates[step])
                else:
                    adamw(w, clip * grads[k], state[k], o, step, k, rates[step])
    out.update({"final." + k: v.detach() for k, v in p.items()})
    return {k: torch.as_tensor(v, dtype=torch.float64) for k, v in out.items()}


def fixture():
    tensors, configs = {}, {}
    for number, (kind, (m, o, steps)) in enumerate(KINDS.items()):
        rng = random.Random(number)
        init = {}
        for name, shape in shapes(m).items():
            std = 0.2 if len(shape) == 1 else 1 / math.sqrt(shape[1])
            mean = 1.0 if "ln" in name or name.endswith(("qnw", "knw", "residw")) else 0.0
            values = [rng.gauss(mean, std) for _ in range(math.prod(shape))]
            init[name] = torch.tensor(values, dtype=torch.float64).to(torch.bfloat16).float().view(shape)
        ids = [rng.randrange(m["vocab"]) for _ in range(steps * BATCH * (TOKENS + 1))]
        tokens = torch.tensor(ids, dtype=torch.int32).view(steps, BATCH, TOKENS + 1)
        rates = [min((i + 1) / 4, (steps - i) / 6, 1) for i in range(steps)]
        lr = torch.tensor([o["lr"] * rate for rate in rates], dtype=torch.float64)
        of_kind = {**train(init, tokens, m, o, rates), "lr": lr, "tokens": tokens,
                   **{"init." + k: v for k, v in init.items()}}
        tensors.update({f"{kind}.{k}": v for k, v in of_kind.items()})
        configs[kind] = json.dumps({"model": m, "optimizer": o,
                                    "train": {"batch_tokens": BATCH * m["context"], "steps": steps}})
    return dict(sorted(tensors.items(), key=lambda kv: -kv[1].element_size())), configs


def main():
    tensors, configs = fixture()
    if sys.argv[1:] == ["--check"]:
        return check(tensors, read(PATH)[0])
    if sys.argv[1:]:
        sys.exit(__doc__)
    write(PATH, tensors, configs)
    print(f"{PATH}: {os.path.getsize(PATH)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

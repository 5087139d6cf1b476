"""Steps of this repository's models by torch, to compare with: a line "= {JSON}" each.

Usage: torch_models.py MODEL:TOKENS_A_STEP ...        (MODEL: a config of scripts/)

torch.compile of each block and of the loss, its fused causal attention, products in BF16 by autocast, FP32
weights, fused AdamW. The micro-batch is the largest power of two whose logits take a third of the memory, or
less where that does not fit.
"""
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = os.environ.get("TORCH_DEVICE", "cuda")
CHANGES = json.loads(os.environ.get("TORCH_CHANGES", "{}"))     # of model.*, for a rehearsal


def config_of(name):
    """The settings of model.* that these models use, with the defaults of llmc/base/config/config.h."""
    with open(f"scripts/{name}.json", encoding="utf-8") as file:
        m = json.load(file)["model"] | CHANGES
    m.setdefault("kv_heads", m["heads"])
    m.setdefault("head_channels", m["channels"] // m["heads"])
    m.setdefault("ffn_channels", 4 * m["channels"])
    for key, value in {"norm": "layernorm", "activation": "gelu", "position": "learned", "bias": True,
                       "qk_norm": "none", "rope_theta": 1e4}.items():
        m.setdefault(key, value)
    return m


def norm_of(m, channels):
    """A norm with a gain."""
    if m["norm"] == "layernorm":
        return nn.LayerNorm(channels)
    return nn.RMSNorm(channels, eps=m.get("norm_eps", 1e-5))


def rotate(x, cos, sin):
    """Rotary positions of (B, NH, T, D), halves of a head as pairs."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Block(nn.Module):
    """A transformer block of GPT-2, Llama or Qwen3."""

    def __init__(self, m):
        super().__init__()
        self.m, C, D = m, m["channels"], m["head_channels"]
        self.sizes = [m["heads"] * D, m["kv_heads"] * D, m["kv_heads"] * D]
        self.ln1, self.ln2 = norm_of(m, C), norm_of(m, C)
        self.qkv = nn.Linear(C, sum(self.sizes), bias=m["bias"])
        self.out = nn.Linear(self.sizes[0], C, bias=m["bias"])
        if m["qk_norm"] != "none":
            self.q_norm, self.k_norm = norm_of(m, D), norm_of(m, D)
        self.gated = m["activation"] == "swiglu"
        self.up = nn.Linear(C, m["ffn_channels"] * (2 if self.gated else 1), bias=m["bias"])
        self.down = nn.Linear(m["ffn_channels"], C, bias=m["bias"])

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        q, k, v = (t.view(B, T, -1, self.m["head_channels"]).transpose(1, 2)
                   for t in self.qkv(self.ln1(x)).split(self.sizes, -1))
        if self.m["qk_norm"] != "none":
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        if self.m["position"] == "rope":
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        x = x + self.out(a.transpose(1, 2).reshape(B, T, -1))
        h = self.up(self.ln2(x))
        if self.gated:
            gate, h = h.chunk(2, -1)
            return x + self.down(F.silu(gate) * h)
        return x + self.down(F.gelu(h, approximate="tanh"))


class Model(nn.Module):
    """A model with a tied head."""

    def __init__(self, m):
        super().__init__()
        self.m, T, D = m, m["context"], m["head_channels"]
        self.wte = nn.Embedding((m["vocab"] + 127) // 128 * 128, m["channels"])
        nn.init.normal_(self.wte.weight, std=0.02)
        if m["position"] == "learned":
            self.wpe = nn.Embedding(T, m["channels"])
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["layers"]))
        self.lnf = norm_of(m, m["channels"])
        angles = torch.outer(torch.arange(T), m["rope_theta"] ** (-torch.arange(0, D, 2) / D))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for block in self.blocks:
            block.compile(dynamic=False)
        self.loss = torch.compile(self.plain_loss, dynamic=False)

    def plain_loss(self, x, targets):
        """Mean cross-entropy."""
        logits = F.linear(self.lnf(x), self.wte.weight)
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        if self.m["position"] == "learned":
            x = x + self.wpe.weight
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.loss(x, targets)


def synchronize():
    """Waits for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def seconds_of_steps(m, micro, accumulate, steps=3):
    """The median step after one to warm up."""
    torch.manual_seed(0)
    model = Model(m).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=DEVICE == "cuda")
    batch = torch.randint(m["vocab"], (2, accumulate, micro, m["context"]), device=DEVICE)
    times, loss = [], None
    for _ in range(steps + 1):
        synchronize()
        start = time.perf_counter()
        for tokens, targets in zip(*batch):
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = model(tokens, targets) / accumulate
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[steps // 2], float(loss.detach()) * accumulate


def measured(name, tokens):
    """The result of a model."""
    m = config_of(name)
    memory = torch.cuda.get_device_properties(0).total_memory if DEVICE == "cuda" else 1 << 30
    rows, micro = max(1, tokens // m["context"]), 1
    while micro * 2 <= rows and micro * 2 * m["context"] * m["vocab"] * 10 <= memory / 3:
        micro *= 2
    while True:
        try:
            seconds, loss = seconds_of_steps(m, micro, rows // micro)
            break
        except torch.OutOfMemoryError:
            if micro == 1:
                return {"model": name, "fits": False}
        micro //= 2
        torch.cuda.empty_cache()
    return {"model": name, "torch": torch.__version__, "tokens_per_s": round(tokens / seconds),
            "ms": round(seconds * 1000, 2), "micro_batch": micro, "compiled": "blocks, loss",
            "loss": round(loss, 4)}


def main():
    torch.set_float32_matmul_precision("high")
    for argument in sys.argv[1:]:
        name, tokens = argument.split(":")
        print("= " + json.dumps(measured(name, int(tokens))), flush=True)
        if DEVICE == "cuda":
            torch.cuda.empty_cache()


main()

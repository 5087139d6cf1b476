"""Rotary positions in PyTorch, by the settings that ./train_gpt reads."""
import math

import torch
import torch.nn.functional as F


def frequencies(m, D):
    """Of the D/2 pairs of channels of a head, per position."""
    theta, still = m.get("rope_theta", 1e4), m.get("rope_still", 0)
    if still:
        turning = round(D / 2 * (1 - still))
        pairs = torch.arange(turning, dtype=torch.float64)
        return F.pad(theta ** (-pairs / (turning - 1)), (0, D // 2 - turning))
    f = theta ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    if "rope_scaling" in m:         # waves longer than the old context are slowed down
        s = m["rope_scaling"]
        if s["type"] == "yarn":
            pair = lambda turns: D * math.log(s["context"] / (turns * 2 * math.pi)) / (2 * math.log(theta))
            low, high = max(math.floor(pair(s["beta_fast"])), 0), min(math.ceil(pair(s["beta_slow"])), D - 1)
            kept = 1 - ((torch.arange(D // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
        else:
            turns = s["context"] * f / (2 * math.pi)
            kept = ((turns - s["low"]) / (s["high"] - s["low"])).clamp(0, 1)
        f = f * (kept + (1 - kept) / s["factor"])
    return f


def lengthened(m):
    """The factor of cos and sin, by YaRN."""
    s = m.get("rope_scaling", {})
    return 0.1 * math.log(s["factor"]) + 1 if s.get("type") == "yarn" else 1


def turned(x, f):
    """x (B, heads, T, D), by the angle of its position; a pair is channel i and i + D/2."""
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * f
    a, b = x.chunk(2, -1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)

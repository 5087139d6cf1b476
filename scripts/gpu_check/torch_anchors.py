"""Times of torch, a line "= {JSON}" each: a product of (8192, 8192); causal attention, forward and backward.
"""
import json

import torch
import torch.nn.functional as F


def microseconds(f, repeats=10):
    f()
    best = float("inf")
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            f()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) * 1000 / repeats)
    return best


def show(**result):
    print("= " + json.dumps(result), flush=True)


def main():
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    us = microseconds(lambda: a @ b)
    show(name="matmul bf16", size=n, us=round(us, 1), TFLOPs=round(2e-6 * n**3 / us, 1))
    for B, T, NH, D in ((16, 1024, 12, 64), (4, 1024, 16, 128)):
        q, k, v = (torch.randn(B, NH, T, D, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                   for _ in range(3))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        grad = torch.randn_like(out)
        forward = microseconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        both = microseconds(lambda: torch.autograd.grad(
            F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), grad))
        show(name="attention", B=B, T=T, NH=NH, D=D, forward_us=round(forward, 1),
             backward_us=round(both - forward, 1))


main()

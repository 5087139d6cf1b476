"""The products of run.products=fp8 in PyTorch, for dev/reference.py: all in float64 but the codes' values."""
import torch

FORMATS = {"E4M3": (3, 7, 8), "E5M2": (2, 15, 15)}      # bits of the mantissa, bias, exponent of the largest


def coded(x, name):
    """x as values of FP8 codes: the power of two that brings its largest element up to 1.75 2^top, then
    rounding to nearest, ties to even."""
    mantissa, bias, top = FORMATS[name]
    x = x.detach().float().double()
    largest = torch.frexp(x.abs().max())
    scale = 2.0 ** (top + 1 - int(largest.exponent) - (float(largest.mantissa) > 0.875))
    exponent = (torch.frexp(x * scale).exponent - 1).clamp(min=1 - bias)
    unit = torch.ldexp(torch.ones_like(x), exponent - mantissa)
    return torch.round(x * scale / unit) * unit / scale


class Fp8Linear(torch.autograd.Function):
    """x w^T and its gradient by x of codes; the gradient of w as it is."""
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return coded(x, "E4M3") @ coded(w, "E4M3").t()

    @staticmethod
    def backward(ctx, dout):
        x, w = ctx.saved_tensors
        return coded(dout, "E5M2") @ coded(w, "E4M3"), dout.flatten(0, 1).t() @ x.flatten(0, 1)


def fp8_linear(x, w, b=None):
    product = Fp8Linear.apply(x, w)
    return product if b is None else product + b

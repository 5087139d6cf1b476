"""The machine code of kernels, for dev/ptxas.py: required instructions, and lengths of loops."""
import os
import re
import shutil
import subprocess

import pypi

WIDE = [r"LDG\.E[.\w]*\.128", r"STG\.E[.\w]*\.128"]
TENSOR = [r"HMMA\.16816\.F32\.BF16", r"LDSM\.16\.M", r"LDGSTS\.E[.\w]*\.128", r"MUFU\.EX2"]
WGMMA = [r"HGMMA\.64x\d+x16\.F32\.BF16", r"UTMALDG\.4D", r"USETMAXREG", r"MUFU\.EX2", WIDE[1]]
INSTRUCTIONS = {                                        # by the kernel's name without its arguments
    "layernorm_forward_kernel": WIDE, "layernorm_backward_kernel": WIDE, "adamw_update_kernel": WIDE,
    "classifier_forward_backward_kernel": [*WIDE, r"LDGSTS\.E[.\w]*\.128", r"MUFU\.EX2"],
    "bias_backward_kernel": WIDE[:1], "elementwise_kernel": WIDE, "encoder_forward_kernel": WIDE,
    "attention_mma_forward_kernel": [*TENSOR, WIDE[1]], "attention_mma_keys_kernel": TENSOR,
    "attention_mma_queries_kernel": [*TENSOR, *WIDE],
    "attention_wgmma_forward_kernel": WGMMA, "attention_wgmma_queries_kernel": WGMMA,
    "attention_wgmma_keys_kernel": WGMMA, "product_wgmma_kernel": [*WGMMA[:3], WIDE[1]],
    "encoder_backward_tokens_kernel": WIDE[:1], "sum_of_squares_kernel": WIDE[:1],
    "rotary_forward_kernel": WIDE, "rotary_backward_kernel": WIDE,
    "shortcut_forward_kernel": WIDE, "shortcut_backward_kernel": WIDE,
    "values_forward_kernel": [*WIDE, r"MUFU\.EX2"], "values_backward_kernel": [*WIDE, r"MUFU\.EX2"],
    "gated_kernel": [*WIDE, r"MUFU\.EX2"], "gated_backward_kernel": [*WIDE, r"MUFU\.EX2"],
    "classifier_slice_kernel": [WIDE[0], r"MUFU\.EX2"],
    "classifier_merge_backward_kernel": [*WIDE, r"MUFU\.EX2"],
    "linear_combination_kernel": WIDE,
}
# kernels that write bf16 alone, four elements at once: 64 bits
NARROW = {"adamw_update_kernel<(Weights)2, numbers::bfloat16>"}
FROM_89 = {                                             # as INSTRUCTIONS, of GPUs from sm_89 on
    "quantize_kernel": [r"F2FP\.[.\w]*E[45]M[23]"], "quantize_both_kernel": [r"F2FP\.[.\w]*E[45]M[23]"],
}
# a kernel's loops with this instruction: the unit that a pass computes, and the number of units
HOT = {
    "attention_mma_forward_kernel": ("HMMA", "tile", 1), "attention_mma_queries_kernel": ("HMMA", "tile", 1),
    "attention_mma_keys_kernel": ("HMMA", "tile", 1),
    "attention_wgmma_forward_kernel": ("HGMMA", "tile", 1),
    "attention_wgmma_queries_kernel": ("HGMMA", "tile", 1),
    "attention_wgmma_keys_kernel": ("HGMMA", "tile", 1),
    "classifier_forward_backward_kernel": (r"MUFU\.EX2", "logit", 8),
}
SLOW = r"FSETP[.\w]* \w+, \w+, \S+, -126,"        # of exp2f, for results below 2^-126: not in these kernels


def demangled(names):
    run = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return dict(zip(names, run.stdout.splitlines()))


def short(name):
    """fp32::cuda::f<1>(float*) as f<1>"""
    name = re.sub(r"^void ", "", name)
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            name = name[:i]
            break
    return re.sub(r"\b(fp32|bf16)::|\bcuda::", "", name)


def family(name):
    return re.sub(r"<.*", "", name)


def functions(cuobjdump, target, arch):
    """{name: code}"""
    run = subprocess.run([cuobjdump, "-sass", "-arch", f"sm_{arch}", target], capture_output=True, text=True,
                         check=True)
    codes = re.split(r"\n\s*Function : ", run.stdout)[1:]
    names = demangled([code.split("\n", 1)[0] for code in codes])
    return {short(names[code.split("\n", 1)[0]]): code for code in codes}


def wrong_instructions(codes, arch):
    for name, code in codes.items():
        newer = FROM_89.get(family(name), []) if int(arch) >= 89 else []
        for pattern in [*INSTRUCTIONS.get(family(name), []), *newer]:
            if not re.search(pattern, code) and not (name in NARROW and pattern == WIDE[1]):
                yield f"sm_{arch} {name}: no {pattern} in its code"
        if family(name) in HOT and re.search(SLOW, code):
            yield f"sm_{arch} {name}: exp2f in its code, expected ptx::exp2_approx"


def hot_loops(code, hot):
    """Instructions in each innermost loop with several instructions `hot`, without inner loops or skips."""
    listing = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", code)
    index = {int(address, 16): i for i, (address, _) in enumerate(listing)}
    jumps = [(i, index.get(int(m[1], 16), i)) for i, (_, text) in enumerate(listing)
             for m in [re.search(r"\bBRA\b.*?\b0x([0-9a-f]+)", text)] if m]
    loops = [(to, i + 1) for i, to in jumps if to < i]

    def count(first, end):
        return sum(bool(re.search(hot, text)) for _, text in listing[first:end])
    for first, end in loops:
        within = [(a, b) for a, b in loops if first <= a and b <= end and (a, b) != (first, end)]
        if count(first, end) < 4 or any(count(a, b) for a, b in within):
            continue
        within += [(i + 1, to) for i, to in jumps if first <= i < to <= end and not count(i + 1, to)]
        yield end - first - len(set().union(*(range(a, b) for a, b in within)))


def show_hot_loops(codes, arch):
    for name, code in codes.items():
        if family(name) in HOT:
            hot, unit, units = HOT[family(name)]
            counts = " ".join(f"{n / units:6.3g}" for n in hot_loops(code, hot))
            print(f"{name:50} {counts} instructions of sm_{arch} by {unit}")


def fetched(tools):
    """cuobjdump from PyPI; cuobjdump calls nvdisasm in the same folder."""
    if not os.path.exists(f"{tools}/nvidia/cu13/bin/cuobjdump"):
        try:
            for package in ("nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm"):
                pypi.unpack(tools, package)
        except OSError as error:
            print(f"note: no cuobjdump from PyPI: {error}")
            return None
    for tool in ("cuobjdump", "nvdisasm"):
        os.chmod(f"{tools}/nvidia/cu13/bin/{tool}", 0o755)
    return f"{tools}/nvidia/cu13/bin/cuobjdump"


def find_cuobjdump(asked):
    found = asked or shutil.which("cuobjdump") or fetched("build/cuda_tools")
    if found:
        os.environ["PATH"] = os.path.dirname(os.path.abspath(found)) + ":" + os.environ["PATH"]
    return found

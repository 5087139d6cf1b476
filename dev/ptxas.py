#!/usr/bin/python3
"""Registers, shared memory, spills and instructions of every kernel: `make ptxas`.

    dev/ptxas.py [--arch=80,90] [--nvcc=PATH] [--cuobjdump=PATH]

Prints registers, shared memory, spills, and the warps that fit a processor, for every entry function in both
precisions. Blocks and dynamic shared memory (the least and the most) are those that `make test` saw; without
it, warps are those that registers leave room for. What has no kernels is compiled for one GPU, in BF16, and
the host code that needs CUDA's or NCCL's headers is looked at by g++. Fails on a warning of the C75xx kind,
on a spill that SPILLS does not list with its reason, on a barrier whose number is in a register, on a
register of wgmma that PTX touches too early (dev/ptx_rules.py), and on an instruction that a kernel of
INSTRUCTIONS should have and has not (cuobjdump and nvdisasm are fetched from PyPI into build/ where they are
missing); also on a name in SPILLS or INSTRUCTIONS that no kernel has. The last lines count the instructions
of hot loops, by tile or logit (dev/sass.py).
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import ptx_rules
from sass import (INSTRUCTIONS, demangled, family, find_cuobjdump, functions, short, show_hot_loops,
                  wrong_instructions)

SPILLS = {      # by precision and kernel: bytes at most, architectures, and the reason to allow the spill
    ("bf16", "attention_plain_queries_kernel<64, false>"):
        (12, {90}, "a word, written once and read twice, so that four blocks fit a processor"),
    ("fp32", "attention_plain_queries_kernel<64, false>"):
        (32, {100}, "48 registers are ptxas's own choice there, for a fifth block"),
    ("fp32", "attention_plain_queries_kernel<128, false>"):
        (12, {120}, "a word; shared memory lets at most two blocks in, whatever the registers"),
    ("bf16", "attention_plain_queries_kernel<128, false>"):
        (24, {120}, "two words; shared memory lets at most two blocks in, whatever the registers"),
    ("bf16", "attention_mma_keys_kernel<64, 2, 32, false>"):
        (48, {120}, "six words beside 254 registers; sm_80 to sm_100 hold them"),
    ("bf16", "attention_mma_queries_kernel<128, 2, 32, true>"):
        (16, {120}, "two words beside 254 registers; sm_80 to sm_100 hold them"),
}
HOST = ("llmc/comm/transport/nccl*.cpp", "dev/cuda_*.cpp", "test/ops/cuda/**/*.cpp")
# warps, blocks and KiB of shared memory of a processor: CUDA Programming Guide, "Compute Capabilities"
LIMITS = {80: (64, 32, 164), 86: (48, 16, 100), 89: (48, 24, 100), 90: (64, 32, 228), 100: (64, 32, 228),
          120: (48, 24, 100)}


def together(sources, folder, name):
    """A file that includes the sources: nvcc takes longer over their headers than over most sources."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f'#include "{s}"\n' for s in sources)
    return path


def hopper_alone(source):
    """Whether the kernels are by wgmma, which is code of sm_90a: as in dev/make/cuda.mk"""
    return os.path.basename(source).startswith("wgmma_")


def of_fp8(source):
    """Whether GPUs from sm_89 on have PTX of their own: as in dev/make/cuda.mk"""
    return os.path.basename(source) == "quantized.cu"


def codes_for(source, archs):
    if hopper_alone(source):
        return ["arch=compute_90a,code=sm_90a"]
    elder = [f"sm_{a}" for a in archs if a < 89 or not of_fp8(source)]
    newer = [f"sm_{a}" for a in archs if f"sm_{a}" not in elder]
    return [f"arch=compute_{ptx},code=[{','.join(gpus)}]" for ptx, gpus in ((80, elder), (89, newer)) if gpus]


def compiled(nvcc, archs, source, precision, folder, kind="-c"):
    """The file with the kernels, and ptxas's output; -fatbin: without the host's code."""
    target = os.path.join(folder, f"{precision}_{os.path.basename(source)}.o")
    command = [nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-I.", "-DBACKEND=cuda",
               *([f"-DPRECISION={precision}"] if precision else []),
               *(f"-gencode={code}" for code in codes_for(source, archs)), "-Xptxas=-v", kind, source, "-o",
               target]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(command)}\n{run.stderr}")
    return target, run.stderr


def ptx_of_hopper(nvcc, source, folder):
    target = os.path.join(folder, f"{os.path.basename(source)}.ptx")
    command = [nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-I.", "-DBACKEND=cuda",
               "-DPRECISION=bf16", "-arch=sm_90a", "-ptx", source, "-o", target]
    subprocess.run(command, check=True, capture_output=True)
    with open(target, encoding="utf-8") as file:
        return file.read()


def host_errors(nvcc, source):
    """The first line of g++'s errors for a file of host code with CUDA's headers, or None."""
    include = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "include")
    nccl = any(os.path.exists(f"{folder}/nccl.h") for folder in (include, "/usr/include"))
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-fopenmp",
               "-Wno-restrict", "-I.", f"-I{include}", "-DBACKEND=cuda", "-DPRECISION=bf16",
               *["-DHAVE_NCCL"] * nccl, source]
    run = subprocess.run(command, capture_output=True, text=True)
    return f"{source}: {run.stderr.splitlines()[0]}" if run.returncode else None


def entries(said):
    """(mangled name, arch, registers, bytes spilled, shared memory, stack)"""
    for part in said.split("Compiling entry function '")[1:]:
        name, arch = re.match(r"([^']*)' for 'sm_(\d+)", part).groups()
        spills = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
                           part)
        shared = re.search(r"(\d+) bytes smem", part)
        yield (name, int(arch), int(re.search(r"Used (\d+) registers", part)[1]),
               int(spills[2]) + int(spills[3]), int(shared[1]) if shared else 0, int(spills[1]))


def resident_warps(arch, registers, threads, shared):
    """Warps at once on a processor, of blocks of `threads` with `shared` bytes each; threads 0: unknown."""
    warps, blocks, kib = LIMITS[arch]
    by_registers = 65536 // (-(-registers // 8) * 8 * 32)
    if not threads:
        return min(warps, by_registers)
    per_block = -(-threads // 32)
    reserved = 1024                     # of each block, by CUDA itself
    return per_block * min(blocks, warps // per_block, by_registers // per_block,
                           kib * 1024 // (shared + reserved))


def launches(path):
    """{(precision or "", name): (threads, least and most dynamic shared memory)}, as run_all.sh left it"""
    found = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                name, *numbers = line.rstrip("\n").split("\t")
                threads, least, most = map(int, numbers)
                name = re.sub(r"^void ", "", name)
                key = (name[:4] if name.startswith(("fp32::", "bf16::")) else "", short(name))
                before = found.get(key, (0, least, most))
                found[key] = (max(threads, before[0]), min(least, before[1]), max(most, before[2]))
    return found


def emulated_functions(library):
    """(precision or "", name) of the emulation's functions; an empty set without the emulation's library."""
    if not os.path.exists(library):
        return set()
    lines = subprocess.run(["nm", "-C", "--defined-only", library], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    names = [re.sub(r"^void ", "", line[19:]) for line in lines if line[17:18] in "tTwW"]
    return {(name[:4] if name.startswith(("fp32::", "bf16::")) else "", short(name)) for name in names}


class Table:
    """A row per kernel: registers for each arch, the largest of the archs for other figures."""

    def __init__(self, archs):
        self.archs, self.failures, self.passed, self.seen = archs, [], 0, set()
        self.emulated = emulated_functions("build/cpu-native/libcuda.a")
        self.launches = launches("build/cpu-native/kernels.ran")
        print(f"{'registers for sm_ ':>55} {' '.join(f'{a:4}' for a in archs)} {'warps':>5} {'threads':>7} "
              f"{'static':>6} {'dynamic':>13} {'stack':>5} {'spilled':>7}")

    def add_ptx(self, text):
        mistakes, products = ptx_rules.mistakes(text)
        self.failures += [f"{short(demangled([name])[name])}: {mistake}" for name, mistake in mistakes]
        self.passed += not mistakes and products > 0

    def add(self, precision, said):
        self.failures += [line for line in said.splitlines() if re.search(r"C75\d\d", line)]
        of_16 = re.findall(r"entry function '([^']*)'(?:(?!entry function).)*used 16 barriers", said, re.S)
        self.failures += [f"{short(demangled([name])[name])}: the number of a barrier is in a register"
                          for name in of_16]
        rows = {}
        for mangled, arch, *rest in entries(said):
            rows.setdefault(mangled, {})[arch] = rest
        names = demangled(list(rows))
        for mangled, of in rows.items():
            name = short(names[mangled])
            self.seen |= {(precision, name), family(name)}
            registers = [of[a][0] if a in of else "" for a in self.archs]
            spilled, shared, stack = (max(of[a][i] for a in of) for i in (1, 2, 3))
            threads, least, most = self.launches.get((precision, name), (0, 0, 0))
            warps = min(resident_warps(a, of[a][0], threads, of[a][2] + least) for a in of)
            dynamic = "" if not threads else f"{least}" if least == most else f"{least}-{most}"
            print(f"{precision:4} {name:50} {' '.join(f'{r:4}' for r in registers)} {warps:5} "
                  f"{threads or '':7} {shared:6} {dynamic:>13} {stack:5} {spilled:7}")
            if self.emulated and (precision, name) not in self.emulated:
                self.failures.append(f"{precision} {name}: the emulation has no such function")
            self.passed += 1
            most, where, reason = SPILLS.get((precision, name), (0, (), ""))
            for arch in of:
                if of[arch][1] > (most if arch in where else 0):
                    self.failures.append(f"{precision} {name}: {of[arch][1]} bytes spilled on sm_{arch}")
                elif of[arch][1]:
                    print(f"     spilled on sm_{arch}: {reason}")


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="80,86,89,90,100,120")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--cuobjdump")
    return parser.parse_args()


def main():
    given = options()
    nvcc = given.nvcc
    known = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True,
                           check=True).stdout.split()
    asked = [int(a.rstrip("af")) for a in given.arch.split(",")]
    archs = [a for a in asked if f"sm_{a}" in known]
    if archs != asked:
        print(f"this toolkit does not know {', '.join(f'sm_{a}' for a in asked if a not in archs)}")
    cuobjdump = find_cuobjdump(given.cuobjdump)
    table, hot = Table(archs), {}
    texts = {s: open(s).read() for s in sorted(glob.glob("llmc/ops/cuda/**/*.cu", recursive=True))
             if 90 in archs or not hopper_alone(s)}
    numeric = {s for s in texts if "namespace PRECISION" in texts[s]}
    kernels = {s for s in texts if re.search("__global__|elementwise<|add_products<", texts[s])}
    alone = {s for s in numeric & kernels if "attention" in s or hopper_alone(s) or of_fp8(s)}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        small = together(sorted(numeric & kernels - alone), folder, "small.cu")
        sources = [(s, p) for s in (small, *sorted(alone)) for p in ("bf16", "fp32")]
        sources += [(s, "") for s in sorted(kernels - numeric)]
        jobs = [(s, p, pool.submit(compiled, nvcc, archs, s, p, folder, "-fatbin" if p == "fp32" else "-c"))
                for s, p in sources]
        others = pool.submit(compiled, nvcc, archs[:1],
                             together(sorted(texts.keys() - kernels), folder, "others.cu"), "bf16", folder)
        texts_of_ptx = [pool.submit(ptx_of_hopper, nvcc, s, folder) for s in sorted(alone) if hopper_alone(s)]
        hosts = [pool.submit(host_errors, nvcc, s) for s in
                 sorted(f for where in HOST for f in glob.glob(where, recursive=True))]
        for source, precision, job in jobs:
            target, said = job.result()
            table.add(precision, said)
            for arch in ([90] if hopper_alone(source) else archs) if cuobjdump else []:
                codes = functions(cuobjdump, target, f"{arch}a" if hopper_alone(source) else arch)
                table.failures += wrong_instructions(codes, arch)
                if precision == "bf16" and arch == (90 if 90 in archs else archs[0]):
                    hot.update(codes)
        others.result()
        for job in texts_of_ptx:
            table.add_ptx(job.result())
        show_hot_loops(hot, 90 if 90 in archs else archs[0])
        table.failures += [f"{name}: no kernel has this name" for name in [*INSTRUCTIONS, *SPILLS]
                           if name not in table.seen and (90 in archs or "_wgmma_" not in name)]
        errors = [e for e in (job.result() for job in hosts) if e]
        print(f"{len(hosts)} files of host code, {len(errors)} with errors")
        table.failures += errors
        table.passed += len(hosts) - len(errors)
    skipped = (not cuobjdump) + (not table.emulated)
    if not cuobjdump:
        print("skip  instructions are not looked at: no cuobjdump")
    if not table.emulated:
        print("skip  kernels are not compared with those of the emulation: no build/cpu-native/libcuda.a")
    for f in table.failures:
        print(f"FAIL  {f}")
    print(f"{table.passed} passed, {len(table.failures)} failed" + f", {skipped} skipped" * bool(skipped))
    sys.exit(bool(table.failures))


if __name__ == "__main__":
    main()

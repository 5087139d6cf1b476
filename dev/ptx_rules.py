"""What PTX's text shows of the registers of wgmma, for dev/ptxas.py.

The emulation runs the source, and does not see where nvcc has moved an instruction.

Between wgmma.fence and a product nothing but products may write the product's sums or its fragments of a;
from the product to the wait for its group nothing may touch them (PTX ISA, "wgmma.fence" and
"wgmma.wait_group"). The text is taken in its order, without branches.
"""
import re

REGISTER = re.compile(r"%[a-z]+\d+")


def registers_of(product):
    """Sums and fragments, which stand in braces; descriptors do not."""
    return {r for group in re.findall(r"\{([^}]*)\}", product) for r in REGISTER.findall(group)}


class Group:
    """What a warp group's products hold, and what was written since the fence."""

    def __init__(self):
        self.open, self.committed, self.written = set(), [], {}

    def held(self):
        return self.open.union(*self.committed)

    def step(self, line):
        """The mistake of a line, or None."""
        if "wgmma.fence" in line:
            self.written = {}
        elif "wgmma.mma_async" in line:
            registers = registers_of(line)
            self.open |= registers
            for r in registers & self.written.keys():
                return f"{self.written[r]} between wgmma.fence and the product of {r}"
        elif "wgmma.commit_group" in line:
            self.committed.append(self.open)
            self.open = set()
        elif wait := re.search(r"wgmma\.wait_group\S* (\d+)", line):
            self.committed = self.committed[max(0, len(self.committed) - int(wait[1])):]
        elif re.match(r"\s*(@\S+ )?[a-z]", line):
            registers = REGISTER.findall(line)
            self.written |= {r: line.strip() for r in registers[:1]}
            if touched := self.held().intersection(registers):
                return f"{line.strip()} before the wait for the product of {min(touched)}"
        return None


def mistakes(ptx):
    """(mangled name, mistake): the first of each kernel; and the number of products."""
    found, products, name, group = {}, ptx.count("wgmma.mma_async"), "", Group()
    for line in ptx.splitlines():
        if entry := re.search(r"\.entry (\w+)\(", line):
            name, group = entry[1], Group()
        elif (mistake := group.step(line)) and name not in found:
            found[name] = mistake
    return list(found.items()), products

"""Whether what ran added up products of 8 bits on tensor cores, which keep fewer digits of such sums."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf

_OF_WARPGROUPS = re.compile(r"\bwgmma_m64n\d+k32<")
_OF_WARPS = re.compile(r"\bmma_m16n8k32\(")
_STEPS = re.compile(r"for \(int k32 = (\d+); k32 < (\d+); \+\+k32\)[^\n]*\n\s*wgmma_m64n\d+k32<")
"""The first step along the depth of a sum, and the one behind the last."""
_PROMOTED = re.compile(r"\bpromote<\d+>\(")
DEPTH = 32
IN_F16 = range(9, 12)
"""Major compute capabilities on which the product of a single warp is two of f16 (`compiler/primitives/matrix.cuh`)."""
EMULATED = (9, 0)
"""What the emulator is: it adds up with few digits what warpgroups multiply, and nothing else."""


def coarse_sums(printed: str, launched: Sequence[str], capability: tuple[int, int]) -> float:
    """How many products of 8 bits the kernels of a printed file that were launched, on a device of that capability, add
    up of which few digits are kept: 0 if none, infinitely many if a sum is never promoted."""
    return max((_of_body(_body(printed, kernel), capability) for kernel in dict.fromkeys(launched)), default=0)


def _of_body(body: str, capability: tuple[int, int]) -> float:
    if capability[0] not in IN_F16 and _OF_WARPS.search(body):
        return inf
    products = _OF_WARPGROUPS.findall(body)
    if len(products) > len(_PROMOTED.findall(body)):
        return inf
    return max((DEPTH * (int(end) - int(begin)) for begin, end in _STEPS.findall(body)), default=0)


def _body(printed: str, kernel: str) -> str:
    """What an entry computes: its variants share a function."""
    entry = re.search(rf"__global__ void [^\n]*\b{re.escape(kernel)}\([^{{]*\{{\n  (\w+)<", printed)
    start = printed.find(f"void {entry[1]}(") if entry else -1
    return printed if start < 0 else printed[start : printed.index("\n}\n", start)]

"""Whether what ran on a GPU added up products of 8 bits on tensor cores, which keep fewer digits of such sums."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OF_WARPGROUPS = re.compile(r"\bwgmma_m64n\d+k32\b")
_OF_WARPS = re.compile(r"\bmma_m16n8k32\(")
IN_F16 = range(9, 12)
"""Major compute capabilities on which the product of a single warp is two of f16 (`compiler/primitives/matrix.cuh`)."""


def adds_up_coarsely(printed: str, launched: Sequence[str], capability: tuple[int, int]) -> bool:
    """Of the kernels of a printed file, those that were launched, on a device of that capability."""
    bodies = [_body(printed, kernel) for kernel in dict.fromkeys(launched)]
    by_warps = capability[0] not in IN_F16 and any(map(_OF_WARPS.search, bodies))
    return by_warps or any(map(_OF_WARPGROUPS.search, bodies))


def _body(printed: str, kernel: str) -> str:
    """What an entry computes: its variants share a function."""
    entry = re.search(rf"__global__ void [^\n]*\b{re.escape(kernel)}\([^{{]*\{{\n  (\w+)<", printed)
    start = printed.find(f"void {entry[1]}(") if entry else -1
    return printed if start < 0 else printed[start : printed.index("\n}\n", start)]

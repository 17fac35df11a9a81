"""What a kernel's accesses to device memory cost, by the bytes that rows of its arrays are aligned to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.compiler.layouts.operations import strides_at, traffic_of, width_at
from treadle.compiler.layouts.sectors import SECTOR_BYTES, Traffic
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.tiles import format_bytes

LEAST_ASYNCHRONOUS = 4
"""Bytes that `cp.async` moves at least (PTX ISA 9.7.9.25.3.1); narrower copies go through registers."""


@dataclass(frozen=True)
class Variant:
    """The entry of a kernel for rows aligned to so many bytes: what its accesses move, each made once by a block."""

    name: str
    alignment: int
    bytes_a_thread: int
    """Of the widest access."""
    traffic: Traffic
    scattered_sectors: int
    """Were every element in a sector of its own, which only the variant for any strides allows; else 0."""
    waits: bool
    """Whether copies that could be asynchronous are not."""


def variants(kernel: cuda.KernelOp) -> list[Variant]:
    """The entries of a kernel, that for the widest alignment first."""
    accesses = [op for op in kernel.walk() if isinstance(op, GlobalAccess)]
    return [_variant(kernel, accesses, alignment) for alignment in cuda.alignments(kernel)] if accesses else []


def _variant(kernel: cuda.KernelOp, accesses: list[GlobalAccess], alignment: int) -> Variant:
    bytes = {op: width_at(op, alignment) * format_bytes(op.buffer_type) for op in accesses}
    total = scattered = Traffic(0, 0, 0, 0, 0, 0)
    for op in accesses:
        strides, base = strides_at(op, alignment)
        total += traffic_of(op, kernel.threads.data, alignment, strides, base)
        if alignment == cuda.ANY_STRIDES:
            apart = {axis: stride * SECTOR_BYTES for axis, stride in strides.items()}
            scattered += traffic_of(op, kernel.threads.data, alignment, apart, base)
    waits = any(_is_asynchronous(op) and bytes[op] < LEAST_ASYNCHRONOUS for op in accesses)
    name, widest = cuda.variant_name(kernel, alignment), max(bytes.values())
    return Variant(name, alignment, widest, total, scattered.sectors, waits)


def _is_asynchronous(op: GlobalAccess) -> bool:
    return isinstance(op, cuda.CopyOp) and op.asynchronous is not None


def alignment_lines(kernel: cuda.KernelOp) -> Iterator[str]:
    """One line for each variant."""
    for each in variants(kernel):
        moved = each.traffic
        strided = each.alignment == cuda.ANY_STRIDES
        what = "any strides" if strided else f"to {each.alignment} bytes"
        apart = f" ({each.scattered_sectors:,} if every element lies apart)" if strided else ""
        fewest = "" if moved.is_fewest else f", the fewest are {moved.fewest_sectors:,}"
        waits = "; too narrow for asynchronous copies" if each.waits else ""
        yield (
            f"@{each.name}, {what}: {each.bytes_a_thread} bytes a thread{'' if strided else ' at most'}, "
            f"{moved.requests:,} requests, {moved.sectors:,} sectors{fewest}{apart}{waits}"
        )

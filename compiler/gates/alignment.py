"""What a kernel's accesses to device memory cost, by the bytes that rows of its arrays are aligned to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.compiler.layouts.operations import assumed_strides, traffic_of
from treadle.compiler.layouts.sectors import Traffic
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
    waits: bool
    """Whether copies that could be asynchronous are not."""


def variants(kernel: cuda.KernelOp) -> list[Variant]:
    """The entries of a kernel, that for the widest alignment first."""
    accesses = [op for op in kernel.walk() if isinstance(op, GlobalAccess)]
    return [_variant(kernel, accesses, alignment) for alignment in cuda.alignments(kernel)] if accesses else []


def _variant(kernel: cuda.KernelOp, accesses: list[GlobalAccess], alignment: int) -> Variant:
    widths = {op: width_at(op, alignment) for op in accesses}
    total = Traffic(0, 0, 0, 0, 0, 0)
    for op, width in widths.items():
        total += traffic_of(op, kernel.threads.data, width, _strides(op, alignment), base=alignment % 16)
    bytes = {op: width * format_bytes(op.buffer_type) for op, width in widths.items()}
    waits = any(_is_asynchronous(op) and bytes[op] < LEAST_ASYNCHRONOUS for op in accesses)
    return Variant(cuda.variant_name(kernel, alignment), alignment, max(bytes.values()), total, waits)


def width_at(op: GlobalAccess, alignment: int) -> int:
    """Elements that an access moves at once where rows are aligned to so many bytes."""
    fitting = [width for width in op.width_list if width * format_bytes(op.buffer_type) <= alignment]
    return max(fitting, default=1)


def _strides(op: GlobalAccess, alignment: int) -> dict[str, int]:
    """Strides of a dense array, or where rows are not aligned to 16 bytes, longer by what they are aligned to."""
    strides = assumed_strides(op.buffer_type)
    more = 0 if alignment >= 16 else max(alignment // format_bytes(op.buffer_type), 1)
    return {axis: stride + more if stride > 1 else stride for axis, stride in strides.items()}


def _is_asynchronous(op: GlobalAccess) -> bool:
    return isinstance(op, cuda.CopyOp) and op.asynchronous is not None


def alignment_lines(kernel: cuda.KernelOp) -> Iterator[str]:
    """One line for each variant."""
    for each in variants(kernel):
        moved = each.traffic
        waits = "; too narrow for asynchronous copies" if each.waits else ""
        yield (
            f"@{each.name}, to {each.alignment} bytes: {each.bytes_a_thread} bytes a thread at most, "
            f"{moved.requests:,} requests, {moved.sectors:,} sectors{waits}"
        )

"""What a kernel's accesses to device memory cost, by the bytes that rows of its arrays are aligned to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from treadle.compiler.gates.banks import banks_told
from treadle.compiler.gates.beyond import BoxesOp, beyond_lines, moved_at
from treadle.compiler.layouts.operations import ASSUMED_SIZE, strides_at, traffic_of, width_at
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
    """Of the widest access; 0 if all are tensor copies."""
    traffic: Traffic
    """By requests of warps."""
    boxes: Traffic
    """By tensor copies."""
    scattered_sectors: int
    """Were every element in a sector of its own, which only the variant for any strides allows; else 0."""
    waits: bool
    """Whether copies that could be asynchronous are not."""


def variants(kernel: cuda.KernelOp) -> list[Variant]:
    """The entries of a kernel, that for the widest alignment first."""
    accesses = [op for op in kernel.walk() if isinstance(op, GlobalAccess)]
    copies = [
        op for op in kernel.walk() if isinstance(op, cuda.TensorLoadOp | cuda.TensorStoreOp | cuda.TensorGatherOp)
    ]
    alignments = cuda.alignments(kernel) if accesses or copies else ()
    return [_variant(kernel, accesses, copies, alignment) for alignment in alignments]


def _variant(
    kernel: cuda.KernelOp,
    accesses: list[GlobalAccess],
    copies: Sequence[BoxesOp],
    alignment: int,
) -> Variant:
    bytes = {op: width_at(op, alignment) * format_bytes(op.buffer_type) for op in accesses}
    total, scattered = sum_of(moved_at(op, kernel, alignment) for op in accesses), 0
    if alignment == cuda.ANY_STRIDES:
        scattered = sum(_scattered(op, kernel).sectors for op in accesses)
    boxes = sum_of(moved_at(op, kernel, alignment) for op in copies)
    waits = any(_is_asynchronous(op) and bytes[op] < LEAST_ASYNCHRONOUS for op in accesses)
    name, widest = cuda.variant_name(kernel, alignment), max(bytes.values(), default=0)
    return Variant(name, alignment, widest, total, boxes, scattered, waits)


def _scattered(op: GlobalAccess, kernel: cuda.KernelOp) -> Traffic:
    """What an access moves where each element lies in a sector of its own."""
    strides, base = strides_at(op, cuda.ANY_STRIDES)
    apart = {axis: stride * SECTOR_BYTES for axis, stride in strides.items()}
    return traffic_of(op, cuda.threads_at(op, kernel), cuda.ANY_STRIDES, apart, base)


def sum_of(moved: Iterable[Traffic]) -> Traffic:
    return sum(moved, start=Traffic(0, 0, 0, 0, 0, 0))


def _is_asynchronous(op: GlobalAccess) -> bool:
    return isinstance(op, cuda.CopyOp) and op.asynchronous is not None


def assumed_line() -> str:
    """For which arrays accesses are counted (`strides_at`)."""
    return (
        f"counted for whole tiles of dense arrays, {ASSUMED_SIZE} elements along an axis known only at launch: rows "
        f"aligned to {SECTOR_BYTES} bytes are padded to whole sectors, others lie further apart by what they are "
        "aligned to, and begin so far into a sector"
    )


def alignment_lines(kernel: cuda.KernelOp) -> Iterator[str]:
    """One line for each variant, and under it what asks for more sectors than the fewest, and why."""
    for each in variants(kernel):
        strided = each.alignment == cuda.ANY_STRIDES
        what = "any strides" if strided else f"to {each.alignment} bytes"
        told = [*_told(each), *banks_told(kernel, each.alignment)]
        yield f"@{each.name}, {what}: {'; '.join(told)}"
        yield from (f"  {line}" for line in beyond_lines(kernel, each.alignment))


def _told(each: Variant) -> Iterator[str]:
    strided, waits = each.alignment == cuda.ANY_STRIDES, "; too narrow for asynchronous copies" if each.waits else ""
    apart = f" ({each.scattered_sectors:,} if every element lies apart)" if strided else ""
    if each.traffic.requests:
        yield (
            f"{each.bytes_a_thread} bytes a thread at most, "
            f"{each.traffic.requests:,} requests, {_sectors(each.traffic)}{apart}{waits}"
        )
    if each.boxes.requests:
        yield f"{each.boxes.requests:,} tensor copies, {_sectors_of_boxes(each.boxes)}"


def _sectors(moved: Traffic) -> str:
    """`64 sectors, the fewest are 60`"""
    return f"{moved.sectors:,} sectors{'' if moved.is_fewest else f', the fewest are {moved.fewest_sectors:,}'}"


def _sectors_of_boxes(moved: Traffic) -> str:
    """`576 sectors, the fewest of boxes (544 of rows that are not cut)`"""
    cut = "" if moved.is_fewest else f", the fewest of boxes ({moved.fewest_sectors:,} of rows that are not cut)"
    return f"{moved.sectors:,} sectors{cut}"

"""Every access of every example, in each entry of its kernels: the fewest sectors; the fewest of the instruction, of
tensor copies; or a reason with its numbers, where a tile on the way would take more than it spares."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from treadle.compiler.gates.beyond import BOXES, BoxesOp, beyond_lines, moved_at
from treadle.compiler.layouts.boxes import mapped_strides
from treadle.compiler.layouts.sectors import SECTOR_BYTES
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import load_module
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.tiles import format_bytes
from treadle.dialects.diagram.array import axes_of
from treadle.passes.staging.told import ADDED

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.mlir"))
TOLD = re.compile(
    r"a tile on the way would spare (?P<spared>[\d,]+) and (?P<requests>[\d,]+) requests, and cost (?P<cost>[\d,]+) "
)
NO_MEETING = "warps with roles do not meet there for a tile on the way"


@pytest.mark.sample(12)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", NAMES)
def test_no_access_asks_for_more_than_it_has_to(name: str, machine: str) -> None:
    for kernel, alignment in entries(name, machine):
        for op in kernel.walk():
            if isinstance(op, cuda.TensorLoadOp | cuda.TensorStoreOp):
                moved = moved_at(op, kernel, alignment)
                assert moved.sectors == fewest_of_boxes(op, alignment, moved.fewest_sectors)
            elif isinstance(op, cuda.CopyOp):  # by the threads of a block, wherever rows lie
                assert moved_at(op, kernel, alignment).is_fewest
        for line in beyond_lines(kernel, alignment):
            assert is_reason(line), line


def entries(name: str, machine: str) -> Iterator[tuple[cuda.KernelOp, int]]:
    module = load_module(EXAMPLES / f"{name}.mlir")
    run_pipeline(module, Options(machine=machine))
    for kernel in module.body.block.ops:
        if isinstance(kernel, cuda.KernelOp):
            accesses = [op for op in kernel.walk() if isinstance(op, GlobalAccess | BoxesOp)]
            yield from product([kernel], cuda.alignments(kernel) if accesses else ())


def fewest_of_boxes(op: cuda.TensorLoadOp | cuda.TensorStoreOp, alignment: int, distinct: int) -> int:
    """The sectors of rows that lie apart, and for each cut that is no end of a sector one more: a row is cut where a
    box ends, after as many bytes as its swizzle reaches."""
    strides, base = mapped_strides(op, alignment)
    type, boxes = op.map_type.buffer, op.boxes
    axes, bytes = axes_of(type), format_bytes(type)
    row = axes[boxes.row_axis]
    if strides[row] != 1 or boxes.count == 1:
        return distinct
    shares = range(op.shares) if isinstance(op, cuda.TensorStoreOp) else range(1)
    others = [(axis, side) for axis, side in zip(axes, op.map_type.shape, strict=True) if axis != row]
    inner = len(boxes.firsts)
    rows = list(product(*(range(side) for _, side in others)))
    steps = [strides[axis] for axis, _ in others]
    starts = [base + sum(at * step for at, step in zip(place, steps, strict=True)) * bytes for place in rows]
    cuts = [start + number * boxes.span.data * bytes for start in starts for number in range(1, boxes.count)]
    return distinct + len(shares) * inner * sum(cut % SECTOR_BYTES != 0 for cut in cuts)


def is_reason(line: str) -> bool:
    if line.split(": ", 2)[-1].startswith(BOXES) or NO_MEETING in line or line.endswith(ADDED):
        return True
    found = TOLD.search(line)
    if found is None:
        return False
    spared, requests, cost = (int(found[name].replace(",", "")) for name in ("spared", "requests", "cost"))
    return spared + requests <= cost

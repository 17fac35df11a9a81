"""Who meets around a tile on the way of fragments: no more often than others may still use its place, and before roles,
the whole block."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle.compiler.layouts.operations import traffic_of
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.meetings import meets_before

from roads import Road, compiled  # isort: skip

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

KERNEL = """
#fragment = #cuda.layout<register = [n:2:1], lane = [n:32:2], warp = []>
#first = #cuda.staged<at = 0, below = 64, rows = #cuda.rows<extents = [64], pitch = 64>>
#second = #cuda.staged<at = 256, below = 64, rows = #cuda.rows<extents = [64], pitch = 64>>
!X = memref<64xf32, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
!t = tensor<64xf32, #diagram.array<[n], level = register, layout = #fragment>>
cuda.kernel @k (%x: !X, %y: !X, %n: index, %is: i1) threads 32 shared {shared} {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
{body}
}}
"""
A = "%a{i} = cuda.load %x[%zero] widths [1] through #first : !X -> !t"
OTHER = "%o{i} = cuda.load %y[%zero] widths [1] through #second : !X -> !t"
MEET = "cuda.barrier"
LOOP = "scf.for %i{i} = %zero to %n step %one {{"
AHEAD = "%has{i} = arith.cmpi ult, %zero, %n : index\nscf.if %has{i} {{"
BRANCH = "scf.if %is {{"
END = "}}"

CASES = {
    "nobody was there": ([A], [False]),
    "the place was used": ([A, MEET, OTHER, A], [False, False]),
    "and they have met since": ([A, BRANCH, END, A], [False, True]),
    "another place was used": ([OTHER, A], [False]),
    "an earlier turn used it": ([LOOP, A, END], [True]),
    "the turns meet in between": ([LOOP, A, MEET, END], [False]),
    "or before": ([LOOP, MEET, A, END], [False]),
    "only some turns meet": ([LOOP, BRANCH, MEET, END, A, END], [True]),
    "a branch of a turn": ([LOOP, MEET, BRANCH, A, END, END], [False]),
    "a loop that used it ended": ([LOOP, MEET, A, END, A], [False, True]),
    "with a meeting": ([LOOP, A, MEET, END, A], [False, False]),
    "or it had no turn": ([A, LOOP, A, MEET, END, A], [False, True, True]),
    "what a loop begins with": ([AHEAD, A, END, LOOP, MEET, A, MEET, END, A], [False, False, False]),
}


def kernel(lines: list[str], shared: int = 0) -> cuda.KernelOp:
    body = "\n".join(line.format(i=i) for i, line in enumerate(lines))
    (found,) = parse_module(KERNEL.format(shared=shared, body=body)).body.block.ops
    assert isinstance(found, cuda.KernelOp)
    return found


@pytest.mark.parametrize("name", CASES)
def test_all_meet_where_others_may_still_use_the_place(name: str) -> None:
    lines, wanted = CASES[name]
    loads = [op for op in kernel(lines).walk() if isinstance(op, cuda.LoadOp) and op.source.name_hint == "x"]
    assert [meets_before(op) for op in loads] == wanted


def test_tiles_of_the_kernel_may_still_be_read() -> None:
    (load,) = [op for op in kernel([A], shared=512).walk() if isinstance(op, cuda.LoadOp)]
    assert meets_before(load)


# -- limits that all warps need ----------------------------------------------------------------------


@cache
def road(name: str, machine: str) -> Road:
    return compiled((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8"), machine=machine)


def limits(made: Road, array: str) -> list[tuple[cuda.LoadOp, cuda.KernelOp]]:
    """The loads that all warps of a block do alike."""
    loads = [(op, kernel) for kernel in made.kernels for op in kernel.walk() if isinstance(op, cuda.LoadOp)]
    alike = [each for each in loads if not any(mode.axis for mode in each[0].result.type.encoding.layout.warp)]
    return [(op, kernel) for op, kernel in alike if op.source.name_hint == array]


@pytest.mark.parametrize(
    ("name", "machine", "array"), [("attention_segments", "h100", "first"), ("attention_packed", "a100", "of_q")]
)
@pytest.mark.parametrize("size", [200, 33, 1])
def test_numbers_that_limit_streams_come_once_for_a_block(name: str, machine: str, array: str, size: int) -> None:
    """All warps find the least and the largest: of a tile that the block copied, before its roles, too."""
    made = road(name, machine)
    for op, kernel in limits(made, array):
        assert op.staged is not None
        assert traffic_of(op, cuda.threads_at(op, kernel), 4).is_fewest
    lines = [line for line in made.text.splitlines() if f"&{array}[" in line or f"{array}_staged[" in line]
    assert lines
    made.check({"q": size, "x": size, "b": 1, "h": 2} if name == "attention_segments" else {"q": size, "x": size})


def test_a_number_is_loaded_once_however_lanes_count() -> None:
    """The length limits the stream and is compared in its steps: lanes hold it alike for both."""
    for machine in ("a100", "h100"):
        made = road("attention_lengths", machine)
        for found in made.kernels:
            assert sum(isinstance(op, cuda.LoadOp) and op.source.name_hint == "len" for op in found.walk()) == 1
        made.check({"b": 3, "h": 1, "q": 70, "x": 90})


@pytest.mark.parametrize("by", [1, 2, 4, 8])
def test_turns_that_meet_anyway_meet_once_for_a_tile(by: int) -> None:
    """Keys of linear attention in rows that begin anywhere: what a turn staged is read before its products meet."""
    made = road("linear_attention", "a100")
    loop = made.text[made.text.index("// streaming: x in pieces of") :]
    turn = loop[: loop.index("// streaming: the last piece")]
    assert "K_staged" in turn
    assert len(re.findall(r"if constexpr \(ALIGNED < 16\) \{\s*barrier_block", turn)) == 0
    rng = np.random.default_rng(by)

    def rows(count: int) -> Any:
        made = np.zeros((1, 1, count, 64 + by), np.float16)[..., by:]
        made[...] = rng.standard_normal(made.shape)
        return made

    assert all(verdict.ok for verdict in made.verdicts([rows(40), rows(250), rows(250)]))

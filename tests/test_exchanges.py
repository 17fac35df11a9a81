"""Exchanges between lanes, as they are printed and run: every element arrives, in any format, and the lowering takes
them where they are the cheapest way."""

from __future__ import annotations

import ctypes
import re
from functools import reduce
from operator import xor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.utils.arg_spec import ArgSpec

from roads import compiled
from treadle.compiler.errors import TreadleError
from treadle.compiler.layouts import plan_conversion
from treadle.compiler.layouts.exchange import lane_matrix
from treadle.compiler.pipeline import CHOOSING_PASS, Options, pipeline, print_cuda
from treadle.compiler.printer.exchanges import lane_read, lane_test
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LANES, LayoutAttr, Mode
from treadle.dialects.cuda.tiles import layout_of
from treadle.runtime.emulator import Array, EmulationError, compile_source

EXAMPLES = Path(__file__).parents[1] / "examples"

KERNEL = """
!A = memref<?x?x{format}, strided<[?, 1], offset: ?>, #diagram.array<[q, x], level = device>>
!s = tensor<{q}x{x}x{format}, #diagram.array<[q, x], level = register, layout = {source}>>
!t = tensor<{q}x{x}x{format}, #diagram.array<[q, x], level = register, layout = {target}>>
cuda.kernel @moves(%A: !A, %B: !A) threads {threads} shared 0 {{
  %zero = arith.constant 0 : index
  %a = cuda.load %A[%zero, %zero] widths [1] : !A -> !s
  %b = cuda.exchange %a : !s -> !t
  cuda.store %b into %B[%zero, %zero] widths [1] : !t, !A
}}
"""


def layouts(seed: int) -> tuple[LayoutAttr, LayoutAttr, int, int]:
    """Two layouts of one tile that hold the same elements in each of two warps, some of them in copies, and the sizes
    of the tile."""
    random = Random(seed)
    strides, digits = {"q": 1, "x": 1}, list[Mode]()
    for _ in range(random.randint(4, 7)):
        axis = random.choice("qx")
        digits.append(Mode(axis, 2, strides[axis]))
        strides[axis] *= 2
    if random.random() < 0.3:
        digits.append(Mode("q", 3, strides["q"]))
        strides["q"] *= 3
    warp = (Mode("q", 2, strides["q"]),)

    def dealt() -> LayoutAttr:
        twos = [mode for mode in digits if mode.size == 2]
        random.shuffle(twos)
        copies = max(random.randint(0, 2), 5 - len(twos))
        lane = [*twos[: 5 - copies], *[Mode("", 2, 0)] * copies]
        random.shuffle(lane)
        register = twos[5 - copies :] + [mode for mode in digits if mode.size == 3]
        random.shuffle(register)
        return LayoutAttr(register, lane, warp)

    return dealt(), dealt(), 2 * strides["q"], strides["x"]


FORMATS = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "f8E4M3FN": np.uint8}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.sample(6)) for seed in range(24)])
def test_printed_exchanges(seed: int, format: str) -> None:
    source, target, q, x = layouts(seed)
    module = parse_module(KERNEL.format(format=format, q=q, x=x, source=source, target=target, threads=2 * LANES))
    text = print_cuda(module)
    given, result = moved(text, FORMATS[format], q, x)
    np.testing.assert_array_equal(result, given)


def moved(text: str, kind: type, q: int, x: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """What the kernel is given, and what it stores."""
    given = np.arange(q * x, dtype=np.uint32).astype(np.uint8 if kind is np.uint8 else kind).reshape(q, x)
    result = np.zeros_like(given)
    strides = [ctypes.c_int64(stride) for stride in (x, 1)]
    kernel = compile_source(text, ["moves"])
    arguments = [Array(given, writable=False), *strides, Array(result, writable=True), *strides]
    kernel.launch("moves", (1, 1, 1), (2 * LANES, 1, 1), 0, arguments)
    return given, result


def test_exchanges_made_wrong() -> None:
    """A wrong lane gives wrong elements, and a shuffle that some lanes miss is a fault: tests here can fail."""
    source = LayoutAttr([Mode("q", 2, 32)], [Mode("q", 32, 1)], [Mode("q", 2, 64)])
    target = LayoutAttr([Mode("q", 2, 1)], [Mode("q", 32, 2)], [Mode("q", 2, 64)])
    module = parse_module(KERNEL.format(format="f32", q=128, x=1, source=source, target=target, threads=64))
    text = print_cuda(module)
    call = re.compile(r"= shuffle\((\w+(?:\[\d\])*), (\w+)\);")
    assert call.search(text)
    given, result = moved(call.sub(r"= shuffle(\1, \2 ^ 1);", text), np.float32, 128, 1)
    assert not np.array_equal(result, given)
    with pytest.raises(EmulationError, match=r"shuffle reads from thread \d+, which has returned"):
        moved(call.sub(r"= shuffle(\1, \2); if (lane == 3) return;", text), np.float32, 128, 1)


def test_what_no_exchange_can_do() -> None:
    """Layouts with gaps pass the verifier, which does not look at every element."""
    source = LayoutAttr([], [Mode("q", 32, 1)], [Mode("", 2, 0)])
    target = LayoutAttr([], [Mode("q", 16, 2), Mode("", 2, 0)], [Mode("", 2, 0)])
    module = parse_module(KERNEL.format(format="f32", q=31, x=1, source=source, target=target, threads=64))
    with pytest.raises(TreadleError, match="these layouts have no exchange"):
        print_cuda(module)


# -- lanes, as C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_lanes_that_are_read(seed: int) -> None:
    """By a matrix or by a table: the C gives each lane the one it reads."""
    random = Random(seed)
    matrix, constant = [random.randrange(LANES) for _ in range(5)], random.randrange(LANES)
    linear = {lane: reduce(xor, (c for i, c in enumerate(matrix) if lane >> i & 1), constant) for lane in range(LANES)}
    some = {lane: linear[lane] for lane in random.sample(range(LANES), random.randint(1, LANES))}
    table = {lane: random.randrange(LANES) for lane in range(LANES)}
    for sources in (linear, some, table):
        text = lane_read(sources)
        assert (lane_matrix(sources) is None) == (sources is table)
        assert {lane: value(text, lane) for lane in sources} == sources, text


def value(text: str, lane: int) -> int:
    """What an expression of C is for a lane; `>>` binds tighter than `&` in both languages, and casts may go."""
    python = re.sub(r"(0x[0-9a-f]+)u", r"\1", text).replace("/", "//")
    return int(eval(python, {"lane": lane, "int": int}))


@pytest.mark.parametrize("seed", range(20))
def test_lanes_that_pass_a_test(seed: int) -> None:
    random = Random(seed)
    lanes = set(random.sample(range(LANES), random.randint(1, 31)))
    free = set(random.sample(range(LANES), random.randint(0, 8))) - lanes
    for asked in (lanes, {lane for lane in range(LANES) if lane // 4 % 4 == seed % 4}):
        passing = {lane for lane in range(LANES) if value(lane_test(asked, free - asked), lane)}
        assert asked <= passing <= asked | free


# -- in the lowering -----------------------------------------------------------------------------------


def exchanged(name: str, rows: str = "", **sizes: int) -> list[cuda.ExchangeOp]:
    """The exchanges of an example at these sizes, after it was run and verified; a group has `rows`, as in `t=16`."""
    options = Options(arch="sm_80", sizes=sizes)
    asked = ArgSpec(CHOOSING_PASS, {"group": (rows,)}) if rows else None
    passes = tuple(asked if asked and each.name == asked.name else each for each in pipeline(options))
    text = (EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8")
    road = compiled(text, arch="sm_80", sizes=sizes, passes=passes)
    road.check(sizes)
    return [op for kernel in road.kernels for op in kernel.walk() if isinstance(op, cuda.ExchangeOp)]


def test_a_number_for_each_row_is_shuffled() -> None:
    """The one warp of a small `quantised_matmul`, fed all of i at once, holds the largest magnitude of all rows, as
    loads left it: the accumulator of the product, by which it is multiplied, wants it elsewhere. Shared memory would
    cost five times as much."""
    (found,) = exchanged("quantised_matmul", "t=16", t=16, i=128, o=16)
    plan = plan_conversion(layout_of(found.value.type), layout_of(found.result.type), 4, warp_barriers=False)
    assert plan.way == "shuffle"
    assert (plan.cost.total, dict(plan.others)["shared"].total) == (10, 50)


def test_a_left_operand_is_shuffled() -> None:
    """Where a tile is small, what was computed in rows becomes the left operand of a product without shared memory."""
    (found,) = exchanged("quantised_matmul", "t=16", t=16, i=32, o=8)
    assert str(found.result.type).startswith("tensor<16x32xf16")
    assert found.result.name_hint == found.value.name_hint


def test_larger_values_go_through_shared_memory() -> None:
    """Two rounds a register and more: vectors of shared memory are cheaper, and other warps are reached by nothing
    else."""
    assert not exchanged("softmax_matmul", row=40, x=100, e=24)

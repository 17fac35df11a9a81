"""Absent elements between kernels: what reads them in another kernel asks the condition again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import treadle
import treadle.language as tl
from roads import compiled
from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.fusion import FusionPass

PROGRAM = """
!X = tensor<?x?xf32, #diagram.array<[i, j]>>
!H = tensor<?x?xf16, #diagram.array<[i, j]>>
!r = tensor<?xf32, #diagram.array<[i]>>
!s = tensor<?xf32, #diagram.array<[j]>>
func.func @f(%X: !X, %R: !r, %n: i32) -> (!r, !s) attributes {sizes = #diagram.sizes<i = 70, j = 90>} {
  BODY
  %a = diagram.reduce max %W over [j] : !X -> !r
  %b = diagram.reduce max %W over [i] : !X -> !s
  func.return %a, %b : !r, !s
}
"""

PRODUCT = """
!A = tensor<?x64xf16, #diagram.array<[i, k]>>
!B = tensor<?x64xf16, #diagram.array<[j, k]>>
!X = tensor<?x?xf32, #diagram.array<[i, j]>>
!r = tensor<?xf32, #diagram.array<[i]>>
!s = tensor<?xf32, #diagram.array<[j]>>
func.func @f(%A: !A, %B: !B) -> (!r, !s) attributes {sizes = #diagram.sizes<i = 70, j = 90>} {
  %X = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !X
  BODY
  %a = diagram.reduce max %W over [j] : !X -> !r
  %b = diagram.reduce max %W over [i] : !X -> !s
  func.return %a, %b : !r, !s
}
"""

BY_POSITION = '%W = diagram.where %X if "j <= i" : !X'
BY_DATA = '%W = diagram.where %X if "j < n" with (n = %n : i32) : !X'
OF_A_MAP = """%K = diagram.where %X if "j <= i" : !X
  %L = diagram.where %K if "i < n" with (n = %n : i32) : !X
  %W = diagram.map (%x = %L : !X) -> !X {
    %c = arith.constant -1.0 : f32
    %y = arith.divf %c, %x : f32
    %z = arith.subf %c, %y : f32
    diagram.yield %z : f32
  }"""
OF_A_ROW = """%K = diagram.where %R if "i < j" with (j = %n : i32) : !r
  %W = diagram.map (%k = %K : !r, %x = %X : !X) -> !X {
    %y = arith.addf %k, %x : f32
    diagram.yield %y : f32
  }"""
"""The input has the name of an axis that the row has not, and the array that is made of it has."""
OF_A_SUM = """%P = diagram.reduce max %X over [j] : !X -> !r
  %K = diagram.map (%x = %X : !X, %p = %P : !r) -> !X {
    %y = arith.addf %x, %p : f32
    diagram.yield %y : f32
  }
  %W = diagram.where %K if "j <= i" : !X"""

BODIES = {
    "by_position": BY_POSITION,
    "by_data": BY_DATA,
    "of_a_map": OF_A_MAP,
    "of_a_row": OF_A_ROW,
    "of_a_sum": OF_A_SUM,
}


def fused(body: str, fusion: FusionPass | None = None) -> ModuleOp:
    module = parse_module(PROGRAM.replace("BODY", body))
    (fusion or FusionPass()).apply(Context(), module)
    return module


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_both_readers_pass_over_what_is_absent(body: str, machine: str) -> None:
    """Elements are below zero, so that a zero that is taken for one would be the maximum."""
    road = compiled(PROGRAM.replace("BODY", body), machine=machine)
    dice = np.random.default_rng(0)
    for i, j in ((70, 90), (33, 65), (1, 130), (5, 0), (0, 5)):
        X = -2 - dice.random((i, j), np.float32)
        R = -2 - dice.random(i, np.float32)
        for verdict in road.verdicts([X, R, 20], {"i": i, "j": j}):
            assert verdict.ok, (i, j, verdict)


def test_what_is_read_anyway_is_selected_again() -> None:
    """Nothing is saved for the second kernel, which reads the argument."""
    first, second = (op for op in fused(BY_POSITION).walk() if isinstance(op, KernelOp))
    assert len(first.outputs) == 1
    assert [sum(isinstance(op, WhereOp) for op in kernel.walk()) for kernel in (first, second)] == [1, 1]


def test_what_depends_on_a_reduction_is_made_again_of_that() -> None:
    """The maximum, a number a row, is saved in place of the array."""
    first, second = (op for op in fused(OF_A_SUM).walk() if isinstance(op, KernelOp))
    assert [axes_of(value.type) for value in first.outputs] == [("i",), ("i",)]
    assert [op.name for op in second.body.block.ops][:2] == ["diagram.map", "diagram.where"]


def test_what_a_product_computes_is_saved_and_selected_again() -> None:
    """A scaled product would be as large as what is made of it."""
    text = PRODUCT.replace("BODY", BY_POSITION)
    module = parse_module(text)
    FusionPass().apply(Context(), module)
    first, second = (op for op in module.walk() if isinstance(op, KernelOp))
    assert len(first.outputs) == 2
    (again,) = (op for op in second.walk() if isinstance(op, WhereOp))
    assert again.operand in second.body.block.args


def test_an_input_gives_way_to_an_axis() -> None:
    texts = [op.condition.text.data for op in fused(OF_A_ROW).walk() if isinstance(op, WhereOp)]
    assert texts == ["i < j", "i < j"]  # made again of the row
    apart = fused(OF_A_ROW, FusionPass(together=False))
    texts = [op.condition.text.data for op in apart.walk() if isinstance(op, WhereOp)]
    assert texts == ["i < j", "i < j", "i < j_1", "i < j_1"]


def test_what_is_in_no_kernel_cannot_ask() -> None:
    """A read is the operand's memory with other strides, so what it gives has no conditions."""
    body = f"""{BY_POSITION}
  %Y = diagram.read %W at "i, j" : !X -> !X
  %c = diagram.reduce max %Y over [i] : !X -> !s"""
    text = PROGRAM.replace("BODY", body).replace("%a, %b : !r, !s", "%a, %c : !r, !s")
    with pytest.raises(TreadleError, match=r"%W has elements only where 'j <= i', but it would be saved by a kernel"):
        run_pipeline(parse_module(text), Options(machine="a100"))


ADDED = """
!X = tensor<?x?xf32, #diagram.array<[i, j]>>
!Y = tensor<?x?xf32, #diagram.array<[i, k]>>
!T = tensor<?x?xf32, #diagram.array<[j, k]>>
!r = tensor<?xf32, #diagram.array<[i]>>
!s = tensor<?xf32, #diagram.array<[k]>>
func.func @f(%X: !X) -> (!r, RESULT) attributes {sizes = #diagram.sizes<i = 70, j = 90, k = 90>} {
  %W = diagram.where %X if "j <= i and i < j + 40" : !X
  %Y = diagram.read %W at "i, k" : !X -> !Y
  %a = diagram.reduce max %W over [j] : !X -> !r
  %one = diagram.fill NUMBER : f32 -> !T
  %until = diagram.where %one if "k <= j" : !T
  %c = SUM
  func.return %a, %c : !r, RESULT
}
"""
SUMS = {
    "reduce": ("!s", "diagram.reduce add %Y over [i] : !Y -> !s"),
    "contract": ("!X", "diagram.contract %until, %Y over [k] accumulate f32 : !T, !Y -> !X"),
}


def added(kind: str, number: str = "2.0") -> str:
    result, total = SUMS[kind]
    return ADDED.replace("RESULT", result).replace("SUM", total).replace("NUMBER", number)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("kind", SUMS)
def test_sums_take_the_zeros_that_are_saved(kind: str, machine: str) -> None:
    """A read is in no kernel, and nobody asks again: a zero counts for as little as what is absent."""
    kernel = treadle.compile(added(kind), machine=machine, passes=["diagram-raise-scans{sums=none}"])
    for i, j in ((70, 90), (33, 65), (150, 200), (1, 130), (5, 0), (0, 5)):
        X = -2 - np.random.default_rng(0).random((i, j), np.float32)
        for verdict in kernel.verify(X, backend="emulator"):
            assert verdict.ok, (i, j, verdict)


def test_no_infinity_is_multiplied_by_the_zeros_that_are_saved() -> None:
    with pytest.raises(Refusal, match="would be saved by a kernel and read by what is in none"):
        FusionPass().apply(Context(), parse_module(added("contract", "0x7F800000")))


def added_up(B: Any) -> Any:
    summed = tl.sum(tl.cumsum(tl.keep(B, "c <= b"), over="c"), over="c")
    return tl.cumsum(summed, over="b")


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("shape", [(10, 5), (70, 90)])
def test_a_cumulative_sum_of_what_is_kept_is_added_up(shape: tuple[int, int], machine: str) -> None:
    """The read is the compiler's own."""
    B = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for static in ("", "b c"):
        kernel = treadle.kernel("b c -> b", machine=machine, static=static)(added_up)
        wanted = np.tril(B).astype(float).cumsum(1).sum(1).cumsum()
        np.testing.assert_allclose(kernel(B, backend="emulator"), wanted, rtol=1e-4, atol=1e-4)


def over_two_axes(Q: Any, K: Any, V: Any, T: Any) -> Any:
    S = tl.keep(tl.contract(Q, K, over="d"), "t[q // 3, y // 64] > 0", t=T)
    return tl.contract(tl.softmax(S, over="x y").to("f16"), V, over="x y")


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_a_table_is_read_again(machine: str) -> None:
    """What a condition asks of is read from an argument by each kernel: that one saves it for another was refused, as
    every group along `r` would save it again."""
    function = treadle.kernel("q r d, x y d, x y e, m n -> q r e", machine=machine)(over_two_axes)
    sizes = {"q": 64, "r": 64, "x": 30, "y": 30, "d": 16, "e": 16, "m": 22, "n": 1}
    kernel = treadle.compile(function.trace(["f16", "f16", "f16", "i8"], sizes, "de"), machine=machine)
    dice = np.random.default_rng(0)
    for q, r, x, y in ((7, 2, 16, 5), (1, 1, 1, 130), (3, 5, 3, 0)):
        Q, K, V = (dice.standard_normal((*n, 16)).astype(np.float16) for n in ((q, r), (x, y), (x, y)))
        for verdict in kernel.verify(Q, K, V, dice.integers(0, 2, (3, 3)).astype(np.int8), backend="emulator"):
            assert verdict.ok, (q, r, x, y, verdict)

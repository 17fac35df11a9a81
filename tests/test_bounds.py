"""What passes claim of an array whose elements conditions leave out: nothing of those that are there by those that are
not, and nothing of all by some."""

from __future__ import annotations

import math

import pytest
from xdsl.dialects.builtin import f16
from xdsl.ir import SSAValue

from treadle.compiler.source import parse_module
from treadle.passes.expressions.distances import distance_of
from treadle.passes.expressions.kinds import kinds_of
from treadle.passes.expressions.magnitudes import magnitude
from treadle.passes.expressions.misfit import misfit
from treadle.passes.expressions.scalars import Leaf

ROWS = """
!S = tensor<3x40xf32, #diagram.array<[q, x]>>
!s = tensor<3xf32, #diagram.array<[q]>>
func.func @f(%S: !S) -> (!S, !s) {{
  %W = diagram.where %S if "x < 4" : !S
  %some = diagram.map (%a = %S : !S, %w = %W : !S) -> !S {{
    %z = arith.subf %w, %w : f32
    %y = arith.addf %a, %z : f32
    diagram.yield %y : f32
  }}
  %all = diagram.map (%a = %S : !S) -> !S {{
    diagram.yield %a : f32
  }}
  %m = diagram.reduce max %{among} over [x] : !S -> !s
  %P = diagram.map (%a = %{these} : !S, %b = %m : !s) -> !S {{
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }}
  %l = diagram.reduce add %P over [x] : !S -> !s
  func.return %P, %l : !S, !s
}}
"""


def powers(among: str, these: str) -> tuple[SSAValue, SSAValue]:
    """Powers of the distance of some elements from the maximum of some, and their sum."""
    module = parse_module(ROWS.format(among=among, these=these))
    (result,) = [op for op in module.walk() if op.name == "func.return"]
    return result.operands[0], result.operands[1]


@pytest.mark.parametrize("some", ["all", "some"])
def test_a_distance_from_the_maximum_of_the_same(some: str) -> None:
    powered, _ = powers(some, some)
    near = distance_of(Leaf(powered))
    assert near is not None
    assert near.is_reached
    assert magnitude(Leaf(powered)) == 1
    assert misfit(Leaf(powered), f16, ["x"]) is None


def test_of_all_from_the_maximum_of_some_nothing_is_known() -> None:
    powered, sum = powers("some", "all")
    assert distance_of(Leaf(powered)) is None
    assert magnitude(Leaf(powered)) == math.inf
    assert misfit(Leaf(powered), f16, ["x"]) is not None
    assert "0" in kinds_of(Leaf(sum))


def test_some_are_below_the_maximum_of_all_but_perhaps_far() -> None:
    powered, sum = powers("all", "some")
    near = distance_of(Leaf(powered))
    assert near is not None
    assert not near.is_reached
    assert magnitude(Leaf(powered)) == 1
    assert misfit(Leaf(powered), f16, ["x"]) is not None
    assert "0" in kinds_of(Leaf(sum))

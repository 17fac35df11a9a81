"""What a map makes of arrays whose axes differ is reduced where it is made, so that a lane never has all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.utils.arg_spec import ArgSpec

from roads import compiled
from treadle.compiler.pipeline import CHOOSING_PASS, Options, pipeline

EXAMPLES = Path(__file__).parents[1] / "examples"

DISTANCES = """
!Q = tensor<?x?xf16, #diagram.array<[q, d]>>
!K = tensor<?x?xf16, #diagram.array<[x, d]>>
!W = tensor<?x?x?xf32, #diagram.array<[q, x, d]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
func.func @distances(%Q: !Q, %K: !K) -> !S attributes {sizes = #diagram.sizes<q = 40, x = 50, d = 64>} {
  %W = diagram.map (%q = %Q : !Q, %k = %K : !K) -> !W {
    %q32 = arith.extf %q : f16 to f32
    %k32 = arith.extf %k : f16 to f32
    %apart = arith.subf %q32, %k32 : f32
    %w = math.absf %apart : f32
    diagram.yield %w : f32
  }
  %S = diagram.reduce KIND %W over [d] : !W -> !S
  func.return %S : !S
}
"""
"""The distance of each pair of rows: no product makes it."""


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("kind", ["add", "max"])
def test_distances_are_reduced_where_they_are_made(kind: str, machine: str) -> None:
    passes = [spec for spec in pipeline(Options(machine=machine)) if spec.name != CHOOSING_PASS]
    place = [spec.name for spec in pipeline(Options(machine=machine))].index(CHOOSING_PASS)
    passes.insert(place, ArgSpec(CHOOSING_PASS, {"group": ("q=8,x=64",), "stream": ("d=64",)}))
    road = compiled(DISTANCES.replace("KIND", kind), machine=machine, passes=tuple(passes))
    assert "const float W = " in road.text
    whole = road.text[: road.text.index("// streaming: the last piece")]
    assert "float W[" not in whole  # of the last piece, elements past the end are left out in between
    for sizes in ({"q": 40, "x": 50, "d": 64}, {"q": 3, "x": 17, "d": 9}):
        road.check(sizes)


def test_beside_products_they_are_too() -> None:
    road = compiled((EXAMPLES / "gated_linear_attention.mlir").read_text(encoding="utf-8"), machine="a100")
    assert "const float W = " in road.text
    assert "float W[" not in road.text


def test_what_is_no_more_than_its_operands_is_made_first() -> None:
    """A map in the place of its operand takes no registers, and what other operations need is there for them."""
    road = compiled((EXAMPLES / "softmax.mlir").read_text(encoding="utf-8"), machine="a100")
    assert "exp2_approx(" in road.text
    assert not any("const float" in line and "exp2_approx(" in line for line in road.text.splitlines())

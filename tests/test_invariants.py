"""What a map makes of fewer axes than its result has stands before it, in the order of its body."""

from __future__ import annotations

from treadle.compiler.lowering.invariants import invariants_of
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import MapOp

COUNT = 12
NAMES = [f"r{i}" for i in range(COUNT)]
ARGUMENTS = ", ".join(f"%{name} : !r" for name in NAMES)
LINES = "\n".join(
    f"    %e{i} = math.sqrt %a_{name} : f32\n    %t{i + 1} = arith.mulf %t{i}, %e{i} : f32"
    for i, name in enumerate(NAMES)
)
TEXT = f"""
!x = tensor<?x?xf32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
func.func @f(%X : !x, {ARGUMENTS.replace(" :", ":")}) -> !x {{
  %Y = diagram.map (%t0 = %X : !x, {", ".join(f"%a_{name} = %{name} : !r" for name in NAMES)}) -> !x {{
{LINES}
    diagram.yield %t{COUNT} : f32
  }}
  func.return %Y : !x
}}
""".replace("%X :", "%X:")


def test_they_stand_in_the_order_of_the_body() -> None:
    """Not in that of a set, which differs from one run to the next: a program has one kernel, byte for byte."""
    module = parse_module(TEXT)
    (map,) = (op for op in module.walk() if isinstance(op, MapOp))
    found = [each.value.name_hint for each in invariants_of(map)]
    assert found == [f"e{i}" for i in range(COUNT)]

"""What the body of a map makes of fewer axes than its result has."""

from __future__ import annotations

from treadle.compiler.lowering.invariants import invariants_of
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import MapOp


def test_they_come_in_the_order_of_the_body() -> None:
    """And in no other where addresses differ: a program gives one text, whenever it is compiled."""
    count = 8
    rows = ", ".join(f"%r{i}: !r" for i in range(count))
    given = ", ".join(f"%b{i} = %r{i} : !r" for i in range(count))
    powers = "\n".join(f"%e{i} = math.exp %b{i} : f32" for i in range(count))
    products = "\n".join(f"%p{i + 1} = arith.mulf %p{i}, %e{i} : f32" for i in range(count))
    module = parse_module(f"""
    !r = tensor<?xf32, #diagram.array<[q]>>
    !A = tensor<?x?xf32, #diagram.array<[q, x]>>
    func.func @f(%A: !A, {rows}) -> !A {{
      %B = diagram.map (%p0 = %A : !A, {given}) -> !A {{
        {powers}
        {products}
        diagram.yield %p{count} : f32
      }}
      func.return %B : !A
    }}""")
    (map,) = [op for op in module.walk() if isinstance(op, MapOp)]
    found = invariants_of(map)
    assert [each.value.name_hint for each in found] == [f"e{i}" for i in range(count)]
    assert {each.axes for each in found} == {("q",)}

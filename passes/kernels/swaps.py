"""Swaps that no kernel can do in its registers: they read the array, once it is saved."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i1, i32
from xdsl.ir import Block, Operation

from treadle.dialects.diagram import IndexOp, ReadOp, SwapOp
from treadle.dialects.diagram.array import array_type, sizes_of
from treadle.passes._functions import replace
from treadle.passes.expressions.scalars import Constant, Leaf, Node, build_map, compare, select


def read_what_others_have(block: Block, clusters: Iterable[frozenset[Operation]]) -> bool:
    """Read at other positions what is swapped in another kernel than that which makes it, or in none; whether there
    is such a swap."""
    inside = {op: cluster for cluster in clusters for op in cluster}
    left = [op for op in block.ops if isinstance(op, SwapOp)]
    left = [op for op in left if op not in inside or op.operand.owner not in inside[op]]
    for op in left:
        _read(op)
    return bool(left)


def _read(op: SwapOp) -> None:
    axis, length = op.axis.data, op.length
    type = array_type(i32, {axis: sizes_of(op.operand.type)[axis]})
    index = IndexOp(type)
    at, one = Leaf(index.result), _number(length)
    block = Node(arith.AndIOp, (Node(arith.FloorDivSIOp, (at, one), i32), _number(1)), i32)
    is_first = compare(block, "==", _number(0))
    assert is_first.type == i1
    moved = (Node(kind, (at, one), i32) for kind in (arith.AddiOp, arith.SubiOp))
    positions = build_map(select(is_first, *moved), type, f"{axis}_swapped", op.location)
    name = f"at_{axis}"
    places = [f"{name}[{axis}]" if each == axis else each for each in sizes_of(op.operand.type)]
    read = ReadOp(op.operand, ", ".join(places), op.operand.type, padded=True, inputs={name: positions.result})
    index.location = read.location = op.location
    replace(op, [index, positions, read], read.result)


def _number(value: int) -> Constant:
    return Constant(IntegerAttr(value, i32))


__all__ = ["read_what_others_have"]

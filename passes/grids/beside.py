"""A kernel of clusters beside one without, where only the launch knows whether clusters divide the grid."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.cost.clusters import Shape
from treadle.dialects import cuda
from treadle.passes.grids.cluster_laws import Sides
from treadle.passes.grids.coordinates import Coordinate, coordinates_of

SUFFIX = "_clusters"


def beside(kernel: cuda.KernelOp, launch: cuda.LaunchOp, shape: Sides) -> tuple[cuda.KernelOp, cuda.LaunchOp, Sides]:
    """A copy of the kernel, which is launched in its stead where the cluster divides the pieces; the launch of it, and
    the cluster by its coordinates."""
    copy = kernel.clone()
    for old, new in zip(kernel.walk(), copy.walk(), strict=True):
        new.location = old.location
    copy.sym_name = StringAttr(f"{kernel.sym_name.data}{SUFFIX}")
    Rewriter.insert_op(copy, InsertPoint.after(kernel))
    given: dict[SSAValue, SSAValue] = dict(zip(kernel.body.block.args, launch.arguments, strict=True))
    coordinates = coordinates_of(kernel)
    ops: list[Operation] = []
    rests: list[SSAValue] = []
    for place, size in shape.sides:
        count = _count(place, coordinates, launch, given, ops)
        blocks = arith.ConstantOp.from_int_and_width(size, IndexType())
        rest = arith.RemUIOp(count, blocks.result)
        ops += [blocks, rest]
        rests.append(rest.result)
    if len(rests) > 1:
        ops.append(both := arith.AddiOp(rests[0], rests[1]))
        rests = [both.result]
    zero = arith.ConstantOp.from_int_and_width(0, IndexType())
    divides = arith.CmpiOp(rests[0], zero.result, "eq")
    divides.result.name_hint = "divides"
    taken = cuda.LaunchOp(copy.sym_name.data, launch.grid, launch.alignment, list(launch.arguments))
    taken.location = launch.location
    branch = scf.IfOp(
        divides.result,
        [],
        Region(Block([taken, scf.YieldOp()])),
        Region(Block([launch.clone(), scf.YieldOp()])),
    )
    branch.location = launch.location
    Rewriter.replace_op(launch, [*ops, zero, divides, branch], [])
    same = dict(zip(coordinates, coordinates_of(copy), strict=True))
    return copy, taken, Shape(tuple((same[place], size) for place, size in shape.sides))


def _count(
    place: Coordinate,
    coordinates: Sequence[Coordinate],
    launch: cuda.LaunchOp,
    given: dict[SSAValue, SSAValue],
    ops: list[Operation],
) -> SSAValue:
    """How many pieces there are along a coordinate, in the host function; its operations go to `ops`."""
    if place.count is not None:
        return _on_host(place.count, given, ops)
    count = launch.grid
    for inner in (each.count for each in coordinates if each.count is not None):
        one = arith.ConstantOp.from_int_and_width(1, IndexType())
        some = arith.MaxSIOp(_on_host(inner, given, ops), one.result)  # an empty grid is launched by nobody
        quotient = arith.DivUIOp(count, some.result)
        ops += [one, some, quotient]
        count = quotient.result
    return count


def _on_host(value: SSAValue, given: dict[SSAValue, SSAValue], ops: list[Operation]) -> SSAValue:
    """The same number in the host function, of the arguments of the launch; its operations go to `ops`."""
    if value in given:
        return given[value]
    owner = value.owner
    assert isinstance(owner, Operation)
    for operand in owner.operands:
        _on_host(operand, given, ops)
    ops.append(copy := owner.clone(value_mapper=dict(given)))
    copy.results[0].name_hint = value.name_hint
    copy.attributes.clear()
    given[value] = copy.results[0]
    return copy.results[0]

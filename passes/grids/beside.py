"""A kernel of clusters beside one without, where only the launch knows whether clusters divide the grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, StringAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.cost.timing.clusters import Shape
from treadle.dialects import cuda
from treadle.passes.grids.cluster_laws import Sides
from treadle.passes.grids.coordinates import Coordinate, coordinates_of
from treadle.passes.grids.renumber import lies_side_by_side

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
    rests = [_rest(count, size, ops) for count, size in _divided(shape, coordinates, launch, given, ops)]
    while len(rests) > 1:
        ops.append(both := arith.AddiOp(rests.pop(), rests.pop()))
        rests.append(both.result)
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


def _divided(
    shape: Sides,
    coordinates: Sequence[Coordinate],
    launch: cuda.LaunchOp,
    given: dict[SSAValue, SSAValue],
    ops: list[Operation],
) -> Iterator[tuple[SSAValue, SSAValue]]:
    """The numbers of the host function that clusters divide, and by what; the operations that they take go to `ops`.
    Where pieces are numbered anew, the grid consists of whole rows of clusters, too."""
    for place, size in shape.sides:
        if place.count is not None:
            yield _on_host(place.count, given, ops), _constant(size, ops)
    if lies_side_by_side(shape, coordinates):
        if coordinates[-1].count is None:
            yield launch.grid, _constant(shape.blocks, ops)
        return
    row = _constant(dict(shape.sides).get(coordinates[0], 1), ops)
    for inner in (each.count for each in coordinates if each.count is not None):
        ops.append(product := arith.MuliOp(row, _on_host(inner, given, ops)))
        row = product.result
    ops.append(some := arith.MaxSIOp(row, _constant(1, ops)))  # an empty row divides nothing
    yield launch.grid, some.result


def _rest(count: SSAValue, size: SSAValue, ops: list[Operation]) -> SSAValue:
    ops.append(rest := arith.RemUIOp(count, size))
    return rest.result


def _constant(number: int, ops: list[Operation]) -> SSAValue:
    ops.append(made := arith.ConstantOp.from_int_and_width(number, IndexType()))
    return made.result


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

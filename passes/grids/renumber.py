"""Number the pieces of a grid so that neighbouring blocks are those of a cluster, along whatever axes that lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects import cuda
from treadle.passes.grids.cluster_laws import Sides
from treadle.passes.grids.coordinates import Coordinate, number_of_unit, same_number, split_of


def lies_side_by_side(shape: Sides, coordinates: Sequence[Coordinate]) -> bool:
    """Whether the blocks of a cluster are neighbours in the grid as it is: they differ in the innermost coordinate."""
    return [place for place, _ in shape.sides] == [coordinates[-1]]


def renumber(kernel: cuda.KernelOp, shape: Sides) -> None:
    """Split the number of the cluster, in place of the block's, into coordinates of clusters; a block's own are so many
    times as far on, and as many more as its place in the cluster says. A bijection where the cluster divides the
    pieces along each of its coordinates."""
    block = number_of_unit(kernel)
    assert isinstance(block, cuda.BlockIndexOp)
    comment = block.attributes.get("comment")
    rank, cluster = cuda.BlockInClusterOp(), cuda.ClusterIndexOp()
    rank.result.name_hint, cluster.result.name_hint = "place", "cluster"
    told = " by ".join(f"{count} along {place.name}" for place, count in shape.sides)
    rank.attributes["comment"] = StringAttr(f"clusters: {told}")
    if comment is not None:
        cluster.attributes["comment"] = comment
    Rewriter.insert_op([rank], InsertPoint.before(block))
    cluster.location = rank.location = block.location
    digits = dict(_digits(shape, rank))
    for place, digit in digits.items():
        digit.name_hint = digit.name_hint or f"place_along_{place.name}"
    for place, count in shape.sides:
        if place.count is not None:
            _count_clusters(place, count)
        _move_on(place, count, digits[place])
    Rewriter.replace_op(block, [cluster], [cluster.result])


def _digits(shape: Sides, rank: cuda.BlockInClusterOp) -> Iterator[tuple[Coordinate, SSAValue]]:
    """The place of a block in its cluster along each coordinate, the last one fastest."""
    rest, after = rank.result, InsertPoint.after(rank)
    for number, (place, count) in enumerate(reversed(shape.sides), 1):
        if number == len(shape.sides):
            yield place, rest
            return
        size = _constant(count)
        digit, quotient = arith.RemUIOp(rest, size.result), arith.DivUIOp(rest, size.result)
        Rewriter.insert_op([size, digit, quotient], after)
        after, rest = InsertPoint.after(quotient), quotient.result
        yield place, digit.result


def _count_clusters(place: Coordinate, size: int) -> None:
    """Split by so many fewer, which are clusters."""
    remainder = place.value.owner
    assert isinstance(remainder, arith.RemUIOp)
    found = split_of(remainder.lhs)
    assert found is not None
    known = same_number(remainder.rhs)
    blocks = _constant(size)
    fewer = arith.DivUIOp(remainder.rhs, blocks.result) if isinstance(known, SSAValue) else _constant(known // size)
    fewer.result.name_hint = remainder.rhs.name_hint
    first, second = found
    earlier = first if second is None or first.is_before_in_block(second) else second
    Rewriter.insert_op([blocks, fewer] if isinstance(known, SSAValue) else [fewer], InsertPoint.before(earlier))
    for op in filter(None, found):
        op.operands[1] = fewer.results[0]


def _move_on(place: Coordinate, size: int, digit: SSAValue) -> None:
    """Where a block's piece lies in that of its cluster."""
    uses, blocks = list(place.value.uses), _constant(size)
    first = arith.MuliOp(place.value, blocks.result)
    own = arith.AddiOp(first.result, digit)
    owner = place.value.owner
    assert isinstance(owner, Operation)
    Rewriter.insert_op([blocks, first, own], InsertPoint.after(owner))
    for use in uses:
        use.operation.operands[use.index] = own.result


def _constant(number: int) -> arith.ConstantOp:
    return arith.ConstantOp.from_int_and_width(number, IndexType())

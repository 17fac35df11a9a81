"""What one turn of a kernel's main loop computes, read from the IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith, scf
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.dialects import cuda
from treadle.dialects.cuda.products import DEPTHS
from treadle.dialects.cuda.promoted import parts_of_product
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.cuda.warpgroups import steps_of
from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.array import format_of, sizes_of

ACCUMULATORS = 4
"""Elements of an m16n8 accumulator that one lane holds."""

CONVERTING = 90
"""The capability whose single warps multiply no 8 bits, though its warpgroups do: each such instruction is two in f16,
with operands converted (`compiler/primitives/eight_bit.cuh`)."""


@dataclass(frozen=True)
class Step:
    """One turn of the loop that multiplies, as one warp sees it.

    A *score* is an element of a product that the loop does not accumulate: it is computed, worked on and used up
    within the turn, as in attention. A loop without scores only accumulates, as a matrix product does."""

    products: int
    """Instructions that multiply on tensor cores; 0 where other units do it."""
    scores: float
    """Elements of scores that a lane holds."""
    depth: int
    """Elements that the product which makes the scores, else any product, sums over."""
    format: str
    """Of the operands."""
    tile: Mapping[str, int]
    """What the block computes in a turn: sizes of the accumulated result and of the summed axis."""
    copies: bool
    """Whether the loop brings tiles to shared memory."""
    masked: bool
    """Whether every turn puts elements aside: outside an array, or by a condition that each is asked."""
    warpgroups: bool = False
    """Whether warpgroups multiply, rather than single warps."""


def step_of(kernel: cuda.KernelOp, capability: int) -> Step | None:
    """The main loop of a kernel, for a machine of that capability: of those that multiply in their own body, the one
    with most products; a loop around one that multiplies (over the pieces of a block, say) is none, as in machine code,
    where a subloop is a loop, too, unless it has products of its own beside subloops. None if the kernel has no such
    loop."""
    steps = {op: step for op in kernel.walk() if (step := _step(op, capability) or _subloop(op, capability))}
    around = {parent for op in steps for parent in _parents(op) if not (_is_subloop(op) and _has_others(parent))}
    found = [step for op, step in steps.items() if op not in around]
    return max(found, key=lambda step: (step.products, not step.masked), default=None)


def _is_subloop(op: Operation) -> bool:
    return isinstance(op, cuda.ProductOp) and op.subloop is not None


def _has_others(loop: Operation) -> bool:
    """Whether the products of a loop are not subloops alone."""
    own = _own(loop) if isinstance(loop, scf.ForOp) else ()
    return any(isinstance(op, cuda.ProductOp) and op.subloop is None for op in own)


def _subloop(product: Operation, capability: int) -> Step | None:
    """One turn of a subloop, which only accumulates."""
    if not isinstance(product, cuda.ProductOp) or product.subloop is None:
        return None
    size = product.subloop.data
    return Step(
        products=_instructions(product, capability) * size // _extent(product),
        scores=0,
        depth=size,
        format=str(format_of(product.lhs.type)),
        tile=dict(sizes_of(product.result.type)) | {product.axis: size},
        copies=False,
        masked=False,
    )


def _step(loop: Operation, capability: int) -> Step | None:
    if not isinstance(loop, scf.ForOp):
        return None
    operations = list(_own(loop))
    products = [op for op in operations if isinstance(op, cuda.ProductOp | cuda.ProductOfWarpgroupsOp)]
    if not products:
        return None
    carried = set(loop.body.block.args[1:])
    scores = [op for op in products if op.accumulator is None or not _depends(op.accumulator, carried)]
    first = (scores or products)[0]
    tile = dict(sizes_of(products[-1].result.type)) | {products[-1].axis: _extent(products[-1])}
    return Step(
        products=sum(_instructions(op, capability) for op in products),
        scores=sum(prod(layout_of(op.result.type).register_shape) for op in scores),
        depth=_extent(first),
        format=str(format_of(first.lhs.type)),
        tile=tile,
        copies=any(isinstance(op, cuda.CopyOp | cuda.AwaitOp) for op in operations),
        warpgroups=isinstance(products[0], cuda.ProductOfWarpgroupsOp),
        masked=any(isinstance(op, cuda.MaskOp) or _asks_elements(op) for op in operations),
    )


def _asks_elements(op: Operation) -> bool:
    """Whether positions, or integers that the program reads, are compared element by element, as conditions are."""
    return isinstance(op, arith.CmpiOp) and isinstance(op.parent_op(), MapOp)


def _parents(op: Operation) -> Iterator[Operation]:
    while (parent := op.parent_op()) is not None:
        yield (op := parent)


def _own(loop: scf.ForOp) -> Iterator[Operation]:
    """Operations of a loop's turn: those inside its branches, but not those of inner loops."""
    waiting: list[Block] = [loop.body.block]
    while waiting:
        for op in waiting.pop().ops:
            yield op
            if not isinstance(op, scf.ForOp):
                waiting += [block for region in op.regions for block in region.blocks]


def _depends(value: SSAValue, on: set[BlockArgument]) -> bool:
    """Whether a value is computed from any of these."""
    seen: set[SSAValue] = set()
    waiting: list[SSAValue] = [value]
    while waiting:
        each = waiting.pop()
        if each in on:
            return True
        if each in seen or isinstance(each, BlockArgument):
            continue
        seen.add(each)
        assert isinstance(each.owner, Operation)
        waiting += each.owner.operands
    return False


def _extent(product: cuda.ProductOp | cuda.ProductOfWarpgroupsOp) -> int:
    return sizes_of(product.rhs.type)[product.axis]


def _instructions(product: cuda.ProductOp | cuda.ProductOfWarpgroupsOp, capability: int) -> int:
    """Product instructions of one warp, or of its warpgroup, in machine code."""
    if isinstance(product, cuda.ProductOfWarpgroupsOp):
        steps = steps_of(product.rhs.type, product.axis)
        return steps * len(parts_of_product(product)) if isinstance(product, cuda.PromotedProductOp) else steps
    depth = DEPTHS.get(product.instruction.data)
    if depth is None:
        return 0
    accumulators = prod(layout_of(product.result.type).register_shape)
    each = 2 if capability == CONVERTING and product.instruction.data == "m16n8k32" else 1
    return each * accumulators // ACCUMULATORS * -(-_extent(product) // depth)


__all__ = ["ACCUMULATORS", "Step", "step_of"]

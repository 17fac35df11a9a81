"""What orders of products take, by the cost model: tried on a copy of what is around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, prod
from typing import TypeAlias

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.errors import Refusal, TreadleError
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.passes._later import run_later
from treadle.passes._parts import part_of
from treadle.passes.expressions.scalars import leaves
from treadle.passes.kernels.trial import alone_in_parts, scheduled_time
from treadle.passes.products.chains import Chain, chains_from
from treadle.passes.products.decayed import Decayed, decayed_from
from treadle.passes.products.factors import Products
from treadle.passes.products.prefixes import Prefix, prefixes_from
from treadle.passes.products.sums import Sum

Sums: TypeAlias = Sequence[Chain] | Sequence[Decayed] | Sequence[Prefix]
"""All that share what they start from."""

Rewrite = Callable[[Block, Sums], None]


def sums_from(start: Operation | Block) -> Sums:
    """The sums, of what starts with an operation, that another order or chunks may be for."""
    if isinstance(start, ContractOp | ReduceOp) and (decayed := decayed_from(start)):
        return decayed
    if isinstance(start, ContractOp):
        return chains_from(start) or []
    return prefixes_from(start) or [] if isinstance(start, WhereOp) else []


def around(chains: Sequence[Sum]) -> frozenset[Operation]:
    """The products, what maps make of their sums along the same axes, and what maps make of which they are made. (What
    is made along others, as scores with sums for each of their columns, takes its time either way.)"""
    outers = [chain.outer for chain in chains]
    found: set[Operation] = {chains[0].start, *outers, *(op for chain in chains for op in chain.between)}
    _follow(outers, _finishes, found)
    _follow(list(found), _makers, found)
    return frozenset(found)


def _finishes(op: Operation) -> Iterable[Operation]:
    own = set(axes_of(op.results[0].type))
    users = [use.operation for use in op.results[0].uses]
    return [user for user in users if isinstance(user, MapOp | CastOp) and own >= set(axes_of(user.result.type))]


def _makers(op: Operation) -> Iterable[Operation]:
    return [operand.owner for operand in op.operands if isinstance(operand.owner, Operation)]


def _follow(
    ops: Iterable[Operation], beside: Callable[[Operation], Iterable[Operation]], found: set[Operation]
) -> None:
    left = list(ops)
    while left:
        for op in beside(left.pop()):
            if op not in found and isinstance(op, MapOp | CastOp) and not absences_of(op.operands):
                found.add(op)
                left.append(op)


class Trials:
    """One group of sums of a product, timed as it is and as others would be."""

    def __init__(self, module: ModuleOp, function: func.FuncOp, chains: Sums):
        self.module, self.function, self.chains = module, function, chains
        self.ops = around(chains)
        self.part = part_of(self.ops)

    def symbolic(self) -> list[str]:
        """The axes whose sizes only the launch knows."""
        return [axis for axis, size in self.part.sizes.items() if size == DYNAMIC]

    def time(self, sizes: Mapping[str, int], rewrite: Rewrite | None = None) -> float:
        """In microseconds, launches included; infinite where no kernels fit the machine."""
        copy, trial, (copied,) = alone_in_parts(self.module, self.function, [self.ops], sizes)
        block = trial.body.block
        if rewrite is not None:
            copies = [op for op in block.ops if op in copied]
            rewrite(block, sums_from(copies[self.part.ops.index(self.chains[0].start)]))
        try:
            run_later(copy, "diagram-compose-maps", "fusion")
            return scheduled_time(copy)
        except (Refusal, TreadleError):
            return inf


def multiplied_now(chains: Sequence[Sum], sizes: Mapping[str, int]) -> int:
    """Multiplications of the program as it is, or additions."""
    ops = [chains[0].start, *(chain.outer for chain in chains)]
    return sum(_elements(op.operands, sizes) for op in ops)


def multiplied_otherwise(chains: Sequence[Chain], sizes: Mapping[str, int]) -> int:
    """Multiplications where first is multiplied what the outer sums sum."""
    first = sum(_elements(chain.summed, sizes) for chain in chains)
    return first + sum(_elements([chain.near, *chain.summed], sizes, chain.over) for chain in chains)


def numbers_of_state(each: Products, sizes: Mapping[str, int]) -> int:
    """Numbers of the state of one chunk."""
    weights = [leaf.value for leaf in leaves(each.weights.weight)]
    return _elements([*each.summed, *weights], sizes, each.over)


def _elements(values: Iterable[SSAValue], sizes: Mapping[str, int], without: Iterable[str] = ()) -> int:
    axes = {axis: size for value in values for axis, size in sizes_of(value.type).items()}
    return prod(sizes[axis] if size == DYNAMIC else size for axis, size in axes.items() if axis not in without)


__all__ = ["Sums", "Trials", "multiplied_now", "multiplied_otherwise", "numbers_of_state", "sums_from"]

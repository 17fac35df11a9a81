"""How long the parts are in which the first few of an order are found, and whether that pays: the model tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import DYNAMIC
from treadle.passes._functions import module_of
from treadle.passes._later import run_later
from treadle.passes.kernels.by_time import is_faster
from treadle.passes.kernels.function_trial import COMPOSED, FunctionTrial
from treadle.passes.kernels.roles import WHOLE_LIMIT
from treadle.passes.kernels.some_of import Times, times_text
from treadle.passes.orders.found import First, firsts_in
from treadle.passes.orders.parts import split
from treadle.passes.reads.found import made_of

MOST_ALONE = 1024
"""Elements that a part has at most, without products: a warp holds 32 for each of its lanes."""

LEAST_PART = 16
"""So many times fewer it has at least: of an axis that has no such divisor the last part is a shorter one."""

HELD_ALONE = 32768
"""Elements that a block holds of a row, 32 for each of its threads: of a longer one it is fed all, for each of an order
again."""


def part_of(first: First) -> int:
    """How long the parts of an axis may be: as long as one divides it that groups hold, and else as long as these hold;
    0 where an axis of known length has no two such parts."""
    most = WHOLE_LIMIT if _is_of_products(first) else MOST_ALONE
    if first.length == DYNAMIC:
        return most
    least = -(-most // LEAST_PART)
    divisors = (each for each in range(most, least - 1, -1) if first.length % each == 0)
    return next(divisors, most) if first.length >= 2 * most else 0


def is_fed(first: First) -> bool:
    """Whether no group holds all of the axis."""
    return first.length > (WHOLE_LIMIT if _is_of_products(first) else HELD_ALONE)


def _is_of_products(first: First) -> bool:
    return any(isinstance(value.owner, ContractOp) for value in made_of(first.array, [first.axis]))


def pays(module: ModuleOp, function: func.FuncOp, first: First, length: int, rewrite: str) -> tuple[bool, str]:
    """Whether parts of a length pay, and why. Where a group would be fed the axis again for each of the order they do:
    what that takes is not asked for, which would be long in telling."""
    if is_fed(first):
        return True, f"no group holds '{first.axis}', which it would be fed {len(first.values)} times"
    trial = FunctionTrial(module, function)

    def times(in_parts: bool) -> Times:
        def rewritten(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            for each in named(copy, first.name) if in_parts else ():
                split(copy, each, length, rewrite, "")
            run_later(module_of(copy), *COMPOSED)

        return trial.times(rewritten)

    least, before = times(True), times(False)
    told = f"in parts of {length} {times_text(least, before, trial.longer)}"
    return least[0] < inf and is_faster(least, before), told


def named(function: func.FuncOp, name: str) -> Sequence[First]:
    return [each for each in firsts_in(function.body.block) if each.name == name]


__all__ = ["is_fed", "named", "part_of", "pays"]

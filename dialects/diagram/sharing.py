"""`diagram.shared`: which elements of a map have reciprocals that are made of one.

    %t = math.tanh %s fastmath<afn> {diagram.shared = #diagram.sizes<x = 4>} : f32

Of 4 neighbours along `x`, one reciprocal is taken, that of the product of their divisors, and the others follow by
multiplications. It says how elements are computed, and not what: the value of each is what the operation says, but that
a NaN among them may be one of them all.

    %g = arith.divf %s, %d fastmath<arcp> {diagram.shared = 4 : i64} : f32

Of any 4 that a thread has one reciprocal is taken, and it is tested: where the product of their divisors is NaN or too
large, each has its own. So no element sees what another is."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, f32
from xdsl.ir import Block, Operation
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.approximations import is_approximate, is_by_reciprocal, is_one_plus
from treadle.dialects.diagram.array import SizesAttr

SHARED = "diagram.shared"

SCALES = {2: 2.0**-62, 4: 2.0**-30}
"""By how many elements share a reciprocal, what divisors of at least 1 are multiplied by, and are then at least: the
product of all is a normal number. They are clipped at 1. Of more elements, what is left would be too little."""


LEAST_TESTED = 2.0**-4
"""A quarter of what is divided by, where products are tested, is at least that: then nothing on the way to a quotient
is below the normal numbers."""


def sharing_of(op: Operation) -> tuple[str, int] | None:
    """Along which axis neighbours share a reciprocal, and how many; None where each has its own, or any may share."""
    sizes = op.attributes.get(SHARED)
    if not isinstance(sizes, SizesAttr):
        return None
    ((axis, count),) = sizes.as_dict().items()
    return axis, count


def scale_of(op: Operation) -> float:
    """Of the divisors of an operation whose elements share a reciprocal."""
    sharing = sharing_of(op)
    return 1.0 if sharing is None else SCALES[sharing[1]]


def share(op: Operation, axis: str, count: int) -> None:
    """Let so many neighbours along an axis share a reciprocal."""
    op.attributes[SHARED] = SizesAttr({axis: count})


def tested_sharing_of(op: Operation) -> int | None:
    """How many of a thread's elements share a reciprocal if the product of their divisors passes a test."""
    count = op.attributes.get(SHARED)
    return count.value.data if isinstance(count, IntegerAttr) else None


def share_tested(op: Operation, count: int) -> None:
    """Let so many elements of a thread share a reciprocal, where their divisors pass a test."""
    op.attributes[SHARED] = IntegerAttr(count, 64)


def sharing_in(block: Block) -> Operation | None:
    """The operation of a body whose elements share a reciprocal."""
    return next((op for op in block.ops if SHARED in op.attributes), None)


def check_sharing(block: Block, axes: Sequence[str]) -> None:
    """Refuse what no kernel could share (VerifyException); `axes` are those of the result of the map."""
    found = [op for op in block.ops if SHARED in op.attributes]
    if len(found) > 1:
        raise VerifyException(f"{len(found)} operations of a body have '{SHARED}': one may")
    for op in found:
        if tested_sharing_of(op) is not None:
            _check_tested(op)
            continue
        sizes = op.attributes[SHARED]
        counts = sizes.as_dict() if isinstance(sizes, SizesAttr) else {}
        if len(counts) != 1 or not set(counts.values()) <= set(SCALES):
            known = " or ".join(map(str, SCALES))
            raise VerifyException(f"'{SHARED}' is #diagram.sizes of one axis, along which {known} share, not {sizes}")
        if not set(counts) <= set(axes):
            raise VerifyException(f"'{SHARED}' along '{next(iter(counts))}', which is no axis of the map")
        is_quotient = isinstance(op, arith.DivfOp) and is_by_reciprocal(op)
        if op.results[0].type != f32 or not (is_quotient or is_approximate(op)):
            raise VerifyException(
                f"'{op.name}' has '{SHARED}': only a tanh with the flag afn or a quotient with arcp, in f32, may"
            )


def _check_tested(op: Operation) -> None:
    count = tested_sharing_of(op)
    if count not in SCALES:
        raise VerifyException(f"'{SHARED}' is a number of elements, {' or '.join(map(str, SCALES))}, not {count}")
    is_function = is_approximate(op) and all(is_one_plus(use.operation) for use in op.results[0].uses)
    if op.results[0].type != f32 or not (is_by_reciprocal(op) or is_function):
        raise VerifyException(
            f"'{op.name}' has '{SHARED}' = {count}: only a quotient with the flag arcp or the tanh of 1 + tanh with "
            "afn, in f32, may"
        )

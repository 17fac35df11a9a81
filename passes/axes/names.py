"""Names for axes that a rewrite makes."""

from __future__ import annotations

from collections.abc import Container
from itertools import count

from xdsl.ir import Block

from treadle.dialects.diagram.array import axes_of, is_array


def axes_in(block: Block) -> set[str]:
    """The names that arrays of a block have for their axes."""
    values = [*block.args, *(result for op in block.ops for result in op.results)]
    return {axis for value in values if is_array(value.type) for axis in axes_of(value.type)}


def unused(name: str, taken: Container[str]) -> str:
    """A name that is not taken: this one, if it can be."""
    return next(longer for more in count() if (longer := name + "_" * more) not in taken)


__all__ = ["axes_in", "unused"]

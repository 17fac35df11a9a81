# pyright: standard
"""Readings of one tensor that may be one: along the same axes, if nothing brings these together.

Each reading has axes of its own, for one tensor may be the queries and the keys of an attention. Often it plays one
role alone: `x * rsqrt(mean(x * x))` and `exp(x - max(x))` read x twice, along the same rows. Where no operation of a
program has both of two axes, one may go by the name of the other, and the meaning is the same. So the tensor is one
argument, read once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of
from treadle.passes.kernels.roles import SHARED, WHOLE_LIMIT
from treadle.torch.symbols import same

_WORD = re.compile(r"[A-Za-z_]\w*")


def alike(module: ModuleOp, readings: Sequence[tuple[Any, Sequence[str]]], sizes: Mapping[str, Any]) -> dict[str, str]:
    """The other names of axes under which readings of one tensor are the same; each is what is read and its axes."""
    renamed: dict[str, str] = {}
    roles = _Roles(module, sizes)
    for (tensor, axes), (other, others) in combinations(readings, 2):
        if tensor != other:
            continue
        pairs = [(renamed.get(a, a), renamed.get(b, b)) for a, b in zip(axes, others, strict=True)]
        pairs = [(a, b) for a, b in pairs if a != b]
        if pairs and roles.may_be_one(pairs):
            roles.unite({gone: kept for kept, gone in pairs})
            for kept, gone in pairs:
                renamed = {name: kept if new == gone else new for name, new in renamed.items()} | {gone: kept}
    return renamed


class _Roles:
    """What the axes of a program are used for."""

    def __init__(self, module: ModuleOp, sizes: Mapping[str, Any]):
        self.sizes = sizes
        self.together = [set(_axes(op)) & sizes.keys() for op in module.walk() if op.name.startswith("diagram.")]
        """The axes of each operation."""
        products = [op for op in module.walk() if isinstance(op, ContractOp)]
        self.summed = {axis for op in products for axis in op.over_axes}
        """Those that a product sums over."""
        self.kept = {axis for op in products for axis in axes_of(op.result.type)}
        """Those of what a product gives."""

    def may_be_one(self, pairs: Sequence[tuple[str, str]]) -> bool:
        """Whether the axes of each pair may have one name, all at once."""
        if len({name for pair in pairs for name in pair}) < 2 * len(pairs):
            return False
        if not all(same(self.sizes[a], self.sizes[b]) for a, b in pairs):
            return False
        if any({a, b} <= axes for a, b in pairs for axes in self.together):
            return False
        return not any(self._are_opposed(a, b) or self._are_opposed(b, a) for a, b in pairs)

    def _are_opposed(self, summed: str, kept: str) -> bool:
        """Whether products sum over the one, and give the other, and no group could hold it (attention whose keys are
        its values)."""
        size = self.sizes[kept]
        held = isinstance(size, int) and size <= SHARED * WHOLE_LIMIT
        return summed in self.summed and kept in self.kept - self.summed and not held

    def unite(self, renamed: Mapping[str, str]) -> None:
        for axes in (*self.together, self.summed, self.kept):
            axes |= {renamed[axis] for axis in axes & renamed.keys()}
            axes -= renamed.keys()


def _axes(op: Operation) -> Iterator[str]:
    """The axes of what an operation takes and gives, and those that it names."""
    for value in (*op.operands, *op.results):
        yield from axes_of(value.type)
    for attribute in (*op.properties.values(), *op.attributes.values()):
        yield from _WORD.findall(str(attribute))

"""Whether a reduction can follow others in their stream, asked before anybody needs to know how.

Clusters are grown by asking it of each operation, in many programs that have most operations in common. What is kept of
the answer has no names in it; the repair itself, and why there is none, are found where they are written down."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.passes._structure import Made, made_of, remember
from treadle.passes.expressions.polynomials import Keys
from treadle.passes.streams.cascades import Cascade
from treadle.passes.streams.changes import NoLaw, Repair


@dataclass(frozen=True)
class Safe:
    """Of a repair: the reductions whose neutral element it cannot bear, and those while which are neutral nothing that
    counts has been added; and whether it asks which elements those reductions are, neutral or not."""

    fragile: frozenset[SSAValue]
    vanishing: frozenset[SSAValue]
    asks: bool = False


@dataclass(frozen=True)
class Followed:
    """A reduction over an axis, those that run in its stream, and the reductions that each value before it depends
    on."""

    reduction: ContractOp | ReduceOp
    axis: str
    running: tuple[SSAValue, ...]
    states: Mapping[SSAValue, frozenset[SSAValue]]
    keys: Keys | None = None
    """Of what is asked of expressions, where nothing rewrites them."""

    @cached_property
    def repair(self) -> Repair | NoLaw:
        def depends(value: SSAValue) -> frozenset[SSAValue]:
            return self.states.get(value, frozenset())

        return Cascade(self.axis, frozenset(self.running), depends, self.keys or Keys()).repair(self.reduction)

    @cached_property
    def safe(self) -> Safe | None:
        """None where there is no repair."""
        made = made_of([self.reduction.result, *self.running])
        if made is None:
            return safe_of(self.repair)
        key = self._key(made)
        if (known := _KNOWN.get(key, UNKNOWN)) is UNKNOWN:
            known = remember(_KNOWN, key, _numbered(safe_of(self.repair), made))
        return _named(known, made)

    def _key(self, made: Made) -> Hashable:
        """All that a repair is found from: how the reductions are computed, the axis, and what depends on what."""
        numbers = made.values
        before = ((numbers[value], found) for value, found in self.states.items() if value in numbers)
        depending = tuple(sorted((value, tuple(sorted(numbers[each] for each in found))) for value, found in before))
        return made.structure, made.axes.get(self.axis), depending


def safe_of(repair: Repair | NoLaw) -> Safe | None:
    return None if isinstance(repair, NoLaw) else Safe(repair.fragile, repair.vanishing, repair.stays is not None)


Numbered: TypeAlias = tuple[frozenset[int], frozenset[int], bool] | None

UNKNOWN = (frozenset[int](), frozenset([-1]), False)
"""What no repair is."""


def _numbered(safe: Safe | None, made: Made) -> Numbered:
    if safe is None:
        return None
    fragile, vanishing = (frozenset(made.values[each] for each in some) for some in (safe.fragile, safe.vanishing))
    return fragile, vanishing, safe.asks


def _named(found: Numbered, made: Made) -> Safe | None:
    if found is None:
        return None
    fragile, vanishing, asks = found
    by_number = {number: value for value, number in made.values.items()}
    return Safe(frozenset(by_number[each] for each in fragile), frozenset(by_number[each] for each in vanishing), asks)


_KNOWN: dict[Hashable, Numbered] = {}
"""By structure, with numbers for values: a repair depends on nothing but how what is reduced is computed."""


__all__ = ["Followed", "Safe", "safe_of"]

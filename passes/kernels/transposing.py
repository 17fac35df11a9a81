"""Which arrays of a kernel are transposed: the model tells, of the kernel and those around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import TreadleError
from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import DYNAMIC, SizesAttr
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import function_of, stated_sizes
from treadle.passes._parts import part_of_kernel
from treadle.passes._structure import Structure, remember, structure_of
from treadle.passes.kernels.far_neighbours import (
    Transposition,
    may_be_met_in_pairs,
    may_take_singly,
    transpositions,
)
from treadle.passes.kernels.sized import LONG
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.kernels.transposed import kernels_around, transpose
from treadle.passes.kernels.trial import Scheduled, alone, scheduled

_TIMES: dict[Structure, Times] = {}
"""Of kernels that were timed before."""


@dataclass(frozen=True)
class Trial:
    """A kernel, and those that make and read its arrays, with arrays in one order and in another."""

    module: ModuleOp
    function: func.FuncOp
    kernel: KernelOp

    def possible(self) -> list[Transposition]:
        """What may be transposed: first as products and pairs say, which settles it for most kernels, then as groups
        are cut."""
        singly, pairs = may_take_singly(self.kernel), may_be_met_in_pairs(self.kernel)
        if not transpositions(self.kernel, singly) and not transpositions(self.kernel, pairs):
            return []
        try:
            (made, *_) = self._scheduled(self.kernel, self.module, in_parts=False)
        except (PassFailedException, TreadleError):
            return []  # a later pass tells
        sketch = made.sketch
        if held := pairs.intersection(sketch.whole):
            return transpositions(self.kernel, held)
        along = (sketch.roles.row, sketch.roles.column)
        return transpositions(self.kernel, [axis for axis in sketch.group if singly and axis not in along])

    def fastest(self, turns: Sequence[Transposition]) -> tuple[Sequence[Transposition], str]:
        """Which of these to transpose, none where that does not pay, and the times."""
        return fastest_of(turns, lambda chosen: self._times(chosen, turns), self._longer)

    @cached_property
    def _longer(self) -> Mapping[str, int]:
        """The axes that are known only at launch, long."""
        sizes = part_of_kernel(self.kernel).sizes
        return {
            axis: max(LONG, self._stated.get(axis, UNKNOWN_SIZE)) for axis, size in sizes.items() if size == DYNAMIC
        }

    @cached_property
    def _stated(self) -> Mapping[str, int]:
        return stated_sizes(self.function)

    def _times(self, chosen: Iterable[Transposition], of: Iterable[Transposition]) -> Times:
        """Of all kernels that any `of` these transpositions changes, with those `chosen`."""
        values: dict[SSAValue, SSAValue] = {}
        module = self.module.clone(values)
        kernel = _copy_of(self.kernel, values)
        around = [_copy_of(each, values) for turn in of for each in kernels_around(turn)]
        copies = [transpose(kernel, Transposition(values[turn.value], turn.saves, turn.axes)) for turn in chosen]
        touched = dict.fromkeys(each for each in (kernel, *around, *copies) if each is not None)
        found = [self._timed(each, module) for each in touched]
        return sum(stated for stated, _ in found), sum(longer for _, longer in found)

    def _timed(self, kernel: KernelOp, module: ModuleOp) -> Times:
        """Found once for all kernels of one structure; where a view is read, that does not say all."""
        is_view = any(isinstance(value.owner, ReadOp) for value in kernel.inputs)
        structure = None if is_view else structure_of(kernel, module.attributes, self._stated)
        if structure is not None and (known := _TIMES.get(structure)) is not None:
            return known
        try:
            found = list(self._scheduled(kernel, module, in_parts=True))
            times = sum(each.time for each in found), sum(each.time_at(self._longer) for each in found)
        except (PassFailedException, TreadleError):
            times = inf, inf
        return times if structure is None else remember(_TIMES, structure, times)

    def _scheduled(self, kernel: KernelOp, module: ModuleOp, in_parts: bool) -> Iterator[Scheduled]:
        apart, function = alone(module, function_of(kernel), kernel.clone())
        if self._stated:
            function.attributes["sizes"] = SizesAttr(self._stated)
        yield from scheduled(apart, in_parts)


def _copy_of(kernel: KernelOp, values: Mapping[SSAValue, SSAValue]) -> KernelOp:
    copy = values[kernel.outputs[0]].owner
    assert isinstance(copy, KernelOp)
    return copy

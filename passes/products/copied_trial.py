"""Which operands of products to copy: the model tells, of all kernels of the program, with and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.compiler.machines import machine_of
from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram.array import DYNAMIC
from treadle.passes._functions import module_of
from treadle.passes._later import run_later
from treadle.passes._parts import part_of
from treadle.passes.kernels.by_time import WORTH, is_faster
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.sized import Sized
from treadle.passes.kernels.some_of import Times, times_text
from treadle.passes.products.copied import Copying, Ways, copy_operands


@dataclass(frozen=True)
class CopyTrial:
    """A function with products whose operands may be copied."""

    module: ModuleOp
    function: func.FuncOp
    rewrite: str

    def fastest(self, found: Sequence[Ways]) -> tuple[list[Copying], str]:
        """One way for each product at most, none where that does not pay, and the times. What takes too long by what
        it moves and multiplies alone is not tried."""
        chosen, before = list[Copying](), self._times([])
        best = least = before
        shortest = inf
        for ways in found:
            times = {each: self._least_time(ways, each) for each in ways.copyings}
            shortest = min(shortest, *times.values())
            timed = [(self._times([*chosen, each]), each) for each in times if times[each] <= WORTH * best[0]]
            if not timed:
                continue
            least, way = min(timed, key=lambda pair: pair[0])
            if is_faster(least, best):
                chosen, best = [*chosen, way], least
        if least is before:
            return [], f"copies and a product take {shortest:.3g} us at least, all {before[0]:.3g} us as it is"
        return chosen, times_text(best if chosen else least, before, self._trial.longer)

    @cached_property
    def _trial(self) -> FunctionTrial:
        return FunctionTrial(self.module, self.function)

    def _times(self, chosen: Sequence[Copying]) -> Times:
        def copy_all(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            for each in chosen:
                copy_operands(copy, replace(each, sum=values[each.sum]), self.rewrite, "")
            # what lies side by side is one axis then
            run_later(module_of(copy), "diagram-merge-free-axes", "diagram-merge-depths")

        return self._trial.times(copy_all)

    def _least_time(self, ways: Ways, copying: Copying) -> float:
        """Of copies and the product behind them, in microseconds."""
        machine, part = machine_of(self.module), part_of([ways.product])
        likely = self._trial.stated
        sizes = {axis: likely.get(axis, UNKNOWN_SIZE) if size == DYNAMIC else size for axis, size in part.sizes.items()}
        sized = Sized(part, 0, sizes, machine)
        moved = sized.moving_time(2 * sum(map(sized.bytes, ways.copied(copying))))
        return 1e6 * (moved + machine.launch + sized.least_time)

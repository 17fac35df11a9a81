"""A function as it is, and with something of it rewritten: what all of its kernels take, by the cost model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TypeAlias

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import TreadleError
from treadle.compiler.sizes import UNKNOWN_SIZE, axes_of_function
from treadle.dialects.diagram.array import DYNAMIC, SizesAttr
from treadle.passes._functions import functions, stated_sizes
from treadle.passes._later import run_later
from treadle.passes._structure import Structure, remember, structure_of_function
from treadle.passes.kernels.sized import LONG
from treadle.passes.kernels.some_of import Times
from treadle.passes.kernels.trial import scheduled

Rewrite: TypeAlias = Callable[[func.FuncOp, Mapping[SSAValue, SSAValue]], None]
"""Of a copy of a function; what its values are there."""

COMPOSED = (
    "diagram-raise-masks",
    "diagram-merge-axes",
    "diagram-hoist-factors",
    "diagram-reassociate",
    "diagram-bubble-up-reads",
    "diagram-compose-maps",
)
"""The passes between one that comes early and these."""

KERNELS = (
    "diagram-allow-approximations",
    "diagram-widen-operands",
    "diagram-recompute",
    "fusion",
    "hierarchy-transpose-arrays",
)
"""Those that make kernels, as the pipeline will, flags included: what fusion finds of these operations here it need not
find again."""


_TIMES: dict[Structure, Times] = {}
"""Of functions whatever their values and axes are called: passes ask the same of one that none of them rewrites, and
programs that one graph is cut into have much in common."""


@dataclass(frozen=True)
class FunctionTrial:
    """A function of diagrams, whose maps are composed."""

    module: ModuleOp
    function: func.FuncOp

    @cached_property
    def stated(self) -> Mapping[str, int]:
        """The sizes that the program states."""
        return stated_sizes(self.function)

    @cached_property
    def likely(self) -> Mapping[str, int]:
        """The sizes of the axes that are known only at launch, as the program states them."""
        symbolic = [axis for axis, size in axes_of_function(self.function).items() if size == DYNAMIC]
        return {axis: self.stated.get(axis, UNKNOWN_SIZE) for axis in symbolic}

    @property
    def longer(self) -> Mapping[str, int]:
        """These axes, long."""
        return {axis: max(LONG, size) for axis, size in self.likely.items()}

    def times(
        self,
        rewrite: Rewrite,
        longer: Mapping[str, int] | None = None,
        is_meant: Callable[[ModuleOp], bool] | None = None,
    ) -> Times:
        """Of all kernels of the function, rewritten; infinite where no kernels fit the machine, or these are not what
        was meant. `longer`: the long axes, those of `self.longer` if these are not said."""
        longer = self.longer if longer is None else longer
        values: dict[SSAValue, SSAValue] = {}
        module = self.module.clone(values)
        for function in list(functions(module)):
            if function.sym_name != self.function.sym_name:
                function.detach()
            elif self.stated:
                function.attributes["sizes"] = SizesAttr(self.stated)
        (function,) = functions(module)
        rewrite(function, values)
        structure = structure_of_function(function, module.attributes, self.stated, longer)
        if structure is None or is_meant is not None:
            return self._tried(module, longer, is_meant)
        if (known := _TIMES.get(structure)) is None:
            known = remember(_TIMES, structure, self._tried(module, longer))
        return known

    def _tried(
        self, module: ModuleOp, longer: Mapping[str, int], is_meant: Callable[[ModuleOp], bool] | None = None
    ) -> Times:
        """Of what is in this module, which becomes kernels."""
        try:
            run_later(module, *KERNELS)
            if is_meant is not None and not is_meant(module):
                return inf, inf
            kernels = scheduled(module, in_parts=True)
            return sum(each.time for each in kernels), sum(each.time_at(longer) for each in kernels)
        except (PassFailedException, TreadleError):
            return inf, inf


__all__ = ["COMPOSED", "FunctionTrial"]

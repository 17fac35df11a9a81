"""Which 8-bit operands to transpose: the model tells, of all kernels of the program, with and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import TreadleError
from treadle.compiler.sizes import UNKNOWN_SIZE, axes_of_function, default_sizes
from treadle.dialects.diagram.array import DYNAMIC, SizesAttr
from treadle.dialects.diagram.read import with_fitting
from treadle.passes._functions import functions
from treadle.passes.kernels.by_time import LONG
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.kernels.trial import scheduled
from treadle.passes.products.transposed_operands import TransposedOperand, transpose_operand

Together = tuple[TransposedOperand, ...]
"""What the same products need."""


@dataclass(frozen=True)
class OperandTrial:
    """A function, with some operands transposed and others widened."""

    module: ModuleOp
    function: func.FuncOp

    def fastest(self, found: Sequence[Together]) -> tuple[Sequence[Together], str]:
        """Which of these to transpose, none where that does not pay, and the times."""
        return fastest_of(found, self._times, self._longer)

    @cached_property
    def _stated(self) -> Mapping[str, int]:
        return with_fitting(self.function.body.block, default_sizes(self.function))

    @cached_property
    def _longer(self) -> Mapping[str, int]:
        """The axes that are known only at launch, long."""
        symbolic = [axis for axis, size in axes_of_function(self.function).items() if size == DYNAMIC]
        return {axis: max(LONG, self._stated.get(axis, UNKNOWN_SIZE)) for axis in symbolic}

    def _times(self, chosen: Iterable[Together]) -> Times:
        """Of all kernels of the function; infinite where no kernels fit the machine."""
        values: dict[SSAValue, SSAValue] = {}
        module = self.module.clone(values)
        for function in list(functions(module)):
            if function.sym_name != self.function.sym_name:
                function.detach()
            elif self._stated:
                function.attributes["sizes"] = SizesAttr(self._stated)
        (function,) = functions(module)
        for operand in (operand for together in chosen for operand in together):
            transpose_operand(function.body.block, TransposedOperand(values[operand.value], operand.axes))
        try:
            _make_kernels(module)
            kernels = scheduled(module, in_parts=True)
            return sum(each.time for each in kernels), sum(each.time_at(self._longer) for each in kernels)
        except (PassFailedException, TreadleError):
            return inf, inf


def _make_kernels(module: ModuleOp) -> None:
    # imported here, for they come later in the pipeline
    from treadle.passes.diagram_recompute import DiagramRecomputePass
    from treadle.passes.diagram_widen_operands import DiagramWidenOperandsPass
    from treadle.passes.fusion import FusionPass
    from treadle.passes.hierarchy_transpose_arrays import HierarchyTransposeArraysPass

    for step in (DiagramWidenOperandsPass(), DiagramRecomputePass(), FusionPass(), HierarchyTransposeArraysPass()):
        step.apply(Context(), module)

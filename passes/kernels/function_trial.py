"""A function as it is, and with something of it rewritten: what all of its kernels take, by the cost model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TypeAlias

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
from treadle.passes.kernels.sized import LONG
from treadle.passes.kernels.some_of import Times
from treadle.passes.kernels.trial import scheduled

Rewrite: TypeAlias = Callable[[func.FuncOp, Mapping[SSAValue, SSAValue]], None]
"""Of a copy of a function; what its values are there."""


@dataclass(frozen=True)
class FunctionTrial:
    """A function of diagrams, whose maps are composed."""

    module: ModuleOp
    function: func.FuncOp

    @cached_property
    def stated(self) -> Mapping[str, int]:
        """The sizes that the program states."""
        return with_fitting(self.function.body.block, default_sizes(self.function))

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
        self, rewrite: Rewrite, longer: Mapping[str, int], is_meant: Callable[[ModuleOp], bool] | None = None
    ) -> Times:
        """Of all kernels of the function, rewritten; infinite where no kernels fit the machine, or these are not what
        was meant."""
        values: dict[SSAValue, SSAValue] = {}
        module = self.module.clone(values)
        for function in list(functions(module)):
            if function.sym_name != self.function.sym_name:
                function.detach()
            elif self.stated:
                function.attributes["sizes"] = SizesAttr(self.stated)
        (function,) = functions(module)
        rewrite(function, values)
        try:
            _make_kernels(module)
            if is_meant is not None and not is_meant(module):
                return inf, inf
            kernels = scheduled(module, in_parts=True)
            return sum(each.time for each in kernels), sum(each.time_at(longer) for each in kernels)
        except (PassFailedException, TreadleError):
            return inf, inf


def _make_kernels(module: ModuleOp) -> None:
    """As the pipeline will, flags included: then what fusion finds of these operations here it need not find again."""
    # imported here, for they come later in the pipeline
    from treadle.passes.diagram_allow_approximations import DiagramAllowApproximationsPass
    from treadle.passes.diagram_recompute import DiagramRecomputePass
    from treadle.passes.diagram_widen_operands import DiagramWidenOperandsPass
    from treadle.passes.fusion import FusionPass
    from treadle.passes.hierarchy_transpose_arrays import HierarchyTransposeArraysPass

    for step in (
        DiagramAllowApproximationsPass(),
        DiagramWidenOperandsPass(),
        DiagramRecomputePass(),
        FusionPass(),
        HierarchyTransposeArraysPass(),
    ):
        step.apply(Context(), module)


def compose(function: func.FuncOp) -> None:
    """What a function becomes before its kernels are made, where a pass that comes early asks for their times."""
    # imported here, for they come later in the pipeline
    from treadle.passes.diagram_bubble_up_reads import DiagramBubbleUpReadsPass
    from treadle.passes.diagram_compose_maps import DiagramComposeMapsPass
    from treadle.passes.diagram_hoist_factors import DiagramHoistFactorsPass
    from treadle.passes.diagram_merge_axes import DiagramMergeAxesPass
    from treadle.passes.diagram_raise_masks import DiagramRaiseMasksPass
    from treadle.passes.diagram_reassociate import DiagramReassociatePass

    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    for step in (
        DiagramRaiseMasksPass(),
        DiagramMergeAxesPass(),
        DiagramHoistFactorsPass(),
        DiagramReassociatePass(),
        DiagramBubbleUpReadsPass(),
        DiagramComposeMapsPass(),
    ):
        step.apply(Context(), module)


__all__ = ["FunctionTrial", "compose"]

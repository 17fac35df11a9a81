"""The gradient of a function over named axes, as kernels of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from treadle.language.function import NamedKernel
from treadle.language.signature import Signature

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


class GradientKernel(NamedKernel):
    """Takes what a function is given, its results and their cotangents, and gives the gradients of the arguments that
    hold floats, in their order: the vector-Jacobian product, derived by `diagram-differentiate`. Results that are
    integers have no cotangent: `floats` says which are none."""

    def __init__(self, of: NamedKernel, floats: Sequence[bool] | None = None):
        inputs, outputs = of.signature.inputs, of.signature.outputs
        counted = [True] * len(outputs) if floats is None else floats
        super().__init__(of.function, of.signature, of.static, of.machine, of.arch, of.results)
        self.of = of
        self.signature = Signature((*inputs, *outputs, *compress(outputs, counted)), inputs)
        results = [f"result_{i}" for i in range(len(outputs))] if len(outputs) > 1 else ["result"]
        self.names = (*of.names, *results, *(f"d_{name}" for name in compress(results, counted)))

    def trace(self, formats: Sequence[str], sizes: dict[str, int], fixed: Iterable[str] = ()) -> ModuleOp:
        from treadle.gradients import differentiate

        return differentiate(self.of.trace(formats[: len(self.of.names)], sizes, fixed))


__all__ = ["GradientKernel"]

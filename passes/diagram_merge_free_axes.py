"""`diagram-merge-free-axes`: axes that a product has side by side in one operand alone are the rows of one matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.passes._functions import functions
from treadle.passes.axes.candidates import Candidates
from treadle.passes.axes.merge import merge
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import fastest_of
from treadle.passes.kernels.where_faster import WhereFaster
from treadle.passes.products.apart import Apart, Group, apart_in, merge_apart
from treadle.passes.products.depths import depths_in
from treadle.passes.products.kept import kept_product

Merging: TypeAlias = "Group | Apart"
"""Axes that become one in all of a function, or in one product of it."""

MORE = 2
"""Times its stated size each axis has that only the launch tells, where both are timed again: who makes kernels for one
token will not bring thousands."""


@dataclass(frozen=True)
class DiagramMergeFreeAxesPass(WhereFaster[Merging]):
    """Make one axis of axes that one operand of a product has and the other has not, where that saves time. A group
    takes its rows along one axis: of a batch of single tokens, or of the queries that share a head of keys, each would
    be a tile of its own, most of it empty, and would copy the other operand again.

    With `axes` these are made one, whatever the model says; with `axes=none` none are.

    Before:

    ```
    !X = tensor<?x2x64xf16, #diagram.array<[b, t, i]>>
    !W = tensor<64x32xf16, #diagram.array<[i, o]>>
    !Y = tensor<?x2x32xf32, #diagram.array<[b, t, o]>>
    func.func @f(%X: !X, %W: !W) -> !Y {
      %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
      func.return %Y : !Y
    }
    ```

    After `diagram-merge-free-axes{axes=b,t}`:

    ```
    !X = tensor<?x2x64xf16, #diagram.array<[b, t, i]>>
    !rows = tensor<?x64xf16, #diagram.array<[b_t, i]>>
    !W = tensor<64x32xf16, #diagram.array<[i, o]>>
    !products = tensor<?x32xf32, #diagram.array<[b_t, o]>>
    !Y = tensor<?x2x32xf32, #diagram.array<[b, t, o]>>
    func.func @f(%X: !X, %W: !W) -> !Y {
      %X_flat = diagram.collapse %X [b, t] as b_t : !X -> !rows
      %Y_flat = diagram.contract %X_flat, %W over [i] accumulate f32 : !rows, !W -> !products
      %Y = diagram.expand %Y_flat b_t as [b, t] : !products -> !Y
      func.return %Y : !Y
    }
    ```

    Legal where `diagram-merge-axes` is: the axes lie one within the other in every array that has one of them, and
    every operation treats them alike: a read that leaves both as they are, too. Where another operation does not (one
    that sums `a` and `b` of what `s i a, s j b -> i a j b` gave), they are one in their product alone, between views,
    so that what uses it is another kernel. The model times all kernels of the function with them as one and apart: a
    tenth must be saved at the sizes that the program states, and no time lost where axes known only at launch have
    twice as many. For what it is given with gaps between these axes must be
    copied at each call. (FlashAttention-3 packs grouped queries so, by hand.)"""

    name = "diagram-merge-free-axes"
    option = "axes"

    axes: tuple[str, ...] = ()

    def found_in(self, function: func.FuncOp) -> Sequence[Merging]:
        """The axes that can be one, those that are asked for if any are."""
        block = function.body.block
        everywhere = Candidates(block).free_groups(self.axes)
        found: list[Merging] = [*everywhere, *apart_in(block, everywhere, self.axes)]
        depths = () if self.axes else _sorted_by(function)
        return [each for each in found if not {*depths} & {*self.names(each)}]

    def names(self, each: Merging) -> Sequence[str]:
        return each.axes if isinstance(each, Apart) else each

    def rewrite(self, function: func.FuncOp, chosen: Sequence[Merging], why: str) -> None:
        for each in chosen:
            if isinstance(each, Apart):
                merge_apart(function, each, self.name, why)
            else:
                merge(function, function.body.block, each, self.name, why)

    def in_copy(self, each: Merging, values: Mapping[SSAValue, SSAValue]) -> Merging:
        return replace(each, product=values[each.product]) if isinstance(each, Apart) else each

    def fastest(self, trial: FunctionTrial, found: Sequence[Merging]) -> tuple[Sequence[Merging], str]:
        longer = {axis: MORE * size for axis, size in trial.likely.items()}
        return fastest_of(found, lambda chosen: self.times(trial, chosen, longer), longer)

    def subject(self, found: Sequence[Merging]) -> str:
        return ", ".join(f"[{', '.join(self.names(each))}]" for each in found)

    def why_not(self, module: ModuleOp, name: str, known: Sequence[str]) -> str:
        return f"axis '{name}' does not become one with another one: {self._reason(module, name)}"

    def _reason(self, module: ModuleOp, axis: str) -> str:
        for function in functions(module):
            for pair in (found := Candidates(function.body.block)).free_pairs():
                if axis in pair and {*pair} <= {*self.axes} and (reason := found.why_not(pair)) is not None:
                    return reason
        return "no product has it and another one of these next to each other in its result and in one operand alone"


def _sorted_by(function: func.FuncOp) -> list[str]:
    """The axes by whose indices rows of a product are sorted, which may be one with its depth (`diagram-merge-depths`):
    as one with its columns each row would be multiplied for all indices."""
    return [each.outer for each in depths_in(function) if kept_product(each.sum.owner) is not None]


__all__ = ["DiagramMergeFreeAxesPass"]

"""`diagram-merge-axes`: axes that are always side by side, and treated alike, are one axis."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.passes import ModulePass

from treadle.passes._functions import functions, kernels, note
from treadle.passes.axes.candidates import Candidates
from treadle.passes.axes.joins import join
from treadle.passes.axes.merge import merge

PASS = "diagram-merge-axes"


@dataclass(frozen=True)
class DiagramMergeAxesPass(ModulePass):
    """Make one axis of axes that some operation reduces together, so that what is computed along them is one stream.

    Before:

    ```
    !S = tensor<4x?x8xf32, #diagram.array<[q, x, y]>>
    !m = tensor<4xf32, #diagram.array<[q]>>
    func.func @f(%S: !S) -> !m {
      %m = diagram.reduce max %S over [x, y] : !S -> !m
      func.return %m : !m
    }
    ```

    After:

    ```
    !S = tensor<4x?x8xf32, #diagram.array<[q, x, y]>>
    !flat = tensor<4x?xf32, #diagram.array<[q, x_y]>>
    !m = tensor<4xf32, #diagram.array<[q]>>
    func.func @f(%S: !S) -> !m {
      %S_flat = diagram.collapse %S [x, y] as x_y : !S -> !flat
      %m = diagram.reduce max %S_flat over [x_y] : !flat -> !m
      func.return %m : !m
    }
    ```

    Legal: row-major `(x, y)` is `x * Y + y`, an isomorphism of arrays, under which every operation that treats both
    axes alike is itself. So every array of the function has `y` right within `x` or neither of them, each operation
    reduces both or neither, and no position, read or operation of another dialect knows one of them. A condition on
    `x * Y + y`, or on data along both, is one on the whole axis; a read at entries that `x` chooses, `"table[x], y"`,
    is one at the quotient and the remainder, `"table[x_y // Y], x_y % Y"`. A maximum of maxima,
    a sum of sums or of contractions is one over all axes first, where that lets axes become one.
    Axes that nothing reduces together (of batches) stay. The function keeps its arguments and results: they are
    collapsed and expanded outside of kernels, where no data moves. The derivation says of axes that are reduced
    together why they stay two, if that is only because they lie otherwise in some array.
    """

    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            if len(function.body.blocks) == 1 and not kernels(function):
                _merge_all(function, function.body.block)


def _merge_all(function: func.FuncOp, block: Block) -> None:
    while groups := Candidates(block).groups():
        _join_along(function, block, groups[0])
        merge(function, block, groups[0], PASS)
    for pair, reason in Candidates(block).disordered().items():
        note(function, f"decline {PASS}", f"[{', '.join(pair)}]", "a tuple of axes is an axis", reason)


def _join_along(function: func.FuncOp, block: Block, axes: tuple[str, ...]) -> None:
    """Make one of the reductions along these axes that others go on with."""
    for pair in pairwise(axes):
        while joined := Candidates(block).joined(pair):
            join(function, joined[0], PASS)

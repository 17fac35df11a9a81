"""`convert-linalg-to-diagram`: structured operations as diagrams over named axes."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram.array import check_axis_name
from treadle.passes._functions import erase_dead, functions, note
from treadle.passes.linalg.as_generic import as_generic
from treadle.passes.linalg.raising import Raising
from treadle.passes.linalg.reading import Reading


@dataclass(frozen=True)
class ConvertLinalgToDiagramPass(ModulePass):
    """Raise structured operations of `linalg` on tensors, named or generic, to contractions, maps and reductions.

    Before:

    ```
    func.func @scores(%Q: tensor<?x64xf32>, %K: tensor<?x64xf32>) -> tensor<?x?xf32> {
      %zero = arith.constant 0.0 : f32
      %first = arith.constant 0 : index
      %m = tensor.dim %Q, %first : tensor<?x64xf32>
      %n = tensor.dim %K, %first : tensor<?x64xf32>
      %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
      %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
      %S = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>,
                                            affine_map<(i, j, k) -> (i, j)>],
                           iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%Q, %K : tensor<?x64xf32>, tensor<?x64xf32>) outs(%start : tensor<?x?xf32>) {
      ^bb0(%q: f32, %k: f32, %sum: f32):
        %product = arith.mulf %q, %k : f32
        %next = arith.addf %sum, %product : f32
        linalg.yield %next : f32
      } -> tensor<?x?xf32>
      func.return %S : tensor<?x?xf32>
    }
    ```

    After `convert-linalg-to-diagram{axes="q","d","x"}`:

    ```
    !Q = tensor<?x64xf32, #diagram.array<[q, d]>>
    !K = tensor<?x64xf32, #diagram.array<[x, d]>>
    !S = tensor<?x?xf32, #diagram.array<[q, x]>>
    func.func @scores(%Q: !Q, %K: !K) -> !S {
      %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
      func.return %S : !S
    }
    ```

    Legal: a structured operation is by definition the map of its body over all loops, combined along those that are
    reductions. Sums may then be taken in another order, as everywhere in a diagram, those of
    16 bits in 32.

    Axes get their names from the indexing maps: dimensions that a loop uses as one are one axis. Names are those of
    `axes`, in the order in which the function's arguments have them, then d0, d1, ... . Where one array would have an
    axis twice (`X X^T`), and for windows (`d0 + d1`), a `diagram.read` gives the operand other names. An axis of size 1
    that is read at position 0 is no axis at all between operations.

    An assertion that two sizes are equal goes where everything is raised and they are sizes of one axis, for every call
    asks that of its arguments. Dimensions of a result that are merged after it was computed (heads and width) are an
    array that is a view of another: its `tensor.collapse_shape` stays. What cannot be raised stays as it is, between
    conversions of types; the derivation of the function says why. The type of a function that another one calls stays,
    too.
    """

    name = "convert-linalg-to-diagram"

    axes: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for axis in self.axes:
            check_axis_name(axis)
            if self.axes.count(axis) > 1:
                raise Refusal(op, f"axis '{axis}' is named twice in 'axes'")
        called = {call.callee.root_reference.data for call in op.walk() if isinstance(call, func.CallOp)}
        for function in functions(op):
            self._raise(function, function.sym_name.data not in called)

    def _raise(self, function: func.FuncOp, may_retype: bool) -> None:
        if len(function.body.blocks) != 1:
            note(
                function,
                self.name,
                "the function",
                "stays",
                "it has several blocks: raise before control flow is lowered",
            )
            return
        reading = Reading(function, as_generic(function))
        reading.read()
        for op, why in reading.stays.items():
            hint = op.results[0].name_hint if op.results else None
            note(function, self.name, f"%{hint}" if hint else op.name, f"{op.name} stays", why)
        if reading.plans:
            for op in reading.assured():
                op.detach()
                op.erase()
            Raising(function, may_retype, reading).build(self.axes)
            erase_dead(function.body.block)

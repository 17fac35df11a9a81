"""`convert-diagram-to-linalg`: diagrams as structured operations, which any other backend runs."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import LawOp
from treadle.dialects.diagram.array import is_array
from treadle.passes._functions import functions
from treadle.passes.diagram_expand_laws import DiagramExpandLawsPass
from treadle.passes.linalg.of_diagram import Lowering


@dataclass(frozen=True)
class ConvertDiagramToLinalgPass(ModulePass):
    """Write every diagram operation as a `linalg.generic` on tensors without names.

    Before:

    ```
    !x = tensor<4x8xf16, #diagram.array<[m, n]>>
    !r = tensor<4xf32, #diagram.array<[m]>>
    func.func @sums(%x: !x) -> !r {
      %s = diagram.reduce add %x over [n] : !x -> !r
      func.return %s : !r
    }
    ```

    After:

    ```
    func.func @sums(%x: tensor<4x8xf16>) -> tensor<4xf32> {
      %zero = arith.constant 0.0 : f32
      %empty = tensor.empty() : tensor<4xf32>
      %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
      %s = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>],
                           iterator_types = ["parallel", "reduction"]}
          ins(%x : tensor<4x8xf16>) outs(%start : tensor<4xf32>) {
      ^bb0(%a: f16, %sum: f32):
        %b = arith.extf %a : f16 to f32
        %c = arith.addf %b, %sum : f32
        linalg.yield %c : f32
      } -> tensor<4xf32>
      func.return %s : tensor<4xf32>
    }
    ```

    Laws are expanded first. Legal: each operation is by definition a loop nest of this kind; the loops are the
    axes of the result, then those that are combined. Names of axes and default sizes are gone afterwards. Products
    that may be rounded to tf32 are not. An absent element (`diagram.where`) has no counterpart in `linalg`: where it
    would be combined or saved, the body tests the condition at its loops and takes the neutral element, or zero. A
    symbolic axis that only a read has gets its size from the operand, as at a launch; what a read leaves out at the end
    of a dimension is cut off first (`tensor.extract_slice`).
    """

    name = "convert-diagram-to-linalg"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        DiagramExpandLawsPass().apply(ctx, op)
        for law in [each for each in op.walk() if isinstance(each, LawOp)]:
            law.detach()
            law.erase()
        for function in functions(op):
            for inner in function.walk():
                if inner.name.startswith(("hierarchy.", "cuda.")):
                    raise Refusal(inner, "it is scheduled already: convert diagrams before fusion")
            if any(is_array(value.type) for value in function.body.block.args) or any(
                is_array(result.type) for inner in function.walk() for result in inner.results
            ):
                Lowering(function).run()

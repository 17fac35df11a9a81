"""`convert-diagram-to-linalg`: diagrams as structured operations, which any other backend runs."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import Diagram, LawOp
from treadle.dialects.diagram.array import format_of, is_array
from treadle.dialects.hierarchy.schedule import DERIVATION
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
    of a dimension is cut off first (`tensor.extract_slice`). Nothing of ours is left for another compiler to refuse:
    no derivation, and none of what `diagram` promises of an argument.
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
                if any(str(format_of(value.type)) == "ui8" for value in (*inner.operands, *inner.results)):
                    raise Refusal(inner, "it has numbers of ui8, which arith and linalg of MLIR do not compute with")
            if any(is_array(value.type) for value in function.body.block.args) or any(
                is_array(result.type) for inner in function.walk() for result in inner.results
            ):
                Lowering(function).run()
            _leave_nothing_of_ours(function)


def _leave_nothing_of_ours(function: FuncOp) -> None:
    """Upstream tools refuse attributes of dialects that they do not know."""
    function.attributes.pop(DERIVATION, None)
    if function.arg_attrs is not None:
        kept = [_of_others(each) for each in function.arg_attrs]
        function.arg_attrs = ArrayAttr(kept) if any(each.data for each in kept) else None


def _of_others(attributes: DictionaryAttr) -> DictionaryAttr:
    kept = {name: each for name, each in attributes.data.items() if not name.startswith(f"{Diagram.name}.")}
    return DictionaryAttr(kept)

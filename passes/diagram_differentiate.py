"""`diagram-differentiate`: a function becomes that of its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.dialects.diagram import LawOp
from treadle.passes._functions import functions
from treadle.passes.gradients.program import to_gradient


@dataclass(frozen=True)
class DiagramDifferentiatePass(ModulePass):
    """Turn each function `f(arguments) -> results` into `f_gradient(arguments, results, cotangents) -> gradients`, by
    reverse-mode differentiation: the vector-Jacobian product. The cotangent of a result says how much a change of it
    counts, the gradient of an argument how much a change of that does, through all results.

    Before:

    ```
    !X = tensor<?x64xf16, #diagram.array<[t, i]>>
    !W = tensor<?x64xf16, #diagram.array<[o, i]>>
    !Y = tensor<?x?xf32, #diagram.array<[t, o]>>
    func.func @f(%X: !X, %W: !W) -> !Y {
      %Z = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
      %Y = diagram.map (%z = %Z : !Y) -> !Y {
        %y = math.tanh %z : f32
        diagram.yield %y : f32
      }
      func.return %Y : !Y
    }
    ```

    After:

    ```
    !X = tensor<?x64xf16, #diagram.array<[t, i]>>
    !W = tensor<?x64xf16, #diagram.array<[o, i]>>
    !Y = tensor<?x?xf32, #diagram.array<[t, o]>>
    !Y16 = tensor<?x?xf16, #diagram.array<[t, o]>>
    !aX = tensor<?x64xf32, #diagram.array<[t, i]>>
    !aW = tensor<?x64xf32, #diagram.array<[o, i]>>
    func.func @f_gradient(%X: !X, %W: !W, %Y: !Y, %dY: !Y) -> (!X, !W) {
      %dZ = diagram.map (%dy = %dY : !Y, %y = %Y : !Y) -> !Y {
        %one = arith.constant 1.0 : f32
        %square = arith.mulf %y, %y : f32
        %slope = arith.subf %one, %square : f32
        %dz = arith.mulf %dy, %slope : f32
        diagram.yield %dz : f32
      }
      %dZ_f16 = diagram.cast %dZ : !Y -> !Y16
      %dX = diagram.contract %dZ_f16, %W over [o] accumulate f32 : !Y16, !W -> !aX
      %dW = diagram.contract %dZ_f16, %X over [t] accumulate f32 : !Y16, !X -> !aW
      %dX16 = diagram.cast %dX : !aX -> !X
      %dW16 = diagram.cast %dW : !aW -> !W
      func.return %dX16, %dW16 : !X, !W
    }
    ```

    Legal over the real numbers, each step by the law that the derivation names. Names: a cotangent is `d` and the name
    of its result, a gradient `d` and that of its argument. Integers have neither. A result is an argument so that it is
    not computed again, nor what was cast to it, unless that lost most of its digits (8 bits): a rounding as any other.
    Where a function has a kink, equals share evenly, as in PyTorch; through a cast the gradient goes as it is.

    Cotangents are f32. Where one is multiplied by an array of 16 bits in a contraction it is rounded to the format of
    that array, and to f16 beside 8 bits, which are widened. A law that names its gradient is differentiated by it, any
    other by its meaning. Refused: scalar operations of which no derivative is known, and reads of arrays of which
    elements are absent, or along an axis under its own name at another position."""

    name = "diagram-differentiate"

    of: tuple[str, ...] = ()
    """The arguments whose gradients are computed, by name; all that hold floats if none is named."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        laws = {law.sym_name.data: law for law in op.walk() if isinstance(law, LawOp)}
        for function in functions(op):
            to_gradient(function, self.of, laws)

"""`diagram-repeat-operands`: an operand that keeps other rows for each position of an axis is read again for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.passes.kernels.where_faster import WhereFaster, such_are
from treadle.passes.products.repeated import Repeated, read_again, repeated_in


@dataclass(frozen=True)
class DiagramRepeatOperandsPass(WhereFaster[Repeated]):
    """Read an operand of a product again for each position of an axis that it lacks, where a condition keeps a range of
    its rows that is another one at each, and that saves time. A map that repeats it is made in registers, where each
    element is tested; of what is read, copies bring the rows that the condition leaves, and zeros in the place of all
    others, so that the product reads both operands where they were copied to. Sums over rows that are sorted by what
    they belong to are such, as the gradient of the weights of experts.

    With `axes` operands of these rows, along these axes, are read again, whatever the model says; with `axes=none` none
    are.

    Before:

    ```
    !A = tensor<?x?xf16, #diagram.array<[t, m]>>
    !Ai = tensor<8x?x?xf16, #diagram.array<[i, t, m]>>
    !B = tensor<?x?xf16, #diagram.array<[t, n]>>
    !C = tensor<8x?x?xf32, #diagram.array<[i, m, n]>>
    !e = tensor<8xi32, #diagram.array<[i]>>
    func.func @f(%A: !A, %B: !B, %first: !e, %end: !e) -> !C {
      %Ai = diagram.map (%a = %A : !A) -> !Ai {
        diagram.yield %a : f16
      }
      %W = diagram.where %Ai if "first[i] <= t and t < end[i]" with (first = %first : !e, end = %end : !e) : !Ai
      %C = diagram.contract %W, %B over [t] accumulate f32 : !Ai, !B -> !C
      func.return %C : !C
    }
    ```

    After `diagram-repeat-operands{axes=i,t}`:

    ```
    !A = tensor<?x?xf16, #diagram.array<[t, m]>>
    !A_again = tensor<?x8x?xf16, #diagram.array<[t, i, m]>>
    !B = tensor<?x?xf16, #diagram.array<[t, n]>>
    !C = tensor<8x?x?xf32, #diagram.array<[i, m, n]>>
    !e = tensor<8xi32, #diagram.array<[i]>>
    func.func @f(%A: !A, %B: !B, %first: !e, %end: !e) -> !C {
      %A_again = diagram.read %A at "t, m" padded : !A -> !A_again
      %W_rows = diagram.where %A_again if "first[i] <= t and t < end[i]"
          with (first = %first : !e, end = %end : !e) : !A_again
      %C = diagram.contract %W_rows, %B over [t] accumulate f32 : !A_again, !B -> !C
      func.return %C : !C
    }
    ```

    Legal: the elements are the same. A condition keeps them whatever their format, so what was converted between, and
    back, is read as it was before. The condition has both ends of a range along one summed axis, which are data along
    the axis that is lacking and of static size. The model times all kernels of the function both ways: a tenth must be
    saved at the sizes that the program states, and no time lost where axes known only at launch are long."""

    name = "diagram-repeat-operands"
    option = "axes"

    axes: tuple[str, ...] = ()

    def found_in(self, function: func.FuncOp) -> Sequence[Repeated]:
        return repeated_in(function)

    def names(self, each: Repeated) -> Sequence[str]:
        return each.along, each.row

    def rewrite(self, function: func.FuncOp, chosen: Sequence[Repeated], why: str) -> None:
        for each in chosen:
            read_again(function, each, self.name, why)

    def in_copy(self, each: Repeated, values: Mapping[SSAValue, SSAValue]) -> Repeated:
        return replace(each, product=values[each.product])

    def subject(self, found: Sequence[Repeated]) -> str:
        return ", ".join(f"rows {each.row} for each {each.along}" for each in found)

    def why_not(self, module: ModuleOp, name: str, known: Sequence[str]) -> str:
        what = f"keeps a range of rows of an operand that lacks an axis, for each position of it, along axis '{name}'"
        return f"no condition {what}: {such_are(known)}"


__all__ = ["DiagramRepeatOperandsPass"]

"""`diagram-transpose-operands`: 8-bit operands of products along the sum, where the machine multiplies them only so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.compiler.machines import machine_of
from treadle.passes._functions import diagrams, label, note
from treadle.passes.products.operand_trial import fastest_operands
from treadle.passes.products.transposed_operands import TransposedOperand, transpose_operand, transposed_operands

PASS = "diagram-transpose-operands"
LAW = "order of axes"


@dataclass(frozen=True)
class DiagramTransposeOperandsPass(ModulePass):
    """Transpose 8-bit operands whose last axis is not the one that their product sums over, where that saves time.
    Tensor cores take 8 bits along the sum only; all other operands are widened (`diagram-widen-operands`), which takes
    twice the time of the product, and of integers many times. What the program makes, and nobody wants in its order, is
    made in the other one. What it is given is moved by a map: in the kernel of the product, or before it by one of its
    own that copies whole lines, as `fusion` finds faster.

    With `operands` these arrays are transposed, whatever the model says.

    Before:

    ```
    !X = tensor<?x64xi8, #diagram.array<[t, i]>>
    !W = tensor<64x32xi8, #diagram.array<[i, o]>>
    !Y = tensor<?x32xi32, #diagram.array<[t, o]>>
    func.func @f(%X: !X, %W: !W) -> !Y {
      %Y = diagram.contract %X, %W over [i] accumulate i32 : !X, !W -> !Y
      func.return %Y : !Y
    }
    ```

    After `diagram-transpose-operands{operands=W}`:

    ```
    !X = tensor<?x64xi8, #diagram.array<[t, i]>>
    !W = tensor<64x32xi8, #diagram.array<[i, o]>>
    !T = tensor<32x64xi8, #diagram.array<[o, i]>>
    !Y = tensor<?x32xi32, #diagram.array<[t, o]>>
    func.func @f(%X: !X, %W: !W) -> !Y {
      %W_transposed = diagram.map (%w = %W : !W) -> !T {
        diagram.yield %w : i8
      }
      %Y = diagram.contract %X, %W_transposed over [i] accumulate i32 : !X, !T -> !Y
      func.return %Y : !Y
    }
    ```

    Legal always: operations find the axes of an array by name, so that their order says nothing but where elements lie.
    The model times all kernels of the function, with these operands transposed and with them widened: a tenth must be
    saved at the sizes that the program states, and no time lost where axes known only at launch are long."""

    name = PASS

    operands: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        machine, done = machine_of(op), list[str]()
        for function in diagrams(op):
            found = transposed_operands(function.body.block, machine)
            if self.operands:
                asked = [each for each in chain(*found) if each.value.name_hint in self.operands]
                done += _apply(function, asked, "asked for")
            elif found:
                chosen, why = fastest_operands(op, function, found)
                if not chosen:
                    note(function, f"decline {PASS}", _names(list(chain(*found))), "a tenth must be saved", why)
                _apply(function, list(chain(*chosen)), why)
        if missing := [name for name in self.operands if name not in done]:
            raise Refusal(
                op,
                f"there is no array %{missing[0]} to transpose: no product of 8-bit operands that {machine.name} "
                "multiplies as they are sums it over another axis than its last",
            )


def _apply(function: func.FuncOp, operands: Sequence[TransposedOperand], why: str) -> list[str]:
    for operand in operands:
        subject = f"{label(operand.value)} as [{', '.join(operand.axes)}]"
        is_moved = transpose_operand(function.body.block, operand)
        note(function, PASS, subject, LAW, f"{'moved' if is_moved else 'made so'}: {why}")
    return [operand.value.name_hint or "" for operand in operands]


def _names(operands: Sequence[TransposedOperand]) -> str:
    return ", ".join(label(operand.value) for operand in operands)

"""`diagram-widen-operands`: 8-bit operands of products as f16, where the machine does not multiply them as they are."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, f16, i32
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.machines import Machine, machine_of
from treadle.dialects.diagram import CastOp, ContractOp
from treadle.dialects.diagram.array import format_of, with_format
from treadle.dialects.diagram.formats import BYTES
from treadle.passes._functions import derived_hint, diagram_blocks, functions, label, note
from treadle.passes.products.eight_bit import why_not_multiplied

PASS = "diagram-widen-operands"


@dataclass(frozen=True)
class DiagramWidenOperandsPass(ModulePass):
    """Widen the operands of 8-bit products to f16 where the machine's tensor cores do not take 8 bits. They do from
    sm_89 on, and along rows of memory only: the axis that is summed over must be the last one of both operands
    (which `diagram-transpose-operands` has made it where that is faster).

    Before, for sm_80:

    ```
    !X = tensor<?x64xf8E4M3FN, #diagram.array<[t, i]>>
    !W = tensor<32x64xf8E4M3FN, #diagram.array<[o, i]>>
    !Y = tensor<?x32xf32, #diagram.array<[t, o]>>
    func.func @f(%X: !X, %W: !W) -> !Y {
      %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
      func.return %Y : !Y
    }
    ```

    After:

    ```
    !X = tensor<?x64xf8E4M3FN, #diagram.array<[t, i]>>
    !X16 = tensor<?x64xf16, #diagram.array<[t, i]>>
    !W = tensor<32x64xf8E4M3FN, #diagram.array<[o, i]>>
    !W16 = tensor<32x64xf16, #diagram.array<[o, i]>>
    !Y = tensor<?x32xf32, #diagram.array<[t, o]>>
    func.func @f(%X: !X, %W: !W) -> !Y {
      %X_wide = diagram.cast %X : !X -> !X16
      %W_wide = diagram.cast %W : !W -> !W16
      %Y = diagram.contract %X_wide, %W_wide over [i] accumulate f32 : !X16, !W16 -> !Y
      func.return %Y : !Y
    }
    ```

    Legal exactly, not only over the reals: every number of either 8-bit format is one of f16, infinities and NaN
    included, and products of two are exact in f32 in either case. Arrays stay 8 bits wide in memory."""

    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        machine = machine_of(op)
        for function in functions(op):
            for block in diagram_blocks(function):
                _widen(function, block, machine)


def _widen(function: func.FuncOp, block: Block, machine: Machine) -> None:
    wide: dict[SSAValue, SSAValue] = {}
    for op in list(block.ops):
        if not isinstance(op, ContractOp) or (reason := why_not_multiplied(op, machine)) is None:
            continue
        made = [operand for operand in dict.fromkeys((op.lhs, op.rhs)) if operand not in wide]
        wide |= {operand: _widened(op, operand) for operand in made}
        op.operands = [wide[op.lhs], wide[op.rhs]]
        for operand in made:  # noted last: between two notes a program is whole, and a product has one format
            law = f"every {format_of(operand.type)} is an {_wide_format(operand)}"
            note(function, PASS, f"{label(operand)} is multiplied as {_wide_format(operand)}", law, reason)


def _widened(op: ContractOp, operand: SSAValue) -> SSAValue:
    cast = CastOp(operand, with_format(operand.type, _wide_format(operand)))
    cast.location = op.location
    cast.result.name_hint = derived_hint(operand, "wide")
    Rewriter.insert_op(cast, InsertPoint.before(op))
    return cast.result


def _wide_format(operand: SSAValue) -> Attribute:
    """A format that holds every number of the operand's, and in which sums of products stay exact."""
    return i32 if str(format_of(operand.type)) in BYTES else f16

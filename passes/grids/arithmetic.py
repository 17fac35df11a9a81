"""Write index arithmetic into a block, an operation a call."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, UnitAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.cuda.kernel import NARROW


@dataclass(frozen=True)
class Arithmetic:
    """At the end of a block, or before an operation. What is divided is a number of pieces: not negative, and one that
    32 bits hold."""

    at: InsertPoint

    @staticmethod
    def at_end(block: Block) -> Arithmetic:
        return Arithmetic(InsertPoint.at_end(block))

    @staticmethod
    def before(op: Operation) -> Arithmetic:
        return Arithmetic(InsertPoint.before(op))

    def constant(self, number: int) -> SSAValue:
        return self._add(arith.ConstantOp.from_int_and_width(number, IndexType()))

    def sum(self, a: SSAValue, b: SSAValue, name: str = "") -> SSAValue:
        return self._add(arith.AddiOp(a, b), name)

    def difference(self, a: SSAValue, b: SSAValue, name: str = "") -> SSAValue:
        return self._add(arith.SubiOp(a, b), name)

    def product(self, a: SSAValue, b: SSAValue, name: str = "") -> SSAValue:
        return self._add(arith.MuliOp(a, b), name)

    def quotient(self, a: SSAValue, b: SSAValue, name: str = "") -> SSAValue:
        return self._add(arith.DivUIOp(a, b), name)

    def rest(self, a: SSAValue, b: SSAValue, name: str = "") -> SSAValue:
        return self._add(arith.RemUIOp(a, b), name)

    def least(self, a: SSAValue, b: SSAValue, name: str = "") -> SSAValue:
        return self._add(arith.MinSIOp(a, b), name)

    def most(self, a: SSAValue, b: SSAValue, name: str = "") -> SSAValue:
        return self._add(arith.MaxSIOp(a, b), name)

    def is_less(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self._add(arith.CmpiOp(a, b, "ult"))

    def choice(self, condition: SSAValue, yes: SSAValue, no: SSAValue, name: str = "") -> SSAValue:
        return self._add(arith.SelectOp(condition, yes, no), name)

    def _add(self, op: Operation, name: str = "") -> SSAValue:
        if isinstance(op, arith.DivUIOp | arith.RemUIOp):
            op.attributes[NARROW] = UnitAttr()
        Rewriter.insert_op(op, self.at)
        (result,) = op.results
        result.name_hint = name or None
        return result

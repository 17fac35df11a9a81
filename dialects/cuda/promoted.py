"""Products of warpgroups whose sums are promoted to accumulators of f32 (PTX ISA 9.7.15)."""

from __future__ import annotations

from typing import Self, TypeAlias

from xdsl.dialects.builtin import IntAttr, MemRefType, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.products import why_not_promoted
from treadle.dialects.cuda.sums import parts_of
from treadle.dialects.cuda.warpgroups import (
    WarpgroupProductOp,
    columns_of_warpgroup,
    parse_product,
    print_product,
    verify_product,
)


@irdl_op_definition
class PromotedProductOp(IRDLOperation):
    """Every consumer warpgroup makes its part of a sum of products over one axis, 64 rows of it, of which tensor cores
    add up `promote` at most: what they have is awaited, and threads add it to the accumulator in f32 (`sums.py`). So
    the result may be read, and stages of operands released, behind it; products started before it are done, too
    (PTX ISA 9.7.15.5 and 9.7.15.7.3).

    ```
    %C_new = cuda.promoted_product %A_now, %B_now into %C over [k] promote 128 : !As, !Bs -> !C
    ```

    Sums on their way take registers: of more than 128 columns they are made in parts, one after the other.
    """

    name = "cuda.promoted_product"

    lhs = operand_def()
    rhs = operand_def(MemRefType)
    accumulator = operand_def(TensorType)
    over = prop_def(StringAttr)
    promote = prop_def(IntAttr)
    result = result_def(TensorType)

    def __init__(self, lhs: SSAValue, rhs: SSAValue, accumulator: SSAValue, over: str, promote: int, result: Attribute):
        super().__init__(
            operands=[lhs, rhs, accumulator],
            properties={"over": StringAttr(over), "promote": IntAttr(promote)},
            result_types=[result],
        )

    @property
    def axis(self) -> str:
        return self.over.data

    def verify_(self) -> None:
        verify_product(self)
        if (problem := why_not_promoted(self.rhs.type, self.promote.data)) is not None:
            raise VerifyException(problem)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands, axis, promote, attributes, type = parse_product(parser)
        if promote is None:
            parser.raise_error("expected 'promote', and how many products tensor cores add up")
        lhs, rhs, accumulator = operands
        if accumulator is None:
            parser.raise_error("expected 'into', and the accumulator that sums are added to")
        op = cls(lhs, rhs, accumulator, axis, promote, type)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        operands = (self.lhs, self.rhs, self.accumulator)
        print_product(printer, self, operands, self.axis, f" promote {self.promote.data}")


def parts_of_product(op: PromotedProductOp) -> list[tuple[int, int]]:
    """The first column and the width of each part in which the sums of a product are promoted."""
    return list(parts_of(columns_of_warpgroup(op.result.type)))


ProductOfWarpgroupsOp: TypeAlias = WarpgroupProductOp | PromotedProductOp
"""Either, awaited or not."""

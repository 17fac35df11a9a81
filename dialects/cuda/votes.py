"""Questions that the lanes of a warp answer together."""

from __future__ import annotations

from math import isfinite
from typing import Self

from xdsl.dialects.builtin import FloatAttr, TensorType, f32, i1
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.tiles import check_fragment
from treadle.dialects.diagram.array import format_of
from treadle.dialects.syntax import parse_attributes, print_types


@irdl_op_definition
class ExceedsOp(IRDLOperation):
    """Whether any element that a lane of the warp holds is above a limit, or no number: the same answer in all lanes of
    a warp, and another one in each warp (PTX ISA 9.7.13.8, `vote.sync.any`).

    ```
    %grown = cuda.exceeds %sums limit 256.0 : !l
    ```
    """

    name = "cuda.exceeds"

    value = operand_def(TensorType)
    limit = prop_def(FloatAttr)
    result = result_def(i1)

    traits = traits_def(Pure())

    def __init__(self, value: SSAValue, limit: float):
        super().__init__(operands=[value], properties={"limit": FloatAttr(limit, f32)}, result_types=[i1])

    def verify_(self) -> None:
        check_fragment(self.value.type, "the value")
        if format_of(self.value.type) != f32:
            raise VerifyException(f"numbers of f32 are compared with a limit, not of {format_of(self.value.type)}")
        if not isfinite(self.limit.value.data):
            raise VerifyException(f"the limit is a finite number, not {self.limit.value.data}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = parser.parse_unresolved_operand()
        parser.parse_keyword("limit")
        limit = parser.parse_number()
        attributes = parse_attributes(parser)
        op = cls(parser.resolve_operand(value, parser.parse_type()), float(limit))
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(f" limit {self.limit.value.data!r}")
        print_types(printer, self, (self.value.type,))

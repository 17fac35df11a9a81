"""`diagram.reduce`: the elements along some axes become one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from xdsl.dialects.builtin import (
    ArrayAttr,
    StringAttr,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    Pure,
)
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    axes_of,
    format_of,
    parse_axis_list,
    print_axis_list,
)
from treadle.dialects.diagram.formats import EIGHT_BIT, STORED
from treadle.dialects.diagram.lagging import check_slack
from treadle.dialects.diagram.operation import REDUCTIONS, DiagramOperation, check_over
from treadle.dialects.syntax import parse_attributes, parse_conversion_types, print_types


@irdl_op_definition
class ReduceOp(DiagramOperation):
    """Combine the elements along the axes in `over` with `add`, `mul`, `max` or `min`, in the format
    of the result. With `into`, that array is combined in as well. An axis of size zero gives the
    neutral element.

    ```
    %m = diagram.reduce max %S over [x] : !S -> !m
    ```
    """

    name = "diagram.reduce"

    operand = operand_def()
    init = opt_operand_def()
    kind = prop_def(StringAttr)
    over = prop_def(ArrayAttr[StringAttr])
    result = result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        kind: str,
        operand: SSAValue | Operation,
        over: Iterable[str],
        result_type: Attribute,
        init: SSAValue | Operation | None = None,
    ):
        super().__init__(
            operands=[operand, [] if init is None else [init]],
            properties={
                "kind": StringAttr(kind),
                "over": ArrayAttr(StringAttr(axis) for axis in over),
            },
            result_types=[result_type],
        )

    @property
    def over_axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.over)

    def verify_(self) -> None:
        for type in (format_of(self.operand.type), format_of(self.result.type)):
            if str(type) in STORED:
                wide = "f32" if str(type) in EIGHT_BIT else "i32"
                raise VerifyException(f"'{self.kind.data}' in {type}: cast to {wide} and reduce that")
        if self.kind.data not in REDUCTIONS:
            raise VerifyException(f"unknown reduction '{self.kind.data}' (known: {', '.join(REDUCTIONS)})")
        self.check_arrays()
        check_over(self.over_axes, axes_of(self.operand.type), axes_of(self.result.type))
        formats = str(format_of(self.operand.type)), str(format_of(self.result.type))
        if formats.count("i32") == 1:
            raise VerifyException(f"cannot reduce {formats[0]} in {formats[1]}")
        if self.init is not None and self.init.type != self.result.type:
            raise VerifyException(f"'into' has type {self.init.type}, the result has {self.result.type}")
        check_slack(self, self.kind.data, format_of(self.result.type))

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        kind = parser.parse_identifier(" for the reduction")
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        init = parser.parse_unresolved_operand() if parser.parse_optional_keyword("into") else None
        attributes = parse_attributes(parser)
        operand_type, type = parse_conversion_types(parser)
        op = cls(
            kind,
            parser.resolve_operand(operand, operand_type),
            over,
            type,
            None if init is None else parser.resolve_operand(init, type),
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_operand(self.operand)
        printer.print_string(" over ")
        print_axis_list(printer, self.over_axes)
        if self.init is not None:
            printer.print_string(" into ")
            printer.print_operand(self.init)
        print_types(printer, self, (self.operand.type,), self.result.type)

"""`diagram.contract`: sums of products."""

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
    opt_prop_def,
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
    FORMATS,
    axes_of,
    format_of,
    parse_axis_list,
    print_axis_list,
)
from treadle.dialects.diagram.formats import BYTES, EIGHT_BIT, INTEGERS, STORED
from treadle.dialects.diagram.operation import DiagramOperation, check_over, union
from treadle.dialects.syntax import parse_attributes, parse_pair, parse_pair_types, print_types


@irdl_op_definition
class ContractOp(DiagramOperation):
    """Sum of products over the axes in `over`; every other axis is weaved: mapped over, and broadcast
    to where an operand lacks it.

    Products are summed in the format `accumulate`; the result is rounded to its own format once, at
    the end. With `into`, the sum is added to that array. f32 operands multiply in f32 unless `as
    tf32` says that they may be rounded to 10 bits of mantissa first. 8-bit operands, which may be of two formats,
    accumulate in f32. An axis of size zero gives zero.

    ```
    %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
    ```
    """

    name = "diagram.contract"

    lhs = operand_def()
    rhs = operand_def()
    init = opt_operand_def()
    over = prop_def(ArrayAttr[StringAttr])
    accumulate = prop_def(Attribute)
    multiply = opt_prop_def(StringAttr)
    result = result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        lhs: SSAValue | Operation,
        rhs: SSAValue | Operation,
        over: Iterable[str],
        result_type: Attribute,
        accumulate: Attribute | None = None,
        init: SSAValue | Operation | None = None,
        multiply: str | None = None,
    ):
        super().__init__(
            operands=[lhs, rhs, [] if init is None else [init]],
            properties={
                "over": ArrayAttr(StringAttr(axis) for axis in over),
                "accumulate": accumulate or format_of(result_type),
                "multiply": None if multiply is None else StringAttr(multiply),
            },
            result_types=[result_type],
        )

    @property
    def over_axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.over)

    @property
    def is_tf32(self) -> bool:
        return self.multiply is not None

    def verify_(self) -> None:
        self.check_arrays()
        check_over(
            self.over_axes,
            union(axes_of(self.lhs.type), axes_of(self.rhs.type)),
            axes_of(self.result.type),
        )
        left, right = format_of(self.lhs.type), format_of(self.rhs.type)
        if left != right and not any({str(left), str(right)} <= set(each) for each in (EIGHT_BIT, BYTES)):
            raise VerifyException(f"operands of a contraction have formats {left} and {right}: cast one of them")
        if self.accumulate not in FORMATS or str(self.accumulate) in STORED:
            raise VerifyException(f"cannot accumulate in {self.accumulate}")
        if str(left) in EIGHT_BIT and str(self.accumulate) != "f32":
            raise VerifyException(f"products of {left} are accumulated in f32, not in {self.accumulate}")
        if (str(left) in INTEGERS) != (str(self.accumulate) == "i32"):
            raise VerifyException(f"products of {left} cannot be accumulated in {self.accumulate}")
        if (str(self.accumulate) == "i32") != (str(format_of(self.result.type)) == "i32"):
            raise VerifyException(f"what accumulates in {self.accumulate} cannot become {format_of(self.result.type)}")
        if self.multiply is not None and (self.multiply.data, str(left)) != ("tf32", "f32"):
            raise VerifyException(
                f"operands of {left} cannot multiply 'as {self.multiply.data}': those of f32 may 'as tf32', others as "
                "they are (cast them to another format first)"
            )
        if self.init is not None and self.init.type != self.result.type:
            raise VerifyException(f"'into' has type {self.init.type}, the result has {self.result.type}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        lhs, rhs = parse_pair(parser)
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        parser.parse_keyword("accumulate", " with the format that products are summed in, as 'accumulate f32'")
        accumulate = parser.parse_type()
        multiply = parser.parse_identifier() if parser.parse_optional_keyword("as") else None
        init = parser.parse_unresolved_operand() if parser.parse_optional_keyword("into") else None
        attributes = parse_attributes(parser)
        lhs_type, rhs_type, type = parse_pair_types(parser)
        op = cls(
            parser.resolve_operand(lhs, lhs_type),
            parser.resolve_operand(rhs, rhs_type),
            over,
            type,
            accumulate,
            None if init is None else parser.resolve_operand(init, type),
            multiply,
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list((self.lhs, self.rhs), printer.print_operand)
        printer.print_string(" over ")
        print_axis_list(printer, self.over_axes)
        printer.print_string(" accumulate ")
        printer.print_attribute(self.accumulate)
        if self.multiply is not None:
            printer.print_string(f" as {self.multiply.data}")
        if self.init is not None:
            printer.print_string(" into ")
            printer.print_operand(self.init)
        print_types(printer, self, (self.lhs.type, self.rhs.type), self.result.type)


def is_computed_with(value: SSAValue) -> bool:
    """Whether anything but contractions reads a value, or they read it for more than a factor."""
    return any(not isinstance(use.operation, ContractOp) or use.index >= 2 for use in value.uses)


def is_multiplied(value: SSAValue) -> bool:
    """Whether contractions read a value as a factor."""
    return any(isinstance(use.operation, ContractOp) and use.index < 2 for use in value.uses)

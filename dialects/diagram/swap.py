"""`diagram.swap`: neighbouring blocks along an axis, each in the place of the other."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import format_of, sizes_of
from treadle.dialects.diagram.operation import DiagramOperation, quote, same_axes
from treadle.dialects.syntax import parse_attributes, print_types


@irdl_op_definition
class SwapOp(DiagramOperation):
    """Swap the two halves of every `2 * block` elements along an axis: the element at `p` is that at `p + block` where
    `p // block` is even, and at `p - block` where it is odd. Done twice, it is nothing. What rotary embeddings rotate
    by: `block` is half of a head where halves are pairs, 1 where neighbours are.

    The axis has a static size, a multiple of `2 * block`; so has every piece of it that a group holds.

    ```
    %R = diagram.swap %P along d by 64 : !P -> !P
    ```

    Source: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, section 3.4.2.
    """

    name = "diagram.swap"

    operand = operand_def()
    axis = prop_def(StringAttr)
    block_length = prop_def(IntAttr)
    result = result_def()

    traits = traits_def(Pure())

    def __init__(self, operand: SSAValue | Operation, axis: str, block: int, result_type: Attribute):
        super().__init__(
            operands=[operand],
            properties={"axis": StringAttr(axis), "block_length": IntAttr(block)},
            result_types=[result_type],
        )

    @property
    def length(self) -> int:
        """Elements of a block."""
        return self.block_length.data

    def verify_(self) -> None:
        self.check_arrays()
        check_swap(self.operand.type, self.result.type, self.axis.data, self.length)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand, axis, block, attributes, (type, result) = parse_swap(parser)
        op = cls(parser.resolve_operand(operand, type), axis, block, result)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        print_swap(printer, self, self.operand, self.axis.data, self.length)


def check_swap(operand: Attribute, result: Attribute, axis: str, block: int) -> None:
    """Raise unless blocks of so many elements can be swapped along an axis (VerifyException)."""
    sizes = sizes_of(operand)
    if axis not in sizes:
        raise VerifyException(f"blocks along '{axis}' are swapped, but the operand has no such axis ({quote(sizes)})")
    if not same_axes(operand, result) or format_of(operand) != format_of(result):
        raise VerifyException(f"a swap keeps axes and format: {operand} to {result}")
    if block < 1 or sizes[axis] < 0 or sizes[axis] % (2 * block):
        size = "no static size" if sizes[axis] < 0 else f"{sizes[axis]} elements"
        raise VerifyException(f"blocks of {block} are swapped in pairs along '{axis}', which has {size}")


def swapped(position: int, block: int) -> int:
    """Where the element comes from that a swap of blocks puts at a position."""
    return position + block if position // block % 2 == 0 else position - block


def parse_swap(parser: Parser) -> tuple[UnresolvedOperand, str, int, dict[str, Attribute], tuple[Attribute, Attribute]]:
    """The operand, the axis, the length of a block, attributes, and both types."""
    operand = parser.parse_unresolved_operand()
    parser.parse_keyword("along")
    axis = parser.parse_identifier(" for the axis")
    parser.parse_keyword("by")
    block = parser.parse_integer(allow_boolean=False, allow_negative=False)
    attributes = parse_attributes(parser)
    type = parser.parse_type()
    parser.parse_punctuation("->")
    return operand, axis, block, attributes, (type, parser.parse_type())


def print_swap(printer: Printer, op: IRDLOperation, operand: SSAValue, axis: str, block: int) -> None:
    printer.print_string(" ")
    printer.print_operand(operand)
    printer.print_string(f" along {axis} by {block}")
    print_types(printer, op, (operand.type,), op.results[0].type)

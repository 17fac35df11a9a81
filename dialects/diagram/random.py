"""`diagram.random`: random bits that belong to a position, in the body of a map."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, lazy_traits_def, operand_def, prop_def, result_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, OpTrait, Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.syntax import parse_pair

ROUNDS, MULTIPLIER, KEY_STEP = 7, 0xD256D193, 0x9E3779B9
"""Of Philox2x32: seven rounds are the fewest that pass every test of BigCrush (the paper, table 2)."""

BLOCK = 8
"""Positions that share two words differ by this, along either axis: as do those that a lane holds of a fragment."""


def _traits() -> tuple[OpTrait, ...]:
    from treadle.dialects.diagram.map import MapOp  # it knows this operation

    return (Pure(), HasParent(MapOp))


@irdl_op_definition
class RandomOp(IRDLOperation):
    """Random bits that belong to a key and a position (i, j): the same wherever, and however often, they are asked for,
    so a gradient makes them anew instead of reading what was saved.

    ```
    %word = diagram.random 32 of %seed at %b, %h : i32
    %r = diagram.random 16 of %word at %q, %x : i32
    ```

    `32` is the first word of Philox2x32 with seven rounds, for the counter (i, j): a number of 32 bits with a sign, as
    good as a key of other positions. `16` is a number from 0 to 65535, a half of a word. Four positions share the two
    words of one counter, (i, j), (i, j + 8), (i + 8, j) and (i + 8, j + 8) within a block of 16 x 16, for these are
    what one lane holds of a product's result, whichever axis runs along its rows: bit 3 of i chooses the word, bit 3 of
    j the half, and in the counter both are set.

    Source: J. K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
    """

    name = "diagram.random"

    key = operand_def(i32)
    row = operand_def(i32)
    column = operand_def(i32)
    bits = prop_def(IntegerAttr)
    result = result_def(i32)

    traits = lazy_traits_def(_traits)

    def __init__(
        self, bits: int, key: SSAValue | Operation, row: SSAValue | Operation, column: SSAValue | Operation
    ) -> None:
        super().__init__(operands=[key, row, column], properties={"bits": IntegerAttr(bits, i32)}, result_types=[i32])

    @property
    def are_shared(self) -> bool:
        """Whether four positions share the words of a counter."""
        return self.bits.value.data == 16

    def verify_(self) -> None:
        if self.bits.value.data not in (16, 32):
            raise VerifyException(f"random numbers have 16 bits or 32, not {self.bits.value.data}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        bits = parser.parse_integer(allow_boolean=False, allow_negative=False)
        parser.parse_keyword("of")
        key = parser.parse_unresolved_operand()
        parser.parse_keyword("at")
        values = parser.resolve_operands((key, *parse_pair(parser)), (i32, i32, i32), parser.pos)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        if type != i32:
            parser.raise_error(f"random bits are a number in i32, not in {type}")
        op = cls(bits, *values)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.bits.value.data} of ")
        printer.print_operand(self.key)
        printer.print_string(" at ")
        printer.print_list((self.row, self.column), printer.print_operand)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)

"""Lists of pieces in shared memory: the block makes one before a stream, and the turns of the stream read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.dialects.builtin import IndexType, IntAttr, MemRefType, i1
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.tiles import check_tile, is_line, rows_of
from treadle.dialects.diagram.array import format_of
from treadle.dialects.syntax import parse_attributes, parse_element, print_element, print_types

COUNTS = 64
"""Numbers at the beginning of a list's tile: how many pieces each warp of a block has kept, in one turn and in the
next."""


def check_list(type: Attribute) -> None:
    """That a tile holds a list (VerifyException)."""
    check_tile(type, "the list")
    if str(format_of(type)) != "i32" or not is_line(type):
        raise VerifyException(f"a list of pieces is one line of i32, not {type}")
    if rows_of(type).elements <= COUNTS:
        raise VerifyException(f"a list has {COUNTS} numbers of warps, and room for pieces behind them")


@irdl_op_definition
class KeepOp(IRDLOperation):
    """The end of the body of `cuda.select`: whether the piece is kept."""

    name = "cuda.keep"

    kept = operand_def(i1)

    traits = traits_def(IsTerminator())
    assembly_format = "$kept attr-dict"

    def __init__(self, kept: SSAValue):
        super().__init__(operands=[kept])


@irdl_op_definition
class SelectOp(IRDLOperation):
    """The threads of a block ask of pieces, each of others, whether they are kept, and list in shared memory where
    those begin, in ascending order; gives how many there are. In the body every thread has a piece of its own. All
    threads take part; a barrier must follow before one reads the list.

    ```
    %count = cuda.select %pieces_shared from %first to %end step 64 (%x0: index) {
      ...
      cuda.keep %kept
    } : !list
    ```
    """

    name = "cuda.select"

    tile = operand_def(MemRefType)
    first = operand_def(IndexType())
    end = operand_def(IndexType())
    step = prop_def(IntAttr)
    body = region_def("single_block")
    count = result_def(IndexType())

    traits = traits_def(NoTerminator())

    def __init__(self, tile: SSAValue, first: SSAValue, end: SSAValue, step: int, body: Region):
        super().__init__(
            operands=[tile, first, end],
            properties={"step": IntAttr(step)},
            result_types=[IndexType()],
            regions=[body],
        )

    @property
    def given(self) -> tuple[SSAValue, ...]:
        """The values from outside that say which pieces are kept."""
        inside = {value for op in self.body.walk() for value in op.results} | set(self.body.block.args)
        used = (value for op in self.body.walk() for value in op.operands if value not in inside)
        return tuple(dict.fromkeys([self.first, self.end, *used]))

    @property
    def kept(self) -> SSAValue:
        last = self.body.block.last_op
        assert isinstance(last, KeepOp)
        return last.kept

    def verify_(self) -> None:
        check_list(self.tile.type)
        if self.step.data < 1:
            raise VerifyException(f"pieces {self.step.data} apart: 1 at least")
        if [arg.type for arg in self.body.block.args] != [IndexType()]:
            raise VerifyException("the body is given where a piece begins")
        if not isinstance(self.body.block.last_op, KeepOp):
            raise VerifyException("the body ends with cuda.keep")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        tile = parser.parse_unresolved_operand()
        parser.parse_keyword("from")
        first = parser.resolve_operand(parser.parse_unresolved_operand(), IndexType())
        parser.parse_keyword("to")
        end = parser.resolve_operand(parser.parse_unresolved_operand(), IndexType())
        parser.parse_keyword("step")
        step = parser.parse_integer()
        parser.parse_punctuation("(")
        position = parser.parse_argument(expect_type=True)
        parser.parse_punctuation(")")
        body = parser.parse_region([position])
        attributes = parse_attributes(parser)
        op = cls(parser.resolve_operand(tile, parser.parse_type()), first, end, step, body)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.tile)
        printer.print_string(" from ")
        printer.print_operand(self.first)
        printer.print_string(" to ")
        printer.print_operand(self.end)
        printer.print_string(f" step {self.step.data} (")
        printer.enter_scope()
        printer.print_block_argument(self.body.block.args[0])
        printer.print_string(") ")
        printer.print_region(self.body, print_entry_block_args=False)
        printer.exit_scope()
        print_types(printer, self, (self.tile.type,))


@irdl_op_definition
class SelectedOp(IRDLOperation):
    """Where the piece of a turn begins: as the list says, which has `count` pieces; behind them, one after another from
    `rest` on, where a list may have no room for all.

    ```
    %x0 = cuda.selected %pieces_shared[%turn] step 64 : !list
    %x0 = cuda.selected %pieces_shared[%turn] step 64 of %count then %rest : !list
    ```
    """

    name = "cuda.selected"

    tile = operand_def(MemRefType)
    turn = operand_def(IndexType())
    step = prop_def(IntAttr)
    count = opt_operand_def(IndexType())
    rest = opt_operand_def(IndexType())
    result = result_def(IndexType())

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        tile: SSAValue,
        turn: SSAValue,
        step: int,
        count: SSAValue | None = None,
        rest: SSAValue | None = None,
    ):
        super().__init__(
            operands=[tile, turn, count, rest],
            properties={"step": IntAttr(step)},
            result_types=[IndexType()],
        )

    def verify_(self) -> None:
        check_list(self.tile.type)
        if (self.count is None) != (self.rest is None):
            raise VerifyException("what is behind the list begins somewhere: 'of %count then %rest'")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        tile, turn = parse_element(parser)
        parser.parse_keyword("step")
        step = parser.parse_integer()
        behind: Sequence[SSAValue] = ()
        if parser.parse_optional_keyword("of") is not None:
            count = parser.resolve_operand(parser.parse_unresolved_operand(), IndexType())
            parser.parse_keyword("then")
            behind = count, parser.resolve_operand(parser.parse_unresolved_operand(), IndexType())
        attributes = parse_attributes(parser)
        tile = parser.resolve_operand(tile, parser.parse_type())
        op = cls(tile, parser.resolve_operand(turn, IndexType()), step, *behind)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_element(printer, self.tile, self.turn)
        printer.print_string(f" step {self.step.data}")
        if self.count is not None and self.rest is not None:
            printer.print_string(" of ")
            printer.print_operand(self.count)
            printer.print_string(" then ")
            printer.print_operand(self.rest)
        print_types(printer, self, (self.tile.type,))


@irdl_op_definition
class SelectedBeforeOp(IRDLOperation):
    """How many of the `count` pieces of a list begin before a position.

    ```
    %some = cuda.selected_before %pieces_shared[%end] of %count : !list
    ```
    """

    name = "cuda.selected_before"

    tile = operand_def(MemRefType)
    position = operand_def(IndexType())
    count = operand_def(IndexType())
    result = result_def(IndexType())

    def __init__(self, tile: SSAValue, position: SSAValue, count: SSAValue):
        super().__init__(operands=[tile, position, count], result_types=[IndexType()])

    def verify_(self) -> None:
        check_list(self.tile.type)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        tile, position = parse_element(parser)
        parser.parse_keyword("of")
        count = parser.resolve_operand(parser.parse_unresolved_operand(), IndexType())
        attributes = parse_attributes(parser)
        tile = parser.resolve_operand(tile, parser.parse_type())
        op = cls(tile, parser.resolve_operand(position, IndexType()), count)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_element(printer, self.tile, self.position)
        printer.print_string(" of ")
        printer.print_operand(self.count)
        print_types(printer, self, (self.tile.type,))

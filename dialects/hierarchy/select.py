"""`hierarchy.select`: the pieces of an axis that a condition on data leaves."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Self

from xdsl.dialects.builtin import ArrayAttr, IndexType, IntAttr, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import axes_of, check_array, format_of, is_array, level_of
from treadle.dialects.diagram.condition import Atom, Condition, ConditionAttr, Read, resolved, terms_of, widened
from treadle.dialects.hierarchy.pieces import partitions_around
from treadle.dialects.hierarchy.schedule import PartitionAttr, parse_partition, print_partition
from treadle.dialects.hierarchy.selection import SelectionType
from treadle.dialects.hierarchy.stream import StreamOp
from treadle.dialects.syntax import parse_inputs, print_inputs


@irdl_op_definition
class SelectOp(IRDLOperation):
    """The pieces of an axis, of those that hold a position of a range, in which a condition on data may hold somewhere
    in the piece of the group.

    The data of the condition are constant within *cells* of the two pieces: each is asked at the first position of
    every cell, and positions that the condition compares count as what is best for it in the cell. The list has `room`
    for so many pieces; those behind them are all selected, and nothing is known of them.

    ```
    %pieces = hierarchy.select [x = 64] from %zero to %q_end if "m[q, x] == 1" with (m = %M : !M)
        cells [q = 64, x = 64] room 1024
    ```
    """

    name = "hierarchy.select"

    partition = prop_def(PartitionAttr)
    first = operand_def(IndexType())
    end = operand_def(IndexType())
    inputs = var_operand_def()
    condition = prop_def(ConditionAttr)
    names = prop_def(ArrayAttr[StringAttr])
    cells = prop_def(PartitionAttr)
    room = prop_def(IntAttr)
    result = result_def(SelectionType())

    traits = traits_def(Pure())

    def __init__(
        self,
        partition: Mapping[str, int],
        limits: tuple[SSAValue, SSAValue],
        condition: str,
        inputs: Mapping[str, SSAValue],
        cells: Mapping[str, int],
        room: int,
    ):
        super().__init__(
            operands=[*limits, list(inputs.values())],
            properties={
                "partition": PartitionAttr(partition),
                "condition": ConditionAttr(condition),
                "names": ArrayAttr(StringAttr(name) for name in inputs),
                "cells": PartitionAttr(cells),
                "room": IntAttr(room),
            },
            result_types=[SelectionType()],
        )

    @property
    def axis(self) -> str:
        return next(iter(self.partition.as_dict()))

    @property
    def size(self) -> int:
        return next(iter(self.partition.as_dict().values()))

    @property
    def named(self) -> dict[str, SSAValue]:
        return {name.data: value for name, value in zip(self.names, self.inputs, strict=True)}

    @property
    def asked(self) -> Condition:
        """The condition over the first positions of cells and the values of its inputs, where it may hold in a cell."""
        named = self.named

        def value(term: Atom) -> SSAValue | None:
            return None if isinstance(term, SSAValue) else named.get(term if isinstance(term, str) else term.name)

        return widened(resolved(self.condition.condition, value), self.cells.as_dict())

    @property
    def cells_of_piece(self) -> int:
        """How many cells a piece has in the piece of a group."""
        return prod(count for _, count in self.counts.items())

    @property
    def counts(self) -> dict[str, int]:
        """How many of them along each axis."""
        sizes = partitions_around(self) | self.partition.as_dict()
        return {axis: -(-sizes.get(axis, cell) // cell) for axis, cell in self.cells.as_dict().items()}

    def verify_(self) -> None:
        if len(self.partition.axes) != 1:
            raise VerifyException("pieces are selected along exactly one axis")
        if self.room.data < 1:
            raise VerifyException(f"a list with room for {self.room.data} pieces: for 1 at least")
        cells = self.cells.as_dict()
        sizes = partitions_around(self) | self.partition.as_dict()
        for axis, cell in cells.items():
            if cell < 1 or sizes.get(axis, cell) % cell:
                raise VerifyException(f"cells of {cell} along '{axis}' do not divide pieces of {sizes.get(axis)}")
        named = self.named
        for name, value in named.items():
            self._check_input(name, value)
        for term in terms_of(self.condition.condition):
            self._check_term(term, named, cells)
        for use in self.result.uses:
            self._check_stream(use.operation)

    def _check_stream(self, stream: Operation) -> None:
        assert isinstance(stream, StreamOp)
        if stream.partition != self.partition:
            raise VerifyException(f"pieces of {self.size} along '{self.axis}' are selected for a stream of others")
        if stream.fed not in (None, (self.first, self.end)):
            raise VerifyException("pieces are selected in another range than the stream is fed")

    def _check_input(self, name: str, value: SSAValue) -> None:
        if str(format_of(value.type)) != "i32":
            raise VerifyException(f"input '{name}' holds {format_of(value.type)}: conditions are about i32")
        if is_array(value.type):
            check_array(value.type, f"input '{name}'")
            if level_of(value.type) != "device":
                raise VerifyException(f"input '{name}' is at '{level_of(value.type)}': cells are read at 'device'")

    def _check_term(self, term: Atom, named: Mapping[str, SSAValue], cells: Mapping[str, int]) -> None:
        assert not isinstance(term, SSAValue)
        name = term if isinstance(term, str) else term.name
        if name not in named:
            if isinstance(term, Read) or name not in cells:
                raise VerifyException(f"'{term}' is neither an input nor an axis that has cells")
            return
        axes = axes_of(named[name].type) if is_array(named[name].type) else ()
        if (() if isinstance(term, str) else term.axes) != axes:
            raise VerifyException(f"input '{name}' is read as '{term}', and has the axes [{', '.join(axes)}]")
        if missing := [axis for axis in axes if axis not in cells]:
            raise VerifyException(f"axis '{missing[0]}' of input '{name}' has no cells")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        partition = parse_partition(parser)
        parser.parse_keyword("from")
        first = parser.resolve_operand(parser.parse_unresolved_operand(), IndexType())
        parser.parse_keyword("to")
        end = parser.resolve_operand(parser.parse_unresolved_operand(), IndexType())
        parser.parse_keyword("if")
        condition = parser.parse_str_literal()
        inputs = parse_inputs(parser)
        parser.parse_keyword("cells")
        cells = parse_partition(parser)
        parser.parse_keyword("room")
        room = parser.parse_integer()
        attributes = parser.parse_optional_attr_dict()
        op = cls(partition.as_dict(), (first, end), condition, inputs, cells.as_dict(), room)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_partition(printer, self.partition)
        printer.print_string(" from ")
        printer.print_operand(self.first)
        printer.print_string(" to ")
        printer.print_operand(self.end)
        printer.print_string(" if ")
        printer.print_string_literal(self.condition.text.data)
        print_inputs(printer, self.named.items())
        printer.print_string(" cells ")
        print_partition(printer, self.cells)
        printer.print_string(f" room {self.room.data}")
        printer.print_op_attributes(self.attributes)

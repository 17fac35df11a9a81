"""What threads move between device memory, shared memory and registers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from xdsl.dialects.builtin import (
    MemRefType,
    TensorType,
    UnitAttr,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.accesses import (
    GlobalAccess,
    ParsedAccess,
    access_properties,
)
from treadle.dialects.cuda.placed import Bounds, Padding, Scatter, place_operands
from treadle.dialects.cuda.tiles import check_fragment, check_tile, is_shared
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.scatter import SUMS
from treadle.dialects.syntax import parse_conversion_types

IN_VECTORS = "in_vectors"
"""Attribute of a copy to a tile of one line that goes in vectors all the same: a piece of a long row, of which a thread
copies as many bytes at a time as the alignment of rows allows."""


@irdl_op_definition
class CopyOp(GlobalAccess):
    """The block's threads copy a tile from device to shared memory, where what lies outside the bounds, and padding,
    becomes zero; or from shared to device memory, where it is not written. The offsets are those of the buffer at
    device level. `async`, which is for copies to shared memory, only starts the copy (PTX ISA 9.7.9.25.3.1). A barrier
    must follow before another thread reads the tile.

    ```
    cuda.copy %Q[%b, %h, %q0, %zero] into %Qs bounds [q < %q] widths [8, 2, 1] : !Q, !Qs
    cuda.copy %V[%b, %h, %x0, %zero] into %Vs bounds [x >= %x_begin, x < %x] : !V, !Vs
    cuda.copy %Y[%l0, %r0, %zero] into %Ys bounds [l < %l] inside "l - r" of [%t] : !Y, !Ys
    cuda.copy %E[%t0, %zero] into %Es at "token[t], d" with (token = %n : !n) inside "token[t]" of [%v] : !E, !Es
    ```
    """

    name = "cuda.copy"

    source = operand_def(MemRefType)
    destination = operand_def(MemRefType)
    asynchronous = opt_prop_def(UnitAttr)

    def __init__(
        self,
        source: SSAValue,
        offsets: Sequence[SSAValue],
        destination: SSAValue,
        bounds: Bounds = (),
        widths: Iterable[int] | None = None,
        asynchronous: bool = False,
        begins: Bounds = (),
        padding: Padding = (),
        scatter: Scatter | None = None,
    ):
        super().__init__(
            operands=[
                source,
                destination,
                offsets,
                *place_operands(bounds, begins, padding, scatter),
            ],
            properties={
                **access_properties(bounds, begins, widths, padding, scatter),
                "asynchronous": UnitAttr() if asynchronous else None,
            },
        )

    @property
    def is_outward(self) -> bool:
        """Whether the copy goes from shared to device memory."""
        return is_shared(self.source.type)

    @property
    def buffer(self) -> SSAValue:
        """The array at device level."""
        return self.destination if self.is_outward else self.source

    @property
    def tile(self) -> SSAValue:
        """The tile in shared memory."""
        return self.source if self.is_outward else self.destination

    def verify_(self) -> None:
        check_tile(self.tile.type, "the source" if self.is_outward else "the destination")
        self.check_access(self.buffer.type, self.tile.type)
        if self.asynchronous is not None and self.is_outward:
            raise VerifyException("only a copy to shared memory can be asynchronous")
        if self.place is not None and self.is_outward:
            raise VerifyException("only what is read is scattered")
        if self.staged is not None:
            raise VerifyException("a copy has its own tile: only what goes to or from registers is staged")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        asynchronous = parser.parse_optional_keyword("async") is not None
        access = ParsedAccess(parser, may_be_bare=True)
        parser.parse_keyword("into")
        destination = access.parse_destination(parser)
        access.parse_tail(parser)
        parser.parse_punctuation(":")
        source_type = parser.parse_type()
        parser.parse_punctuation(",")
        destination_type = parser.parse_type()
        offsets, bounds, begins, padding = access.operands(parser)
        op = cls(
            parser.resolve_operand(access.buffer, source_type),
            offsets,
            parser.resolve_operand(destination, destination_type),
            bounds,
            access.widths,
            asynchronous,
            begins,
            padding,
            access.scatter,
        )
        return access.marked(op)

    def print(self, printer: Printer) -> None:
        printer.print_string(" async " if self.asynchronous is not None else " ")
        if self.is_outward:
            printer.print_operand(self.source)
            printer.print_string(" into ")
            self.print_offsets(printer, self.destination)
        else:
            self.print_offsets(printer, self.source)
            printer.print_string(" into ")
            printer.print_operand(self.destination)
        self.print_tail(printer)
        printer.print_string(" : ")
        printer.print_list((self.source.type, self.destination.type), printer.print_attribute)


@irdl_op_definition
class LoadOp(GlobalAccess):
    """Each thread loads its elements of a tile from device memory; what lies outside the bounds becomes zero. With
    `through`, by way of a tile in shared memory where rows are aligned to less than `#cuda.staged` says.

    ```
    %f = cuda.load %X[%n0] bounds [n < %n] widths [4, 1] : !X -> !f
    ```
    """

    name = "cuda.load"

    source = operand_def(MemRefType)
    result = result_def(TensorType)

    def __init__(
        self,
        source: SSAValue,
        offsets: Sequence[SSAValue],
        result_type: Attribute,
        bounds: Bounds = (),
        widths: Iterable[int] | None = None,
        begins: Bounds = (),
        padding: Padding = (),
        scatter: Scatter | None = None,
    ):
        super().__init__(
            operands=[
                source,
                offsets,
                *place_operands(bounds, begins, padding, scatter),
            ],
            properties=access_properties(bounds, begins, widths, padding, scatter),
            result_types=[result_type],
        )

    def verify_(self) -> None:
        check_fragment(self.result.type, "the result")
        self.check_fragment_access(self.source.type, self.result.type)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        access = ParsedAccess(parser)
        access.parse_tail(parser)
        parser.parse_punctuation(":")
        source_type, result_type = parse_conversion_types(parser)
        offsets, bounds, begins, padding = access.operands(parser)
        op = cls(
            parser.resolve_operand(access.buffer, source_type),
            offsets,
            result_type,
            bounds,
            access.widths,
            begins,
            padding,
            access.scatter,
        )
        return access.marked(op)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        self.print_offsets(printer, self.source)
        self.print_tail(printer)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class StoreOp(GlobalAccess):
    """Each thread stores its elements of a tile to device memory; copies and what lies outside are not written. With
    `through`, by way of a tile in shared memory where rows are aligned to less than `#cuda.staged` says. Where elements
    lie `at` others' positions, several may lie at one: then each is added there, at once (`red`, PTX ISA 9.7.13), to
    what another launch has written. Such additions are in no order, and what they leave is read by later launches only.

    ```
    cuda.store %o into %O[%q0, %zero] bounds [q < %q] widths [2, 1] : !o, !O
    cuda.store %v into %R[%t0, %zero] at "table[t], c" with (table = %table : !T) bounds [t < %t]
        inside "table[t]" of [%r] : !v, !R
    ```
    """

    name = "cuda.store"

    value = operand_def(TensorType)
    destination = operand_def(MemRefType)

    def __init__(
        self,
        value: SSAValue,
        destination: SSAValue,
        offsets: Sequence[SSAValue],
        bounds: Bounds = (),
        widths: Iterable[int] | None = None,
        begins: Bounds = (),
        padding: Padding = (),
        scatter: Scatter | None = None,
    ):
        super().__init__(
            operands=[
                value,
                destination,
                offsets,
                *place_operands(bounds, begins, padding, scatter),
            ],
            properties=access_properties(bounds, begins, widths, padding, scatter),
        )

    def verify_(self) -> None:
        check_fragment(self.value.type, "the value")
        if self.place is not None and (str(format_of(self.value.type)) not in SUMS or self.staged is not None):
            raise VerifyException("what is scattered is added, in f32 or i32, by the threads that have it")
        self.check_fragment_access(self.destination.type, self.value.type)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = parser.parse_unresolved_operand()
        parser.parse_keyword("into")
        access = ParsedAccess(parser)
        access.parse_tail(parser)
        parser.parse_punctuation(":")
        value_type = parser.parse_type()
        parser.parse_punctuation(",")
        destination_type = parser.parse_type()
        offsets, bounds, begins, padding = access.operands(parser)
        op = cls(
            parser.resolve_operand(value, value_type),
            parser.resolve_operand(access.buffer, destination_type),
            offsets,
            bounds,
            access.widths,
            begins,
            padding,
            access.scatter,
        )
        return access.marked(op)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(" into ")
        self.print_offsets(printer, self.destination)
        self.print_tail(printer)
        printer.print_string(" : ")
        printer.print_list((self.value.type, self.destination.type), printer.print_attribute)


def is_added(op: GlobalAccess) -> bool:
    """Whether an access adds elements to what lies there."""
    return isinstance(op, StoreOp) and op.place is not None


def buffer_of(op: GlobalAccess) -> SSAValue:
    """The array in device memory that an access is to or from."""
    match op:
        case CopyOp():
            return op.buffer
        case LoadOp():
            return op.source
        case StoreOp():
            return op.destination
        case _:
            raise VerifyException(f"'{op.name}' is no access to an array in device memory")

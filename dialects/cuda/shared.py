"""Tiles in shared memory: their place, their stages, and how threads read and write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from xdsl.dialects.builtin import (
    IndexType,
    IntAttr,
    MemRefType,
    TensorType,
    UnitAttr,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.tiles import check_fragment, check_tile, is_boxed, layout_of, tile_bytes
from treadle.dialects.diagram.array import (
    sizes_of,
)
from treadle.dialects.syntax import parse_attributes, parse_element, print_element, print_types

BOXES_UNIT = 1024
"""Bytes that a tile in boxes is aligned to."""


@irdl_op_definition
class SharedOp(IRDLOperation):
    """A tile in the block's shared memory, at an offset in bytes; with `stages`, that many of it one after another. An
    `alias` is used only when all other tiles are dead, and lies where they lay.

    ```
    %K_shared = cuda.shared at 16384 stages 2 : memref<...>
    ```
    """

    name = "cuda.shared"

    offset = prop_def(IntAttr)
    stages = prop_def(IntAttr)
    alias = opt_prop_def(UnitAttr)
    result = result_def(MemRefType)

    def __init__(self, offset: int, type: Attribute, stages: int = 1, alias: bool = False):
        super().__init__(
            properties={
                "offset": IntAttr(offset),
                "stages": IntAttr(stages),
                "alias": UnitAttr() if alias else None,
            },
            result_types=[type],
        )

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage, a multiple of 128, or of 1024 where the tile lies in boxes."""
        return tile_bytes(self.result.type)

    def verify_(self) -> None:
        check_tile(self.result.type, "the tile")
        if self.offset.data % 16:
            raise VerifyException(f"a tile at byte {self.offset.data}: tiles are aligned to 16 bytes")
        if is_boxed(self.result.type) and self.offset.data % BOXES_UNIT:
            raise VerifyException(f"a tile at byte {self.offset.data}: in boxes it is aligned to {BOXES_UNIT} bytes")
        if self.stages.data < 1:
            raise VerifyException(f"a tile with {self.stages.data} stages: it has 1 or more")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.parse_keyword("at")
        offset = parser.parse_integer()
        stages = parser.parse_integer() if parser.parse_optional_keyword("stages") else 1
        alias = parser.parse_optional_keyword("alias") is not None
        attributes = parse_attributes(parser)
        op = cls(offset, parser.parse_type(), stages, alias)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        stages = f" stages {self.stages.data}" if self.stages.data != 1 else ""
        stages += " alias" if self.alias is not None else ""
        printer.print_string(f" at {self.offset.data}{stages}")
        print_types(printer, self, (self.result.type,))


def place_tiles(tiles: Iterable[SharedOp]) -> int:
    """Give every tile its offset, one after another; gives the bytes that all take. Aliases begin at 0."""
    end = most = 0
    for tile in tiles:
        bytes = tile.stages.data * tile.stage_bytes
        if tile.alias is not None:
            tile.offset = IntAttr(0)
            most = max(most, bytes)
            continue
        unit = BOXES_UNIT if is_boxed(tile.result.type) else 1
        end = -(-end // unit) * unit
        tile.offset = IntAttr(end)
        end += bytes
    return max(end, most)


@irdl_op_definition
class StageOp(IRDLOperation):
    """One stage of a tile.

    ```
    %K_now = cuda.stage %K_shared[%turn] : memref<...>
    ```
    """

    name = "cuda.stage"

    tile = operand_def(MemRefType)
    index = operand_def(IndexType())
    result = result_def(MemRefType)

    traits = traits_def(Pure())

    def __init__(self, tile: SSAValue, index: SSAValue):
        super().__init__(operands=[tile, index], result_types=[tile.type])

    def verify_(self) -> None:
        if not isinstance(self.tile.owner, SharedOp):
            raise VerifyException("a stage is taken of a tile made by cuda.shared")
        if self.result.type != self.tile.type:
            raise VerifyException("a stage has the type of its tile")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        tile, index = parse_element(parser)
        attributes = parse_attributes(parser)
        op = cls(parser.resolve_operand(tile, parser.parse_type()), parser.resolve_operand(index, IndexType()))
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_element(printer, self.tile, self.index)
        print_types(printer, self, (self.tile.type,))


def check_read(tile: Attribute, fragments: Attribute) -> None:
    """That fragments of this type can be read of the tile (VerifyException)."""
    check_tile(tile, "the source")
    check_fragment(fragments, "the result")
    if sizes_of(tile) != sizes_of(fragments):
        raise VerifyException("a tile is read with the axes and sizes that it has")


@irdl_op_definition
class ReadOp(IRDLOperation):
    """Each thread reads its elements of a tile from shared memory."""

    name = "cuda.read"

    source = operand_def(MemRefType)
    result = result_def(TensorType)

    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, result_type: Attribute):
        super().__init__(operands=[source], result_types=[result_type])

    def verify_(self) -> None:
        check_read(self.source.type, self.result.type)


@irdl_op_definition
class WriteOp(IRDLOperation):
    """Each thread writes its elements of a tile to shared memory; padding of the tile becomes zero. With `part`, those
    of one of so many equal parts of the fragments, cut along the axis of their first register mode.

    ```
    cuda.write %C part 1 of 2 into %C_staged : !c, !Cs
    ```
    """

    name = "cuda.write"

    value = operand_def(TensorType)
    destination = operand_def(MemRefType)
    part = opt_prop_def(IntAttr)
    parts = opt_prop_def(IntAttr)

    def __init__(self, value: SSAValue, destination: SSAValue, part: tuple[int, int] | None = None):
        properties = {} if part is None else {"part": IntAttr(part[0]), "parts": IntAttr(part[1])}
        super().__init__(operands=[value, destination], properties=properties)

    @property
    def which(self) -> tuple[int, int]:
        """The part that is written, of how many."""
        return (0, 1) if self.part is None or self.parts is None else (self.part.data, self.parts.data)

    def verify_(self) -> None:
        check_fragment(self.value.type, "the value")
        check_tile(self.destination.type, "the destination")
        (part, parts), sizes = self.which, sizes_of(self.value.type)
        if parts > 1:
            mode = next(iter(layout_of(self.value.type).register), None)
            if mode is None or not 0 <= part < parts or mode.size % parts or mode.axis not in sizes:
                raise VerifyException(f"part {part} of {parts}: the fragments cannot be cut so")
            sizes = sizes | {mode.axis: sizes[mode.axis] // parts}
        if sizes != sizes_of(self.destination.type):
            raise VerifyException("a tile is written with the axes and sizes that it has")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value, part = parser.parse_unresolved_operand(), None
        if parser.parse_optional_keyword("part") is not None:
            number = parser.parse_integer()
            parser.parse_keyword("of")
            part = number, parser.parse_integer()
        parser.parse_keyword("into")
        destination = parser.parse_unresolved_operand()
        attributes = parse_attributes(parser)
        value_type = parser.parse_type()
        parser.parse_punctuation(",")
        op = cls(
            parser.resolve_operand(value, value_type), parser.resolve_operand(destination, parser.parse_type()), part
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        if self.parts is not None:
            printer.print_string(f" part {self.which[0]} of {self.which[1]}")
        printer.print_string(" into ")
        printer.print_operand(self.destination)
        print_types(printer, self, (self.value.type, self.destination.type))

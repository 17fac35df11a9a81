"""Tensor copies of tiles whose rows lie where data say: a copy for each run of rows (PTX ISA 9.7.9.27.1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Self

from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.accesses import ParsedAccess
from treadle.dialects.cuda.boxes import BoxesAttr
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.placed import Bounds, Padding, PlacedAccess, Scatter, place_operands, place_properties
from treadle.dialects.cuda.rings import RingType
from treadle.dialects.cuda.runs import moving, rows_of_run
from treadle.dialects.cuda.tensor_maps import ROW_BYTES, TensorMapType, shared_axis
from treadle.dialects.cuda.tiles import boxes_of, format_bytes, is_boxed, padded_axes
from treadle.dialects.diagram.array import axes_of, format_of, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.place import axes_of_forms
from treadle.dialects.syntax import parse_element, print_element, print_types


@irdl_op_definition
class TensorGatherOp(PlacedAccess):
    """The lanes of the producer's warp start the copies of a tile whose rows lie where data say: each those of a run,
    rows that follow each other in the array, box by box. A run is a box of the map; `at` and all behind it are those of
    `cuda.copy`. The bytes of all runs complete on the ring's full barrier of this turn.

    What lies outside of the array becomes zeros: a position below 0 or past an end, whatever data say. So does a run
    none of whose rows are within the bounds, for which no entries are read. Of one that reaches past a bound, all rows
    come; with `by %row_map`, of boxes of one row, those beyond become zeros, too.

    ```
    cuda.tensor_gather %K_map[%b0, %x0, %h0, %d0] into %K_to signals %K_ring[%turn]
        at "table[b, x // 16], x % 16, h, d" with (table = %table : !table) bounds [x < %x] by %K_row :
        !K_map, !K_tile, !cuda.ring<2>, !K_row
    ```
    """

    name = "cuda.tensor_gather"

    map = operand_def(TensorMapType)
    tile = operand_def(MemRefType)
    ring = operand_def(RingType)
    turn = operand_def(IndexType())
    row_map = opt_operand_def(TensorMapType)

    def __init__(
        self,
        map: SSAValue,
        offsets: Sequence[SSAValue],
        tile: SSAValue,
        ring: SSAValue,
        turn: SSAValue,
        scatter: Scatter,
        bounds: Bounds = (),
        begins: Bounds = (),
        padding: Padding = (),
        row_map: SSAValue | None = None,
    ):
        beside = place_operands(bounds, begins, padding, scatter)
        super().__init__(
            operands=[map, tile, ring, turn, row_map, offsets, *beside],
            properties=place_properties(bounds, begins, padding, scatter),
        )

    @property
    def map_type(self) -> TensorMapType:
        assert isinstance(self.map.type, TensorMapType)
        return self.map.type

    @property
    def buffer_type(self) -> Attribute:
        return self.map_type.buffer

    @property
    def piece_type(self) -> Attribute:
        return self.tile.type

    @property
    def boxes(self) -> BoxesAttr:
        return boxes_of(self.tile.type)

    @property
    def bytes(self) -> int:
        """What arrives, what lies outside of the array included."""
        return self.boxes.elements * format_bytes(self.tile.type)

    @property
    def row_axis(self) -> str:
        """The axis along which rows of the tile follow each other."""
        return axes_of(self.tile.type)[shared_axis(self.boxes)]

    @property
    def rows(self) -> int:
        """Of a run."""
        return prod(self.map_type.shape[:-1])

    @property
    def runs(self) -> int:
        """In the tile."""
        return self.boxes.rows // self.rows

    @property
    def along(self) -> int:
        """The axis of the array along which the rows of a run follow each other; of single rows, the first."""
        found = moving(list(self.forms.values()), self.row_axis)
        return 0 if found is None or self.rows == 1 else found

    def verify_(self) -> None:
        tile, place = self.tile.type, self.place
        if place is None:
            raise VerifyException("say `at` which positions the rows of the tile have: others are loaded")
        if not is_boxed(tile):
            raise VerifyException(f"{tile} is not a tile in shared memory in #cuda.boxes")
        if format_of(tile) != format_of(self.buffer_type):
            raise VerifyException("a tile has the format of its buffer")
        self.check_place(tile)
        if (problem := why_no_runs(place.forms, tile)) is not None:
            raise VerifyException(problem)
        if (problem := why_not_filled(self.buffer_type, tile)) is not None:
            raise VerifyException(problem)
        if self.boxes.rows % self.rows:
            raise VerifyException(f"runs of {self.rows} rows do not divide the {self.boxes.rows} of the tile")
        if self.runs > LANES:
            raise VerifyException(f"{self.runs} runs of {self.rows} rows: each of {LANES} lanes copies one at most")
        if (longest := rows_of_run(place.forms, self.row_axis, self.boxes.rows, lambda _: True)) % self.rows:
            raise VerifyException(f"at {place.text.data} runs have {longest} rows, not {self.rows}")
        if self.map_type != run_type(self.buffer_type, tile, place.forms, self.rows):
            raise VerifyException(f"a box of {list(self.map_type.shape)} is no run of rows at {place.text.data}")
        if self.row_map is not None and self.row_map.type != run_type(self.buffer_type, tile, place.forms, 1):
            raise VerifyException(f"rows come one by one by a map of boxes of one row, not by {self.row_map.type}")
        for type in [self.map.type] if self.row_map is None else [self.map.type, self.row_map.type]:
            if (problem := why_no_box(type)) is not None:
                raise VerifyException(problem)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        access = ParsedAccess(parser)
        parser.parse_keyword("into")
        tile = parser.parse_unresolved_operand()
        parser.parse_keyword("signals")
        ring, turn = parse_element(parser)
        access.parse_place(parser)
        if access.scatter is None:
            parser.raise_error("expected `at` and the positions of the rows")
        row = parser.parse_unresolved_operand() if parser.parse_optional_keyword("by") is not None else None
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types: list[Attribute] = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        if len(types) != (3 if row is None else 4):
            parser.raise_error("expected the types of the map, the tile, the ring, and of a map of rows")
        offsets, bounds, begins, padding = access.operands(parser)
        values = [parser.resolve_operand(each, types[i]) for i, each in enumerate((access.buffer, tile, ring))]
        op = cls(
            values[0],
            offsets,
            values[1],
            values[2],
            parser.resolve_operand(turn, IndexType()),
            access.scatter,
            bounds,
            begins,
            padding,
            row and parser.resolve_operand(row, types[3]),
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        self.print_offsets(printer, self.map)
        printer.print_string(" into ")
        printer.print_operand(self.tile)
        printer.print_string(" signals ")
        print_element(printer, self.ring, self.turn)
        self.print_place(printer)
        if self.row_map is not None:
            printer.print_string(" by ")
            printer.print_operand(self.row_map)
        maps = [self.map.type, *([] if self.row_map is None else [self.row_map.type])]
        print_types(printer, self, (maps[0], self.tile.type, self.ring.type, *maps[1:]))


def why_no_runs(forms: Sequence[Linear], tile: Attribute) -> str | None:
    """Why a tile has no rows at these positions of an array that boxes bring; None if it has."""
    *outer, last = forms
    columns = axes_of(tile)[-1]
    if last != Linear({columns: 1}) or columns in axes_of_forms(outer):
        return f"neighbours along '{columns}' are no neighbours in the array"
    boxes = boxes_of(tile)
    if tuple(boxes.order):
        return "rows with an order of their own are not gathered"
    return None if boxes.box[shared_axis(boxes)] == boxes.rows else "rows of the tile lie along several axes"


def why_not_filled(buffer: Attribute, tile: Attribute) -> str | None:
    """Why the copies of runs do not bring zeros behind the elements of a tile that reaches further than it has any;
    None if they do: its rows end with those of the array."""
    row, size = axes_of(tile)[-1], list(sizes_of(tile).values())[-1]
    padded = padded_axes(tile)
    if {*padded} <= {row} and (not padded or list(sizes_of(buffer).values())[-1] == size):
        return None
    return f"the tile lies in boxes that reach further along '{padded[0]}', where data say what lies there"


def why_no_box(map: Attribute) -> str | None:
    """Why no copy brings a box to where a run lies in a tile; None if one does."""
    assert isinstance(map, TensorMapType)
    bytes = prod(map.shape) * format_bytes(map.buffer)
    if bytes % ROW_BYTES == 0:
        return None
    return f"copies come to multiples of {ROW_BYTES} bytes: a run of {list(map.shape)} elements has {bytes}"


def run_type(buffer: Attribute, tile: Attribute, forms: Sequence[Linear], rows: int) -> TensorMapType:
    """The map whose boxes are runs of so many rows of a tile."""
    boxes = boxes_of(tile)
    sides = [1] * len(forms)
    sides[-1] = boxes.span.data
    if rows > 1:
        along = moving(forms, axes_of(tile)[shared_axis(boxes)])
        assert along is not None
        sides[along] = rows
    return TensorMapType(sides, buffer)

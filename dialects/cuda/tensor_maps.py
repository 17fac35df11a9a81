"""Tensor maps and the copies that they describe (PTX ISA 5.5.8 and 9.7.9.27.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IndexType,
    IntAttr,
    IntegerAttr,
    MemRefType,
    UnitAttr,
    i1,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    opt_operand_def,
    opt_prop_def,
    param_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.boxes import MOST_ROWS, SPANS, BoxesAttr, cut
from treadle.dialects.cuda.clusters import cluster_around
from treadle.dialects.cuda.layout import Mode, ModesAttr, parse_modes_after_equals, spelled
from treadle.dialects.cuda.rings import RingOp, RingType
from treadle.dialects.cuda.tiles import boxes_of, format_bytes, is_boxed, padded_axes
from treadle.dialects.diagram.array import axes_of, format_of, level_of, sizes_of
from treadle.dialects.syntax import parse_attributes, parse_element, print_element, print_types

MOST_AXES = 5
"""Dimensions of a tensor map."""


@irdl_attr_definition
class TensorMapType(ParametrizedAttribute, TypeAttribute):
    """`!cuda.tensor_map<[128, 64], memref<...>>`: how an array at device level is cut into boxes of so many elements
    along each axis. The inner side of a box is also the span of its swizzle. `order = [x:2:2, x:28:4, x:2:1]` after the
    sides: the rows of a box in another order (`#cuda.boxes`), for which x becomes several dimensions."""

    name = "cuda.tensor_map"

    box: ArrayAttr[IntAttr] = param_def()
    order: ModesAttr = param_def()
    buffer: MemRefType = param_def()

    def __init__(self, box: Sequence[int], buffer: Attribute, order: Iterable[Mode] = ()):
        super().__init__(ArrayAttr(IntAttr(side) for side in box), ModesAttr(order), buffer)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements of a box, the last axis the contiguous one."""
        return tuple(side.data for side in self.box)

    @property
    def swizzle_bytes(self) -> int:
        return self.shape[-1] * format_bytes(self.buffer)

    @property
    def multiple(self) -> tuple[str, int] | None:
        """An axis whose size must be a multiple, for else a copy would bring the rows of the next matrix; None if any
        sizes serve."""
        inner = cut(tuple(self.order))
        return (inner[0].axis, inner[0].stride) if inner else None

    @property
    def sides(self) -> tuple[int, ...]:
        """The sides of what one copy brings, along the dimensions of the map."""
        axes, inner = axes_of(self.buffer), cut(tuple(self.order))
        along = {mode.axis: tuple(each.size for each in inner) for mode in inner}
        return tuple(side for axis, own in zip(axes, self.shape, strict=True) for side in along.get(axis, (own,)))

    def dimensions(self, sizes: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides of the dimensions of the map, of an array with such sizes and strides."""
        found: list[tuple[int, int]] = []
        for axis, size, stride in zip(axes_of(self.buffer), sizes, strides, strict=True):
            for mode in (inner := [mode for mode in cut(tuple(self.order)) if mode.axis == axis]):
                found.append((-(-size // mode.stride), stride * mode.stride))
                size = mode.stride
            if not inner:
                found.append((size, stride))
        return tuple(size for size, _ in found), tuple(stride for _, stride in found)

    def verify(self) -> None:
        if level_of(self.buffer) != "device":
            raise VerifyException(f"a tensor map of {self.buffer}: expected a buffer at device level")
        if not 2 <= len(self.sides) <= MOST_AXES:
            raise VerifyException(f"a tensor map has 2 to {MOST_AXES} dimensions, not {len(self.sides)}")
        if len(self.shape) != len(axes_of(self.buffer)):
            raise VerifyException(f"a box of {len(self.shape)} sides for axes [{', '.join(axes_of(self.buffer))}]")
        if any(not 1 <= side <= MOST_ROWS for side in self.shape):
            raise VerifyException(f"sides of a box are 1 to {MOST_ROWS} elements, not {list(self.shape)}")
        if self.swizzle_bytes not in SPANS:
            raise VerifyException(f"the inner side of a box is 32, 64 or 128 bytes, not {self.swizzle_bytes}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        order = ModesAttr(())
        with parser.in_angle_brackets():
            box = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            parser.parse_punctuation(",")
            if parser.parse_optional_keyword("order") is not None:
                order = parse_modes_after_equals(parser)
                parser.parse_punctuation(",")
            buffer = parser.parse_type()
        return (ArrayAttr(IntAttr(side) for side in box), order, buffer)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            order = f"order = {spelled(self.order)}, " if tuple(self.order) else ""
            printer.print_string(f"[{', '.join(str(side) for side in self.shape)}], {order}")
            printer.print_attribute(self.buffer)


@irdl_op_definition
class MappableOp(IRDLOperation):
    """Whether tensor maps (PTX ISA 5.5.8) take all these buffers: addresses and strides are multiples of 16 bytes, none
    of them is empty, sizes and strides are within the limits of a tensor map, and the sizes of some axes are multiples,
    as maps with an order of rows want. In the host function.

    ```
    %mappable = cuda.mappable %A, %B {multiples = {x = 4}} : memref<...>, memref<...>
    ```
    """

    name = "cuda.mappable"

    buffers = var_operand_def(MemRefType)
    multiples = opt_attr_def(DictionaryAttr)
    result = result_def(i1)

    traits = traits_def(Pure())
    assembly_format = "$buffers attr-dict `:` type($buffers)"

    def __init__(self, buffers: Sequence[SSAValue], multiples: Mapping[str, int] | None = None):
        wanted = DictionaryAttr({axis: IntegerAttr(size, i64) for axis, size in (multiples or {}).items()})
        super().__init__(operands=[buffers], attributes={"multiples": wanted} if multiples else {}, result_types=[i1])

    @property
    def wanted(self) -> dict[str, int]:
        """What the sizes of axes must be multiples of."""
        if self.multiples is None:
            return {}
        return {axis: size.value.data for axis, size in self.multiples.data.items() if isinstance(size, IntegerAttr)}


@irdl_op_definition
class TensorMapOp(IRDLOperation):
    """The tensor map of a buffer (PTX ISA 5.5.8), an argument of a launch. In the host function.

    ```
    %A_map = cuda.tensor_map %A : !cuda.tensor_map<[128, 64], memref<...>>
    ```
    """

    name = "cuda.tensor_map"

    buffer = operand_def(MemRefType)
    result = result_def(TensorMapType)

    traits = traits_def(Pure())

    def __init__(self, buffer: SSAValue, type: TensorMapType):
        super().__init__(operands=[buffer], result_types=[type])

    def verify_(self) -> None:
        assert isinstance(self.result.type, TensorMapType)
        if self.result.type.buffer != self.buffer.type:
            raise VerifyException(f"a tensor map of {self.result.type.buffer} is made of {self.buffer.type}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        buffer = parser.parse_unresolved_operand()
        attributes = parse_attributes(parser)
        type = parser.parse_type()
        if not isinstance(type, TensorMapType):
            parser.raise_error("expected a !cuda.tensor_map")
        op = cls(parser.resolve_operand(buffer, type.buffer), type)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.buffer)
        print_types(printer, self, (self.result.type,))


SHARE_ROWS = 8
"""Rows of a box after which its swizzle begins anew: a share of a box has a multiple of them."""


def shared_axis(boxes: BoxesAttr) -> int:
    """The axis of a tile along which shares of the rows of its boxes follow each other."""
    return next(i for i, side in enumerate(boxes.box) if i != boxes.row_axis and (side > 1 or i == len(boxes.box) - 1))


def share_of(boxes: BoxesAttr, shares: int) -> tuple[int, ...] | None:
    """The sides of one of so many equal shares of the rows of each box; None if there are none, or if the rows have
    an order of their own."""
    if shares == 1:
        return boxes.box
    if boxes.rows % (SHARE_ROWS * shares) or tuple(boxes.order):
        return None
    sides, axis = list(boxes.box), shared_axis(boxes)
    if sides[axis] % shares:
        return None
    sides[axis] //= shares
    return tuple(sides)


ROW_BYTES = 128
"""To which the place of a copy in shared memory is aligned: so much has a row that comes alone."""


def why_no_rows(boxes: BoxesAttr, element_bytes: int) -> str | None:
    """Why the rows of a tile cannot be copied from a position or before one; None if they can."""
    if boxes.span.data * element_bytes != ROW_BYTES:
        return f"a row that is copied alone has {ROW_BYTES} bytes, not {boxes.span.data * element_bytes}"
    if tuple(boxes.order):
        return "rows with an order of their own are not copied one by one"
    side = boxes.box[shared_axis(boxes)]
    if side != boxes.rows or side % SHARE_ROWS:
        return f"{side} of {boxes.rows} rows of a box along one axis are no multiple of {SHARE_ROWS}"
    return None


def rows_types(map: TensorMapType, boxes: BoxesAttr) -> list[TensorMapType]:
    """The maps that copy a tile from a position or before one, beside that of its boxes: of 8 rows, and of one."""
    sides, axis = list(map.shape), shared_axis(boxes)
    return [TensorMapType([*sides[:axis], rows, *sides[axis + 1 :]], map.buffer) for rows in (SHARE_ROWS, 1)]


def why_not_padded(tile: Attribute, buffer: Attribute) -> str | None:
    """Why tensor copies do not bring zeros behind the elements of a tile that reaches further than it has any: there
    must be no more of the array; None if they do."""
    sizes, arrays = sizes_of(tile), sizes_of(buffer)
    axis = next((axis for axis in padded_axes(tile) if arrays.get(axis) != sizes[axis]), None)
    if axis is None:
        return None
    return f"a tile of {sizes[axis]} elements along '{axis}' lies in boxes that reach further, as its array does"


def check_mapped(tile: Attribute, map: TensorMapType, offsets: int, shares: int = 1) -> None:
    """That a tensor map moves a tile in boxes, or one of so many shares of it, at so many offsets (VerifyException)."""
    if not is_boxed(tile):
        raise VerifyException(f"{tile} is not a tile in shared memory in #cuda.boxes")
    if axes_of(tile) != axes_of(map.buffer):
        raise VerifyException(
            f"the tile has axes [{', '.join(axes_of(tile))}], its buffer [{', '.join(axes_of(map.buffer))}]"
        )
    if format_of(tile) != format_of(map.buffer):
        raise VerifyException("a tile has the format of its buffer")
    if (problem := why_not_padded(tile, map.buffer)) is not None:
        raise VerifyException(problem)
    share = share_of(boxes_of(tile), shares)
    if share is None:
        raise VerifyException(
            f"{boxes_of(tile).rows} rows of a box are no {shares} shares of {SHARE_ROWS} rows or more"
        )
    if map.shape != share:
        into = f"boxes of {list(boxes_of(tile).box)}" + (f" in {shares} shares" if shares > 1 else "")
        raise VerifyException(f"boxes of {list(map.shape)} into {into}")
    if map.order != boxes_of(tile).order:
        raise VerifyException(f"rows in the order {spelled(map.order)} into {spelled(boxes_of(tile).order)}")
    if offsets != len(map.shape):
        raise VerifyException(f"{offsets} offsets for {len(map.shape)} axes")


@irdl_op_definition
class TensorLoadOp(IRDLOperation):
    """One thread starts the copies of a tile, box by box, to shared memory; what lies outside of the array becomes
    zeros. Their bytes complete on the ring's full barrier of this turn (PTX ISA 9.7.9.27.1.2).

    ```
    cuda.tensor_load %A_map[%m0, %k0] into %A_now signals %A_ring[%turn] : !A_map, !As, !cuda.ring<3>
    ```

    With `multicast` before the types, the blocks of a cluster copy one tile together: each a share, an equal part of
    the rows of its boxes, to all of them. Every block waits for the bytes of all shares (the same section,
    `.multicast::cluster`).

    With `before %stop by %A_rows, %A_row`, rows from that position on become zeros, too: what a group has no use for
    within an array; with `from %begin`, those before that one. A tile that reaches past a position comes by two further
    maps, of 8 rows, at which a swizzle begins anew, and around the position of one row; what lies beyond it is asked
    for from outside of the array.

    ```
    cuda.tensor_load %A_map[%x0, %e0] into %A_now signals %A_ring[%turn] before %stop by %A_rows, %A_row :
        !A_map, !As, !cuda.ring<3>, !A_rows, !A_row
    cuda.tensor_load %A_map[%x0, %e0] into %A_now signals %A_ring[%turn] from %begin before %stop by %A_rows, %A_row :
        !A_map, !As, !cuda.ring<3>, !A_rows, !A_row
    ```
    """

    name = "cuda.tensor_load"

    map = operand_def(TensorMapType)
    tile = operand_def(MemRefType)
    ring = operand_def(RingType)
    turn = operand_def(IndexType())
    offsets = var_operand_def(IndexType())
    begin = opt_operand_def(IndexType())
    stop = opt_operand_def(IndexType())
    row_maps = var_operand_def(TensorMapType)
    multicast = opt_prop_def(UnitAttr)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        map: SSAValue,
        offsets: Sequence[SSAValue],
        tile: SSAValue,
        ring: SSAValue,
        turn: SSAValue,
        multicast: bool = False,
        stop: SSAValue | None = None,
        row_maps: Sequence[SSAValue] = (),
        begin: SSAValue | None = None,
    ):
        super().__init__(
            operands=[map, tile, ring, turn, offsets, begin, stop, row_maps],
            properties={"multicast": UnitAttr() if multicast else None},
        )

    @property
    def shares(self) -> int:
        """Blocks that copy the tile together, each a share of it: those that fill its ring."""
        if self.multicast is None:
            return 1
        ring = self.ring.owner
        return ring.filled_by if isinstance(ring, RingOp) and ring.filled_by > 1 else cluster_around(self)

    @property
    def is_by_rows(self) -> bool:
        """Whether it brings zeros where the array has rows: before a position, or from one on."""
        return self.begin is not None or self.stop is not None

    @property
    def map_type(self) -> TensorMapType:
        assert isinstance(self.map.type, TensorMapType)
        return self.map.type

    @property
    def boxes(self) -> BoxesAttr:
        return boxes_of(self.tile.type)

    @property
    def bytes(self) -> int:
        """What arrives at this block, what lies outside of the array included."""
        return self.boxes.elements * format_bytes(self.tile.type)

    def verify_(self) -> None:
        if self.multicast is not None and self.shares < 2:
            raise VerifyException("a multicast goes to the blocks of a cluster: say `cluster` after the shared memory")
        ring = self.ring.owner
        if isinstance(ring, RingOp) and ring.filled_by != self.shares:
            raise VerifyException(f"{ring.filled_by} blocks fill the stages of its ring, {self.shares} copy the tile")
        check_mapped(self.tile.type, self.map_type, len(self.offsets), self.shares)
        self._check_rows()

    def _check_rows(self) -> None:
        given = [map.type for map in self.row_maps]
        if not self.is_by_rows:
            if given:
                raise VerifyException("maps of rows serve what is copied `from` a position or `before` one")
            return
        if self.multicast is not None:
            raise VerifyException("what blocks copy together begins and ends with the array, not at a position")
        if (problem := why_no_rows(self.boxes, format_bytes(self.tile.type))) is not None:
            raise VerifyException(problem)
        wanted = rows_types(self.map_type, self.boxes)
        if given != wanted:
            boxes = " and ".join(str(list(type.shape)) for type in wanted)
            raise VerifyException(f"what is copied from or before a position comes by maps of boxes of {boxes}, too")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        map = parser.parse_unresolved_operand()
        offsets = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        parser.parse_keyword("into")
        tile = parser.parse_unresolved_operand()
        parser.parse_keyword("signals")
        ring, turn = parse_element(parser)
        begin, stop, rows = None, None, list[UnresolvedOperand]()
        if parser.parse_optional_keyword("from") is not None:
            begin = parser.parse_unresolved_operand()
        if parser.parse_optional_keyword("before") is not None:
            stop = parser.parse_unresolved_operand()
        if begin or stop:
            parser.parse_keyword("by")
            rows = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        multicast = parser.parse_optional_keyword("multicast") is not None
        attributes = parse_attributes(parser)
        types: list[Attribute] = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        if len(types) != 3 + len(rows):
            parser.raise_error("expected the types of the map, the tile, the ring and maps of rows")
        op = cls(
            parser.resolve_operand(map, types[0]),
            [parser.resolve_operand(offset, IndexType()) for offset in offsets],
            parser.resolve_operand(tile, types[1]),
            parser.resolve_operand(ring, types[2]),
            parser.resolve_operand(turn, IndexType()),
            multicast,
            stop and parser.resolve_operand(stop, IndexType()),
            [parser.resolve_operand(map, type) for map, type in zip(rows, types[3:], strict=True)],
            begin and parser.resolve_operand(begin, IndexType()),
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.map)
        printer.print_string("[")
        printer.print_list(self.offsets, printer.print_operand)
        printer.print_string("] into ")
        printer.print_operand(self.tile)
        printer.print_string(" signals ")
        print_element(printer, self.ring, self.turn)
        for word, position in (("from", self.begin), ("before", self.stop)):
            if position is not None:
                printer.print_string(f" {word} ")
                printer.print_operand(position)
        if self.is_by_rows:
            printer.print_string(" by ")
            printer.print_list(self.row_maps, printer.print_operand)
        if self.multicast is not None:
            printer.print_string(" multicast")
        maps = [map.type for map in self.row_maps]
        print_types(printer, self, (self.map.type, self.tile.type, self.ring.type, *maps))

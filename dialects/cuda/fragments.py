"""What works on fragments beside the operations of `diagram`: masks, positions, exchanges between lanes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    FloatAttr,
    IndexType,
    IntAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.tiles import check_fragment, layout_of
from treadle.dialects.diagram.array import (
    Number,
    axes_of,
    format_of,
    is_array,
    sizes_of,
)
from treadle.dialects.diagram.operation import REDUCTIONS
from treadle.dialects.syntax import parse_attributes, print_types

COMPARED = "compared"
"""Attribute of a mask that compares each element's place with its bounds: bits, made once for all elements of a row,
take registers that the kernel has not."""


@irdl_op_definition
class MaskOp(IRDLOperation):
    """Elements at or past the end of an axis become `other`, the neutral element of what follows: an element outside
    does not exist. So do those before a beginning, where one is given. Either may be a number of each row: positions,
    from 0 on, along other axes of the value, in the registers that meet its own.

    ```
    %M = cuda.mask %S where x from %x0 < %x else 0xFF800000 : f32 : !S
    %N = cuda.mask %V where x from %x0 >= %x_begin < %x else 0.0 : f16 : !V
    %W = cuda.mask %S where x from %x0 >= %x_begin < %ends else 0xFF800000 : f32 : !S, index, !rows
    ```
    """

    name = "cuda.mask"

    value = operand_def(TensorType)
    offset = operand_def(IndexType())
    limit = operand_def(IndexType | TensorType)
    begin = opt_operand_def(IndexType | TensorType)
    axis = prop_def(StringAttr)
    other = prop_def(FloatAttr | IntegerAttr)
    result = result_def(TensorType)

    traits = traits_def(Pure())

    def __init__(
        self,
        value: SSAValue,
        axis: str,
        offset: SSAValue,
        limit: SSAValue,
        other: Number,
        begin: SSAValue | None = None,
    ):
        super().__init__(
            operands=[value, offset, limit, begin],
            properties={"axis": StringAttr(axis), "other": other},
            result_types=[value.type],
        )

    def verify_(self) -> None:
        check_fragment(self.value.type, "the value")
        if self.axis.data not in axes_of(self.value.type):
            raise VerifyException(f"axis '{self.axis.data}' is not in the value")
        if self.other.type != format_of(self.value.type):
            raise VerifyException(f"{self.other} is not an element of {format_of(self.value.type)}")
        for bound in self.bounds:
            if is_array(bound.type):
                self._check_bound(bound.type)

    def _check_bound(self, type: Attribute) -> None:
        check_fragment(type, "a bound of each row")
        axes = axes_of(type)
        if str(format_of(type)) != "i32" or not set(axes) <= set(axes_of(self.value.type)) - {self.axis.data}:
            raise VerifyException(f"bounds of rows are i32 along other axes of the value, not {type}")
        if layout_of(type) != layout_of(self.value.type).slice(axes):
            raise VerifyException(f"the bounds of rows lie in other threads or registers than the value: {type}")

    @property
    def bounds(self) -> tuple[SSAValue, ...]:
        return (self.limit,) if self.begin is None else (self.begin, self.limit)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = parser.parse_unresolved_operand()
        parser.parse_keyword("where")
        axis = parser.parse_identifier()
        parser.parse_keyword("from")
        offset = parser.parse_unresolved_operand()
        bounds: list[UnresolvedOperand] = []
        if parser.parse_optional_punctuation(">") is not None:
            parser.parse_punctuation("=")
            bounds.append(parser.parse_unresolved_operand())
        parser.parse_punctuation("<")
        bounds.append(parser.parse_unresolved_operand())
        parser.parse_keyword("else")
        attribute = parser.parse_attribute()
        if not isinstance(attribute, FloatAttr | IntegerAttr):
            parser.raise_error("expected a number with its format")
        other = cast(Number, attribute)
        attributes = parse_attributes(parser)
        resolved = parser.resolve_operand(value, parser.parse_type())
        types: list[Attribute] = [IndexType()] * len(bounds)
        if parser.parse_optional_punctuation(",") is not None:
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        *begin, limit = parser.resolve_operands(bounds, types, parser.pos)
        op = cls(resolved, axis, parser.resolve_operand(offset, IndexType()), limit, other, *begin)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(f" where {self.axis.data} from ")
        printer.print_operand(self.offset)
        if self.begin is not None:
            printer.print_string(" >= ")
            printer.print_operand(self.begin)
        printer.print_string(" < ")
        printer.print_operand(self.limit)
        printer.print_string(" else ")
        printer.print_attribute(self.other)
        types = [bound.type for bound in self.bounds]
        print_types(printer, self, (self.value.type, *(types if any(map(is_array, types)) else ())))


@irdl_op_definition
class IndexOp(IRDLOperation):
    """Each thread's positions along one axis, of a piece that starts at an offset.

    ```
    %at_x = cuda.index %x0 -> !at_x
    ```
    """

    name = "cuda.index"

    offset = operand_def(IndexType())
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$offset attr-dict `->` type($result)"

    def __init__(self, offset: SSAValue, result_type: Attribute):
        super().__init__(operands=[offset], result_types=[result_type])

    @property
    def axis(self) -> str:
        return axes_of(self.result.type)[0]

    def verify_(self) -> None:
        check_fragment(self.result.type, "the result")
        if len(axes_of(self.result.type)) != 1 or str(format_of(self.result.type)) != "i32":
            raise VerifyException(f"positions are i32 along one axis, the result is {self.result.type}")


@irdl_op_definition
class CombineOp(IRDLOperation):
    """Combine what the lanes hold as parts of one result, by exchanges with the lanes whose numbers differ in these
    bits: the end of reductions that were marked `partial`, each lane of which kept to its own elements.

    ```
    %l = cuda.combine add %l_parts lanes [1, 2] : !l
    ```
    """

    name = "cuda.combine"

    value = operand_def(TensorType)
    kind = prop_def(StringAttr)
    lanes = prop_def(ArrayAttr[IntAttr])
    result = result_def(TensorType)

    traits = traits_def(Pure())

    def __init__(self, kind: str, value: SSAValue, lanes: Iterable[int]):
        super().__init__(
            operands=[value],
            properties={"kind": StringAttr(kind), "lanes": ArrayAttr(IntAttr(lane) for lane in lanes)},
            result_types=[value.type],
        )

    @property
    def masks(self) -> tuple[int, ...]:
        return tuple(lane.data for lane in self.lanes)

    def verify_(self) -> None:
        check_fragment(self.value.type, "the value")
        if self.kind.data not in REDUCTIONS:
            raise VerifyException(f"unknown reduction '{self.kind.data}' (known: {', '.join(REDUCTIONS)})")
        if any(mask not in (1, 2, 4, 8, 16) for mask in self.masks):
            raise VerifyException(f"lanes differ in one bit of five, not in {list(self.masks)}")
        if self.result.type != self.value.type:
            raise VerifyException("the result has the type of the value")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        kind = parser.parse_identifier(" for the reduction")
        value = parser.parse_unresolved_operand()
        parser.parse_keyword("lanes")
        lanes = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        attributes = parse_attributes(parser)
        op = cls(kind, parser.resolve_operand(value, parser.parse_type()), lanes)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_operand(self.value)
        printer.print_string(f" lanes [{', '.join(str(mask) for mask in self.masks)}]")
        print_types(printer, self, (self.value.type,))


@irdl_op_definition
class ExchangeOp(IRDLOperation):
    """The same elements in another layout, which each warp has already: its lanes exchange them by shuffles, in as many
    rounds as `compiler/layouts/exchange.py` plans.

    ```
    %t = cuda.exchange %r : !by_rows -> !by_columns
    ```
    """

    name = "cuda.exchange"

    value = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($value) `->` type($result)"

    def __init__(self, value: SSAValue, result_type: Attribute):
        super().__init__(operands=[value], result_types=[result_type])

    def verify_(self) -> None:
        check_fragment(self.value.type, "the value")
        check_fragment(self.result.type, "the result")
        if _contents(self.value.type) != _contents(self.result.type):
            raise VerifyException(
                f"an exchange moves elements and changes none: {self.value.type} to {self.result.type}"
            )
        source, target = layout_of(self.value.type), layout_of(self.result.type)
        if _firsts(source) != _firsts(target):
            raise VerifyException("warps do not hold the same elements in both layouts: lanes exchange within a warp")


def _firsts(layout: LayoutAttr) -> list[dict[str, int]]:
    """The first element of each warp."""
    registers = [0] * len(layout.register_shape)
    found = (layout.coordinates(registers, 0, warp) for warp in range(layout.warps))
    return [{axis: position for axis, position in each.items() if position} for each in found]


def _contents(type: Attribute) -> tuple[Attribute, dict[str, int]]:
    """What a fragment holds, wherever it lies: format, axes and sizes."""
    return format_of(type), sizes_of(type)


PARTIAL = "partial"
"""Attribute of a `diagram.reduce` on fragments whose lanes keep to their own elements; a `cuda.combine` must follow."""


def lane_masks(layout: LayoutAttr, axes: Sequence[str]) -> list[int]:
    """The exchanges, as bits in which the numbers of two lanes differ, that combine all lanes along some axes."""
    masks: list[int] = []
    below = 1
    for mode in reversed(tuple(layout.lane)):
        if mode.axis in axes:
            step = 1
            while step < mode.size:
                masks.append(below * step)
                step *= 2
        below *= mode.size
    return masks

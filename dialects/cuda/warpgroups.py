"""Products of warpgroups (PTX ISA 9.7.15)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Protocol, Self, TypeAlias

from xdsl.dialects.builtin import IntAttr, MemRefType, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.boxes import BoxesAttr, boxes_layout
from treadle.dialects.cuda.layout import LayoutAttr, Mode, accumulator, column_order, is_across, row_operand, spelled
from treadle.dialects.cuda.products import parse_promote
from treadle.dialects.cuda.tiles import boxes_of, extents_of, format_bytes, is_boxed, is_shared, layout_of
from treadle.dialects.cuda.waits import Pending
from treadle.dialects.diagram.array import axes_of, encoding_of, format_of, parse_axis_list, print_axis_list, sizes_of
from treadle.dialects.diagram.formats import BYTES, EIGHT_BIT, NARROW, STORED
from treadle.dialects.syntax import parse_attributes, parse_pair, parse_pair_types, print_types

ROWS = 64
"""Rows of a product of a warpgroup."""


DEPTH_BYTES = 32
"""Of each operand's rows, that a product sums over."""


MOST_COLUMNS = 256


def columns_of_products(operand: str) -> range | tuple[int, ...]:
    """How many columns a product may have, by the format of its operands (PTX ISA 9.7.15.2): those of integers come in
    sixteens from 32 on."""
    every = range(8, MOST_COLUMNS + 1, 8)
    return tuple(n for n in every if n <= 32 or n % 16 == 0) if operand in BYTES else every


def depth_of(operand: Attribute) -> int:
    """Values that a product sums over: 16 of 16 bits, 32 of 8."""
    return DEPTH_BYTES // format_bytes(operand)


def steps_of(operand: Attribute, axis: str) -> int:
    """How many products sum over an axis of an operand. Where the last one reaches past the end, tiles do, too, and
    have zeros there."""
    return -(-sizes_of(operand)[axis] // depth_of(operand))


def multiplied(operand: Attribute, axis: str) -> int:
    """Values along an axis that products sum over, zeros behind its end included."""
    return steps_of(operand, axis) * depth_of(operand)


@irdl_op_definition
class WarpgroupProductOp(IRDLOperation):
    """Every consumer warpgroup starts its part of a sum of products over one axis, 64 rows of it, as one group
    (PTX ISA 9.7.15.5), added to the accumulator if there is one. Registers of the result, and of a left operand in
    registers, must not be touched, and stages of operands not released, before a `cuda.warpgroup_wait`.

    ```
    %C_started = cuda.warpgroup_product %A_now, %B_now into %C over [k] : !As, !Bs -> !C
    ```
    """

    name = "cuda.warpgroup_product"

    lhs = operand_def()
    rhs = operand_def(MemRefType)
    accumulator = opt_operand_def(TensorType)
    over = prop_def(StringAttr)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(self, lhs: SSAValue, rhs: SSAValue, accumulator: SSAValue | None, over: str, result: Attribute):
        super().__init__(
            operands=[lhs, rhs, [] if accumulator is None else [accumulator]],
            properties={"over": StringAttr(over)},
            result_types=[result],
        )

    @property
    def axis(self) -> str:
        return self.over.data

    @property
    def is_of_integers(self) -> bool:
        """Whether sums are exact, in 32 bits, in which they wrap."""
        return str(format_of(self.result.type)) == "i32"

    def verify_(self) -> None:
        verify_product(self)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands, axis, promote, attributes, type = parse_product(parser)
        if promote is not None:
            parser.raise_error("sums are promoted by 'cuda.promoted_product'")
        op = cls(*operands, axis, type)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        print_product(printer, self, (self.lhs, self.rhs, self.accumulator), self.axis)


@irdl_op_definition
class WarpgroupWaitOp(IRDLOperation):
    """A warpgroup waits until at most `pending` of its newest groups of products are under way; the value, which a
    group that is now finished has made, may be read (PTX ISA 9.7.15.7.3).

    ```
    %S = cuda.warpgroup_wait %S_started pending 1 : !S
    ```
    """

    name = "cuda.warpgroup_wait"

    value = operand_def(TensorType)
    pending = prop_def(IntAttr)
    result = result_def(TensorType)

    def __init__(self, value: SSAValue, pending: int = 0):
        super().__init__(operands=[value], properties={"pending": IntAttr(pending)}, result_types=[value.type])

    def verify_(self) -> None:
        _check_pending(self.pending.data)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = parser.parse_unresolved_operand()
        parser.parse_keyword("pending")
        pending = parser.parse_integer()
        attributes = parse_attributes(parser)
        op = cls(parser.resolve_operand(value, parser.parse_type()), pending)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(f" pending {self.pending.data}")
        print_types(printer, self, (self.result.type,))


@irdl_op_definition
class WarpgroupDrainOp(Pending):
    """A warpgroup waits until at most `pending` of its newest groups of products are under way. What older groups have
    read may be overwritten; sums are read after a `cuda.warpgroup_wait` only (PTX ISA 9.7.15.7.3).

    ```
    cuda.warpgroup_drain pending 1
    ```
    """

    name = "cuda.warpgroup_drain"

    def verify_(self) -> None:
        _check_pending(self.pending.data)


def _check_pending(count: int) -> None:
    if not 0 <= count < 8:
        raise VerifyException(f"{count} groups pending: 0 to 7")


class _Product(Protocol):
    @property
    def lhs(self) -> SSAValue: ...

    @property
    def rhs(self) -> SSAValue: ...

    @property
    def accumulator(self) -> SSAValue | None: ...

    @property
    def result(self) -> SSAValue: ...

    @property
    def axis(self) -> str: ...


def verify_product(op: _Product) -> None:
    if (problem := why_no_product(op.lhs.type, op.rhs.type, op.result.type, op.axis)) is not None:
        raise VerifyException(problem)
    if op.accumulator is not None and op.accumulator.type != op.result.type:
        raise VerifyException("the result has the type of the accumulator")
    for operand in (op.lhs, op.rhs):
        if is_shared(operand.type) and not isinstance(encoding_of(operand.type).layout, BoxesAttr):
            raise VerifyException(f"{operand.type} is no operand of a warpgroup: expected #cuda.boxes")


Operands: TypeAlias = tuple[SSAValue, SSAValue, SSAValue | None]


def parse_product(parser: Parser) -> tuple[Operands, str, int | None, Mapping[str, Attribute], Attribute]:
    """Operands and accumulator, the axis, after how many products sums are promoted, attributes, the result's type."""
    lhs, rhs = parse_pair(parser)
    accumulator = parser.parse_unresolved_operand() if parser.parse_optional_keyword("into") else None
    parser.parse_keyword("over")
    over = parse_axis_list(parser)
    promote = parse_promote(parser)
    attributes = parse_attributes(parser)
    lhs_type, rhs_type, type = parse_pair_types(parser)
    if len(over) != 1:
        parser.raise_error("a product sums over one axis")
    operands = (
        parser.resolve_operand(lhs, lhs_type),
        parser.resolve_operand(rhs, rhs_type),
        None if accumulator is None else parser.resolve_operand(accumulator, type),
    )
    return operands, over[0], promote, attributes, type


def print_product(printer: Printer, op: Operation, operands: Operands, axis: str, how: str = "") -> None:
    lhs, rhs, accumulator = operands
    printer.print_string(" ")
    printer.print_list((lhs, rhs), printer.print_operand)
    if accumulator is not None:
        printer.print_string(" into ")
        printer.print_operand(accumulator)
    printer.print_string(" over ")
    print_axis_list(printer, (axis,))
    printer.print_string(how)
    print_types(printer, op, (lhs.type, rhs.type), op.results[0].type)


def result_axes(layout: LayoutAttr) -> tuple[str, str] | None:
    """Rows and columns of fragments that are an accumulator of warpgroups, 64 rows each; None if they are not. The
    columns may be in the order that a left operand of 8 bits wants (`column_order`)."""
    modes = tuple(layout.register)
    if len(modes) not in (3, 4):
        return None
    columns, rows = modes[0].axis, modes[-2].axis
    inner, beside = layout.along(rows)
    tiles, warps = prod(mode.size for mode in modes[:-2]), inner.warps
    made = (accumulator(rows, columns, 1, tiles, (warps, 1), interleaved) for interleaved in (False, True))
    fits = warps % 4 == 0 and inner in made and is_across(beside, columns, inner.extent(columns))
    return (rows, columns) if fits else None


def warpgroups_across(layout: LayoutAttr) -> int:
    """How many warpgroups share the columns of a result, or have the same: they lie across those along its rows."""
    axes = result_axes(layout)
    return 1 if axes is None else layout.along(axes[0])[1].size


def columns_of_warpgroup(result: Attribute) -> int:
    """Of the result of a product: its own, where several share them."""
    layout = layout_of(result)
    axes = result_axes(layout)
    assert axes is not None
    rows, columns = axes
    inner, beside = layout.along(rows)
    return inner.extent(columns) if beside.axis else sizes_of(result)[columns]


def has_exact_sums(kernel: Operation) -> bool:
    """Whether warpgroups of a kernel multiply integers."""
    return any(isinstance(op, WarpgroupProductOp) and op.is_of_integers for op in kernel.walk())


def row_order(result: Attribute) -> tuple[Mode, ...]:
    """In which order the rows of the right operand lie, for its columns to be those of a result: a column of a product
    is a row of the operand's tile. Empty where they lie in their order."""
    axes = result_axes(layout_of(result))
    order = () if axes is None else column_order(layout_of(result), axes[1])
    return order if len(order) > 1 else ()


def why_no_product(lhs: Attribute, rhs: Attribute, result: Attribute, axis: str) -> str | None:
    """Why no product of warpgroups takes operands and a result of these types, whatever the layout of its tiles; None
    if one does."""
    found = result_axes(layout_of(result))
    if found is None:
        return "the result is not spread over warpgroups of 64 rows each, side by side along the rows"
    rows, columns = found
    sizes, across = sizes_of(result), warpgroups_across(layout_of(result))
    warps, width = layout_of(result).warps // across, columns_of_warpgroup(result)
    formats = str(format_of(lhs)), str(format_of(rhs))
    if (problem := _why_no_formats(*formats, str(format_of(result)))) is not None:
        return problem
    if sizes[rows] != 16 * warps or sizes[columns] != layout_of(result).extent(columns):
        return f"a result of {sizes[rows]} x {sizes[columns]} does not fill its fragments"
    if width not in columns_of_products(formats[1]):
        of = "8, 16, 24, or a multiple of 16" if formats[1] in BYTES else "a multiple of 8"
        return f"a product of {formats[1]} has 8 to {MOST_COLUMNS} columns, {of}, not {width}"
    depth, step = sizes_of(rhs).get(axis, 0), depth_of(rhs)
    reach = -(-depth // step) * step
    if depth == 0 or (depth % step and not is_shared(lhs)):
        return f"a product sums over a multiple of {step} values along '{axis}', not {depth}"
    for type, outer in ((lhs, rows), (rhs, columns)):
        if not is_shared(type):
            continue
        if formats[1] in STORED and axes_of(type)[-1] != axis:
            return f"operands of 8 bits lie along '{axis}', one along '{axes_of(type)[-1]}'"
        wide = {name: size for name, size in sizes_of(type).items() if size != 1}
        if wide != {outer: sizes[outer], axis: depth}:
            return f"an operand has elements along {wide}: expected {outer} = {sizes[outer]} and {axis} = {depth}"
        order = row_order(result) if outer == columns else ()
        if is_boxed(type) and (extent := extents_of(type)[axes_of(type).index(axis)]) < reach:
            return f"a product sums over {reach} values along '{axis}', the boxes of an operand have {extent}"
        if outer == columns and width < sizes[columns] and _is_cut(type, columns, width):
            return f"a warpgroup would begin at column {width} of an operand, in the middle of its boxes"
        if is_boxed(type) and tuple(boxes_of(type).order) != order:
            return f"rows lie in the order {spelled(boxes_of(type).order)}, for columns in {spelled(order)}"
    if is_shared(lhs):
        return None
    along = (Mode("", across, 0), Mode(rows, warps, 16))
    if layout_of(lhs) != row_operand(rows, axis, 1, reach // step, along, step // 8):
        return "the left operand in registers is spread otherwise than warpgroups take it"
    return None


def _is_cut(operand: Attribute, columns: str, width: int) -> bool:
    """Whether so many columns end in the middle of a box whose rows run along them."""
    boxes = (
        boxes_of(operand)
        if is_boxed(operand)
        else boxes_layout(tuple(sizes_of(operand).values()), format_bytes(operand))
    )
    return axes_of(operand)[-1] == columns and (boxes is None or width % boxes.span.data != 0)


def _why_no_formats(lhs: str, rhs: str, result: str) -> str | None:
    if result != ("i32" if rhs in BYTES else "f32") or rhs not in (*NARROW, *BYTES):
        expected = "floats of 8 or 16 bits and f32, or integers of 8 bits and i32"
        return f"{rhs} is multiplied and {result} accumulated: expected {expected}"
    if lhs != rhs and not any({lhs, rhs} <= set(each) for each in (EIGHT_BIT, BYTES)):
        return f"operands are {lhs} and {rhs}"
    return None

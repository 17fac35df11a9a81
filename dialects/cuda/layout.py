"""Layouts: which thread holds which element of a tile, and where an element lies in shared memory.

A layout is a set of *modes*. A mode `q:8:2` is a digit that runs from 0 to 7 and moves the coordinate of axis
`q` by 2 for each; the digits of the register index, of the lane and of the warp are read from the last mode (the
fastest) to the first. The coordinate of an axis is the sum over its modes. This is CuTe's idea of shapes with strides,
with axes by name. A mode without an axis, written `8`, is a digit that moves nothing: those lanes hold the same
elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

LANES = 32
"""Threads of a warp."""


@dataclass(frozen=True)
class Mode:
    """A digit of `size` values that moves the coordinate of `axis` by `stride`; axis "" moves nothing."""

    axis: str
    size: int
    stride: int

    def __str__(self) -> str:
        return f"{self.axis}:{self.size}:{self.stride}" if self.axis else str(self.size)


@irdl_attr_definition
class ModeAttr(ParametrizedAttribute):
    """One mode, as an attribute."""

    name = "cuda.mode"

    axis: StringAttr = param_def()
    size: IntAttr = param_def()
    stride: IntAttr = param_def()

    def __init__(self, mode: Mode):
        super().__init__(StringAttr(mode.axis), IntAttr(mode.size), IntAttr(mode.stride))

    @property
    def mode(self) -> Mode:
        return Mode(self.axis.data, self.size.data, self.stride.data)


_attribute = cache(ModeAttr)
"""A mode as an attribute, the same for equal modes: a kernel has hundreds of layouts of a few modes."""


@irdl_attr_definition
class ModesAttr(ParametrizedAttribute):
    """`#cuda.modes<[q:8:1, x:4:2]>`: the digits of one index, the slowest first."""

    name = "cuda.modes"

    modes: ArrayAttr[ModeAttr] = param_def()

    def __init__(self, modes: Iterable[Mode]):
        super().__init__(ArrayAttr(_attribute(mode) for mode in modes if mode.size != 1))

    def __iter__(self) -> Iterator[Mode]:
        for mode in self.modes:
            yield mode.mode

    @property
    def size(self) -> int:
        return prod(mode.size for mode in self)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (_parse_modes(parser).modes,)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            _print_modes(printer, self)


def _parse_modes(parser: AttrParser) -> ModesAttr:
    def entry() -> Mode:
        if (replicas := parser.parse_optional_integer(allow_boolean=False)) is not None:
            return Mode("", replicas, 0)
        axis = parser.parse_identifier(" for an axis")
        parser.parse_punctuation(":")
        size = parser.parse_integer(allow_boolean=False)
        parser.parse_punctuation(":")
        return Mode(axis, size, parser.parse_integer(allow_boolean=False))

    return ModesAttr(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, entry))


def parse_modes_after_equals(parser: AttrParser) -> ModesAttr:
    """Modes as the value of a key that was read."""
    parser.parse_punctuation("=")
    return _parse_modes(parser)


def spelled(modes: Iterable[Mode]) -> str:
    """Modes as they are written."""
    return f"[{', '.join(str(mode) for mode in modes)}]"


def _print_modes(printer: Printer, modes: Iterable[Mode]) -> None:
    printer.print_string(spelled(modes))


@irdl_attr_definition
class LayoutAttr(ParametrizedAttribute):
    """Which thread holds which elements of a tile, in which register.

    `#cuda.layout<register = [x:8:8, q:2:8, x:2:1], lane = [q:8:1, x:4:2], warp = [q:4:16]>` is the accumulator
    of `mma.m16n8` (PTX ISA 9.7.14.5.8), eight times along x, for four warps along q. The register modes are the
    dimensions of the array that the CUDA C declares."""

    name = "cuda.layout"

    register: ModesAttr = param_def()
    lane: ModesAttr = param_def()
    warp: ModesAttr = param_def()

    def __init__(
        self,
        register: Iterable[Mode],
        lane: Iterable[Mode],
        warp: Iterable[Mode],
    ):
        super().__init__(ModesAttr(register), ModesAttr(lane), ModesAttr(warp))

    def verify(self) -> None:
        if self.lane.size != LANES:
            raise VerifyException(f"the modes of a lane have {self.lane.size} values, a warp has {LANES} lanes")

    @property
    def register_shape(self) -> tuple[int, ...]:
        """Dimensions of the array that a thread holds."""
        return tuple(mode.size for mode in self.register)

    @property
    def warps(self) -> int:
        return self.warp.size

    def axes(self) -> tuple[str, ...]:
        modes = (*self.register, *self.lane, *self.warp)
        return tuple(dict.fromkeys(mode.axis for mode in modes if mode.axis))

    def extent(self, axis: str) -> int:
        """One more than the largest coordinate along the axis that the layout reaches."""
        modes = (*self.register, *self.lane, *self.warp)
        return 1 + sum((mode.size - 1) * mode.stride for mode in modes if mode.axis == axis)

    def slice(self, axes: Iterable[str]) -> LayoutAttr:
        """The layout of an array that has only these axes: every thread holds the elements that it needs to
        meet its own of the larger array, so lanes and warps that lay along other axes hold copies."""
        kept = set(axes)

        def replicate(modes: Iterable[Mode]) -> list[Mode]:
            return [mode if mode.axis in kept else Mode("", mode.size, 0) for mode in modes]

        register = [mode for mode in self.register if mode.axis in kept]
        return LayoutAttr(register, replicate(self.lane), replicate(self.warp))

    def across(self, mode: Mode) -> LayoutAttr:
        """As many times these warps, the digit of which of them is the slowest: along an axis of their own, or (without
        one) with the same elements each."""
        return LayoutAttr(self.register, self.lane, (mode, *self.warp))

    def along(self, rows: str) -> tuple[LayoutAttr, Mode]:
        """The layout of those warps that lie along the rows, and the digit of those across them, of size 1 where there
        are none."""
        modes = tuple(self.warp)
        if not modes or modes[0].axis == rows or any(mode.axis != rows for mode in modes[1:]):
            return self, Mode("", 1, 0)
        return LayoutAttr(self.register, self.lane, modes[1:]), modes[0]

    def spread(self) -> LayoutAttr:
        """The same threads, forgetting the registers: equal for layouts between which values need not move."""
        return LayoutAttr((), self.lane, self.warp)

    def neighbours_last(self, axis: str) -> LayoutAttr | None:
        """The same threads, with neighbours along an axis in registers that follow each other, if a thread has some;
        None if they do already."""
        *others, last = [*self.register] or [Mode("", 1, 0)]
        near = next((mode for mode in others if (mode.axis, mode.stride) == (axis, 1)), None)
        if near is None or (last.axis, last.stride) == (axis, 1):
            return None
        return LayoutAttr((*(mode for mode in self.register if mode != near), near), self.lane, self.warp)

    def coordinates(self, registers: Sequence[int], lane: int, warp: int) -> dict[str, int]:
        """Coordinates of the element that a thread holds in one register."""
        found = dict.fromkeys(self.axes(), 0)
        for modes, digits in (
            (self.register, registers),
            (self.lane, digits_of(lane, self.lane)),
            (self.warp, digits_of(warp, self.warp)),
        ):
            for mode, digit in zip(modes, digits, strict=True):
                if mode.axis:
                    found[mode.axis] += digit * mode.stride
        return found

    def elements(self) -> Iterator[tuple[tuple[int, ...], int, int, dict[str, int]]]:
        """Every (registers, lane, warp) with its coordinates: the layout by enumeration, for tests."""
        for warp, lane in product(range(self.warps), range(LANES)):
            for registers in product(*(range(size) for size in self.register_shape)):
                yield registers, lane, warp, self.coordinates(registers, lane, warp)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        parts: list[Attribute] = []
        with parser.in_angle_brackets():
            for i, key in enumerate(("register", "lane", "warp")):
                if i:
                    parser.parse_punctuation(",")
                parser.parse_keyword(key)
                parts.append(parse_modes_after_equals(parser))
        return parts

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            for i, (key, modes) in enumerate((("register", self.register), ("lane", self.lane), ("warp", self.warp))):
                printer.print_string(f"{', ' if i else ''}{key} = ")
                _print_modes(printer, modes)


def digits_of(index: int, modes: Iterable[Mode]) -> list[int]:
    """The digits of an index, the slowest first."""
    digits: list[int] = []
    for mode in reversed(tuple(modes)):
        digits.append(index % mode.size)
        index //= mode.size
    return digits[::-1]


@irdl_attr_definition
class RowsAttr(ParametrizedAttribute):
    """`#cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>`: a tile in shared memory, its axes in order, each
    padded to `extents` with zeros, rows `pitch` elements apart.

    With `swizzle = [bits, shift]` the index of a 16-byte chunk within its row is XORed with `(row >> shift) mod
    2^bits`, so that the same chunk of eight neighbouring rows lies in eight different groups of banks; a pitch of an
    odd number of chunks needs none."""

    name = "cuda.rows"

    extents: ArrayAttr[IntAttr] = param_def()
    pitch: IntAttr = param_def()
    swizzle: ArrayAttr[IntAttr] = param_def()

    def __init__(self, extents: Iterable[int], pitch: int, swizzle: Iterable[int] = ()):
        super().__init__(
            ArrayAttr(IntAttr(extent) for extent in extents),
            IntAttr(pitch),
            ArrayAttr(IntAttr(number) for number in swizzle),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent.data for extent in self.extents)

    @property
    def swizzle_bits(self) -> int:
        return self.swizzle.data[0].data if self.swizzle.data else 0

    @property
    def swizzle_shift(self) -> int:
        return self.swizzle.data[1].data if self.swizzle.data else 0

    @property
    def row_axis(self) -> int | None:
        """Position of the axis along which elements are neighbours: the last with more than one element."""
        wide = [i for i, extent in enumerate(self.shape) if extent != 1]
        return wide[-1] if wide else None

    @property
    def row_strides(self) -> tuple[int, ...]:
        """Rows between neighbours along each axis; 0 for the row's own axis and for an axis with one element."""
        strides = [0] * len(self.shape)
        step = 1
        for i in reversed(range(len(self.shape))):
            if self.shape[i] != 1 and i != self.row_axis:
                strides[i] = step
                step *= self.shape[i]
        return tuple(strides)

    @property
    def elements(self) -> int:
        """Elements that the tile takes, padding included."""
        if self.row_axis is None:
            return 1
        return self.pitch.data * (prod(self.shape) // self.shape[self.row_axis])

    def offset(self, coordinates: Sequence[int], chunk: int) -> int:
        """Where an element lies, in elements from the beginning of the tile; `chunk` is the number of elements in 16
        bytes."""
        if self.row_axis is None:
            return 0
        row = sum(index * stride for index, stride in zip(coordinates, self.row_strides, strict=True))
        column = coordinates[self.row_axis]
        mask = (row >> self.swizzle_shift) & ((1 << self.swizzle_bits) - 1)
        return row * self.pitch.data + (((column // chunk) ^ mask) * chunk + column % chunk)

    def verify(self) -> None:
        if len(self.swizzle.data) not in (0, 2):
            raise VerifyException("a swizzle has two numbers: bits and shift")
        if self.swizzle_bits < 0 or self.swizzle_shift < 0:
            raise VerifyException("a swizzle has no negative bits or shift")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        def numbers() -> ArrayAttr[IntAttr]:
            parser.parse_punctuation("=")
            found = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            return ArrayAttr(IntAttr(number) for number in found)

        swizzle: ArrayAttr[IntAttr] = ArrayAttr(())
        with parser.in_angle_brackets():
            parser.parse_keyword("extents")
            extents = numbers()
            parser.parse_punctuation(",")
            parser.parse_keyword("pitch")
            parser.parse_punctuation("=")
            pitch = parser.parse_integer()
            if parser.parse_optional_punctuation(",") is not None:
                parser.parse_keyword("swizzle")
                swizzle = numbers()
        return (extents, IntAttr(pitch), swizzle)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            extents = ", ".join(str(extent) for extent in self.shape)
            printer.print_string(f"extents = [{extents}], pitch = {self.pitch.data}")
            if self.swizzle.data:
                printer.print_string(f", swizzle = [{self.swizzle_bits}, {self.swizzle_shift}]")


def rows_layout(extents: Sequence[int], chunk: int) -> RowsAttr:
    """The layout of a tile without bank conflicts for eight rows of one chunk (what `ldmatrix` reads) and for rows of
    chunks (what copies write); `chunk` is the number of elements in 16 bytes.

    Rows follow each other without padding. If 2^v, at most 8, divides the chunks of a row, then eight rows begin in
    only 8 / 2^v groups of banks; an XOR of the lowest v bits of the chunk with the number of times that the rows have
    gone through those groups parts them. So few rows that none has gone through them all have none: what is read of a
    line lies constants apart. See `docs/layouts.md`."""
    row = next((extent for extent in reversed(extents) if extent != 1), 1)
    chunks = -(-row // chunk)
    bits = min((chunks & -chunks).bit_length() - 1, 3)
    is_parted = bits > 0 and prod(extents) // max(row, 1) > 1 << 3 - bits
    return RowsAttr(extents, chunks * chunk, (bits, 3 - bits) if is_parted else ())


# -- the layouts of instructions ------------------------------------------------------------------


def accumulator(
    rows: str, columns: str, row_tiles: int, column_tiles: int, warps: tuple[int, int], interleaved: bool = False
) -> LayoutAttr:
    """Fragments of an `mma.m16n8` accumulator (PTX ISA 9.7.14.5.8), `row_tiles x column_tiles` of them a warp,
    `warps` of them along the rows and the columns.

    `interleaved` is the accumulator of a product whose right operand is read with its columns in another order: half of
    the products take 0, 1, 4, 5, 8, 9, 12, 13 of every 16 columns and the other half the rest. Then every lane holds
    four neighbours, which it holds as a left operand of 8-bit numbers too."""
    fine = (Mode(columns, 2, 2), Mode(columns, column_tiles // 2, 16)) if interleaved else ()
    return LayoutAttr(
        register=(
            Mode(rows, row_tiles, 16),
            *(fine or (Mode(columns, column_tiles, 8),)),
            Mode(rows, 2, 8),
            Mode(columns, 2, 1),
        ),
        lane=(Mode(rows, 8, 1), Mode(columns, 4, 4 if interleaved else 2)),
        warp=(Mode(rows, warps[0], 16 * row_tiles), Mode(columns, warps[1], 8 * column_tiles)),
    )


def accumulator_axes(layout: LayoutAttr) -> tuple[str, str] | None:
    """Rows and columns of fragments that are an accumulator, or a part of one; None if they are not. The columns are in
    order."""
    modes, lanes = tuple(layout.register), tuple(layout.lane)
    if len(modes) < 3 or len(lanes) != 2:
        return None
    rows, columns = lanes[0].axis, lanes[1].axis
    sizes = {(mode.axis, mode.stride): mode.size for mode in modes}
    warps = {axis: next((mode.size for mode in layout.warp if mode.axis == axis), 1) for axis in (rows, columns)}
    tiles = sizes.get((rows, 16), 1), sizes.get((columns, 8), 1)
    made = accumulator(rows, columns, *tiles, (warps[rows], warps[columns]))
    return (rows, columns) if layout == made or _is_across(layout, rows, columns, *tiles) else None


def _is_across(layout: LayoutAttr, rows: str, columns: str, row_tiles: int, column_tiles: int) -> bool:
    """Whether fragments are an accumulator of the warps along the rows, and others across these share its columns or
    have the same."""
    inner, across = layout.along(rows)
    made = accumulator(rows, columns, row_tiles, column_tiles, (inner.warps, 1))
    return inner == made and is_across(across, columns, inner.extent(columns))


def is_across(mode: Mode, columns: str, extent: int) -> bool:
    """Whether a digit of warps moves nothing, or moves the columns by as many as one of these warps has."""
    return (mode.axis, mode.stride) in (("", 0), (columns, extent))


def left_operand_axes(layout: LayoutAttr, pack: int) -> tuple[str, str] | None:
    """Rows and depth of fragments that are a left operand, `pack` elements of it in a register (`row_operand`); None if
    they are not."""
    modes = tuple(layout.register)
    if len(modes) < 3:
        return None
    rows, depth = modes[-2].axis, modes[-1].axis
    tail = (Mode(depth, 2, 4 * pack), Mode(rows, 2, 8), Mode(depth, pack, 1))
    lanes = (Mode(rows, 8, 1), Mode(depth, 4, pack))
    return (rows, depth) if modes[-3:] == tail and tuple(layout.lane) == lanes else None


def is_interleaved(layout: LayoutAttr) -> bool:
    """Whether an accumulator is that of a product whose columns are read in another order."""
    return any(mode.size == 4 and mode.stride == 4 for mode in layout.lane)


def column_order(layout: LayoutAttr, columns: str) -> tuple[Mode, ...]:
    """Which column of the result each column of the products that make it is, as digits, the slowest first, joined
    where one continues the next: `[x:128:1]` where all are in order, `[x:2:2, x:32:4, x:2:1]` of an interleaved one."""
    *coarse, fine = (mode for mode in layout.register if mode.axis == columns)
    joined: list[Mode] = []
    for mode in (*coarse, *(mode for mode in layout.lane if mode.axis == columns), fine):
        last = joined[-1] if joined else None
        if last is not None and last.stride == mode.size * mode.stride:
            joined[-1] = Mode(columns, last.size * mode.size, mode.stride)
        else:
            joined.append(mode)
    return tuple(joined)


def row_operand(
    rows: str, depth: str, row_tiles: int, depth_tiles: int, warps: Iterable[Mode], pack: int = 2
) -> LayoutAttr:
    """Fragments of the left operand of `mma.m16n8k16` with 16-bit elements (PTX ISA 9.7.14.5.8), two in a register, or
    with `pack = 4` of `m16n8k32` with 8-bit elements (PTX ISA 9.7.14.5.10). As a map from registers to elements it
    equals the accumulator of a product whose columns are `depth`, for 8-bit elements the interleaved one."""
    return LayoutAttr(
        register=(
            Mode(rows, row_tiles, 16),
            Mode(depth, depth_tiles, 8 * pack),
            Mode(depth, 2, 4 * pack),
            Mode(rows, 2, 8),
            Mode(depth, pack, 1),
        ),
        lane=(Mode(rows, 8, 1), Mode(depth, 4, pack)),
        warp=warps,
    )

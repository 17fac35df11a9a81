"""Named axes: the encoding that every array of a diagram carries, from the algorithm to the CUDA C."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    ArrayAttr,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.formats import NUMBER_FORMATS, Format

DYNAMIC = DYNAMIC_INDEX
"""The size of an axis that is known only at launch (`?` in a type)."""

LARGEST_SIZE = 2**31 - 1
"""Of an axis: sizes are 32-bit numbers in kernels (offsets, which are products of them, have 64 bits)."""

Number: TypeAlias = FloatAttr[AnyFloat] | IntegerAttr
"""A constant with its format."""

FORMATS: tuple[Format, ...] = tuple(each.type for each in NUMBER_FORMATS.values())
FORMAT_NAMES = ", ".join(str(format) for format in FORMATS)

LEVELS = ("device", "shared", "register")
"""Memory levels, far to near."""

_AXIS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}\Z")


def check_size(axis: str, size: int) -> None:
    """Refuse a size that a kernel could not hold (VerifyException)."""
    if size > LARGEST_SIZE:
        raise VerifyException(f"axis '{axis}' has size {size}: an axis has at most {LARGEST_SIZE} elements")


def check_axis_name(name: str) -> None:
    """Refuse a name that could not stand, as it is, in a picture or in C (VerifyException)."""
    if not _AXIS_NAME.match(name):
        raise VerifyException(f"axis name {name!r} is not an identifier: use a letter, then letters, digits or '_'")


@irdl_attr_definition
class ArrayEncoding(ParametrizedAttribute):
    """`#diagram.array<[q, d], level = shared, layout = ...>`: the axes of an array, by name and in
    order of memory (the last is contiguous), the memory level it lives at, and how its elements are
    spread over threads or banks there. Level and layout are absent until a pass decides them."""

    name = "diagram.array"

    axes: ArrayAttr[StringAttr] = param_def()
    level: StringAttr | NoneAttr = param_def()
    layout: Attribute = param_def()

    def __init__(
        self,
        axes: Iterable[str] | ArrayAttr[StringAttr],
        level: str | StringAttr | NoneAttr | None = None,
        layout: Attribute | None = None,
    ):
        if not isinstance(axes, ArrayAttr):
            axes = ArrayAttr(StringAttr(axis) for axis in axes)
        if level is None:
            level = NoneAttr()
        elif isinstance(level, str):
            level = StringAttr(level)
        super().__init__(axes, level, NoneAttr() if layout is None else layout)

    @property
    def axis_names(self) -> tuple[str, ...]:
        return tuple([axis.data for axis in self.axes.data])  # asked for thousands of times: no generator

    @property
    def level_name(self) -> str | None:
        return self.level.data if isinstance(self.level, StringAttr) else None

    def verify(self) -> None:
        names = self.axis_names
        for name in names:
            check_axis_name(name)
            if names.count(name) > 1:
                raise VerifyException(
                    f"axis '{name}' appears {names.count(name)} times in one array: "
                    "each axis of an array needs a name of its own"
                )
        if self.level_name is not None and self.level_name not in LEVELS:
            raise VerifyException(f"unknown memory level '{self.level_name}' (levels are {', '.join(LEVELS)})")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        level: StringAttr | NoneAttr = NoneAttr()
        layout: Attribute = NoneAttr()
        with parser.in_angle_brackets():
            axes = parse_axis_list(parser)
            while parser.parse_optional_punctuation(",") is not None:
                key = parser.parse_keyword_in(("level", "layout"), " in diagram.array")
                parser.parse_punctuation("=")
                if key == "level":
                    level = StringAttr(parser.parse_identifier(" for the level"))
                else:
                    layout = parser.parse_attribute()
        return (ArrayAttr(StringAttr(axis) for axis in axes), level, layout)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            print_axis_list(printer, self.axis_names)
            if self.level_name is not None:
                printer.print_string(f", level = {self.level_name}")
            if not isinstance(self.layout, NoneAttr):
                printer.print_string(", layout = ")
                printer.print_attribute(self.layout)


@irdl_attr_definition
class SizesAttr(ParametrizedAttribute):
    """`#diagram.sizes<q = 200, x = 333>`: sizes of axes, by name. On a function: the defaults of the
    axes that its types leave symbolic."""

    name = "diagram.sizes"

    axes: ArrayAttr[StringAttr] = param_def()
    sizes: ArrayAttr[IntAttr] = param_def()

    def __init__(self, sizes: Mapping[str, int]):
        super().__init__(
            ArrayAttr(StringAttr(axis) for axis in sizes),
            ArrayAttr(IntAttr(size) for size in sizes.values()),
        )

    def as_dict(self) -> dict[str, int]:
        return {axis.data: size.data for axis, size in zip(self.axes, self.sizes, strict=True)}

    def verify(self) -> None:
        names = [axis.data for axis in self.axes]
        for name, size in zip(names, self.sizes, strict=True):
            check_axis_name(name)
            if names.count(name) > 1:
                raise VerifyException(f"axis '{name}' is given a size twice")
            if size.data < 0:
                raise VerifyException(f"axis '{name}' has the negative size {size.data}")
            check_size(name, size.data)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        def entry() -> tuple[str, int]:
            axis = parser.parse_identifier(" for an axis")
            parser.parse_punctuation("=")
            return axis, parser.parse_integer(allow_boolean=False)

        entries = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, entry)
        return (
            ArrayAttr(StringAttr(axis) for axis, _ in entries),
            ArrayAttr(IntAttr(size) for _, size in entries),
        )

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_list(self.as_dict().items(), lambda item: printer.print_string(f"{item[0]} = {item[1]}"))


def parse_axis_list(parser: AttrParser) -> list[str]:
    """`[q, d]`"""
    return parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parser.parse_identifier(" for an axis"))


def print_axis_list(printer: Printer, axes: Iterable[str]) -> None:
    printer.print_string(f"[{', '.join(axes)}]")


NO_AXES = ArrayEncoding(())
"""The encoding of a scalar."""


# -- reading and making array types ---------------------------------------------------------------

ArrayType: TypeAlias = TensorType[Attribute]
BufferType: TypeAlias = MemRefType[Attribute]


_ARRAYS = (TensorType, MemRefType)
"""By the class itself, of which there are no others: to ask whether a scalar is an instance takes Python's way through
abstract classes, and types are asked hundreds of thousands of times."""


def is_array(type: Attribute) -> bool:
    """Whether `type` is a tensor or memref with named axes."""
    return _encoding(type) is not None


def encoding_of(type: Attribute) -> ArrayEncoding:
    """The encoding of an array; a scalar is the array without axes."""
    return _encoding(type) or NO_AXES


def _encoding(type: Attribute) -> ArrayEncoding | None:
    kind = type.__class__
    array: Any = type  # what comparing classes tells, the type checker does not follow
    encoding = array.encoding if kind is TensorType else array.memory_space if kind is MemRefType else None
    return encoding if encoding.__class__ is ArrayEncoding else None


def axes_of(type: Attribute) -> tuple[str, ...]:
    """Axis names of an array, in order of memory; `()` for a scalar."""
    return encoding_of(type).axis_names


def level_of(type: Attribute) -> str | None:
    return encoding_of(type).level_name


def shape_of(type: Attribute) -> tuple[int, ...]:
    if type.__class__ in _ARRAYS:
        return cast("ArrayType | BufferType", type).get_shape()
    return ()


def sizes_of(type: Attribute) -> dict[str, int]:
    """Size of each axis (`DYNAMIC` where symbolic), in order of memory; a plain tensor has no axes."""
    return dict(zip(axes_of(type), shape_of(type), strict=True)) if is_array(type) else {}


def format_of(type: Attribute) -> Format:
    """The number format of an array or scalar."""
    if type.__class__ in _ARRAYS:
        return cast(Format, cast("ArrayType | BufferType", type).element_type)
    return cast(Format, type)


def array_type(
    format: Attribute,
    sizes: Mapping[str, int],
    level: str | None = None,
    layout: Attribute | None = None,
) -> ArrayType:
    """`tensor<sizes x format, #diagram.array<[axes], ...>>`; axes in order of memory."""
    if layout is None:
        return _array_type(format, tuple(sizes.items()), level)
    return TensorType(format, tuple(sizes.values()), ArrayEncoding(sizes, level, layout))


@lru_cache(maxsize=4096)
def _array_type(format: Attribute, sizes: tuple[tuple[str, int], ...], level: str | None) -> ArrayType:
    """Types do not change, so that equal ones may be one: to make and verify one takes as long as hundred look-ups."""
    return TensorType(format, tuple(size for _, size in sizes), ArrayEncoding((axis for axis, _ in sizes), level))


def with_format(type: Attribute, format: Attribute) -> ArrayType:
    return TensorType(format, shape_of(type), encoding_of(type))


def with_level(type: Attribute, level: str | None) -> ArrayType:
    """The same array at another level; its layout, which belonged to the old one, is dropped."""
    return array_type(format_of(type), sizes_of(type), level)


def check_array(type: Attribute, what: str) -> None:
    """Refuse an array whose axes and dimensions disagree or whose format is unsupported
    (VerifyException)."""
    if not is_array(type):
        if type in FORMATS:
            return
        raise VerifyException(
            f"{what} has type {type}: expected an array with named axes, as in "
            f"tensor<?x64xf16, #diagram.array<[q, d]>>, or a scalar of {FORMAT_NAMES}"
        )
    axes, shape = axes_of(type), shape_of(type)
    if len(axes) != len(shape):
        raise VerifyException(f"{what} names {len(axes)} axes [{', '.join(axes)}] but has {len(shape)} dimensions")
    for axis, size in zip(axes, shape, strict=True):
        check_size(axis, size)
    if format_of(type) not in FORMATS:
        raise VerifyException(f"{what} has the unsupported number format {format_of(type)} (supported: {FORMAT_NAMES})")


def merge_sizes(types: Iterable[tuple[str, Attribute]]) -> dict[str, int]:
    """The size of every axis that the named arrays use (VerifyException where two disagree).

    A static size and a symbolic one are different: an axis is one or the other in one program."""
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for what, type in types:
        for axis, size in sizes_of(type).items():
            if axis in sizes and sizes[axis] != size:
                raise VerifyException(
                    f"axis '{axis}' has size {size_text(sizes[axis])} in {owner[axis]} but {size_text(size)} in {what}"
                )
            sizes[axis] = size
            owner.setdefault(axis, what)
    return sizes


def size_text(size: int) -> str:
    return "?" if size == DYNAMIC else str(size)

"""A program under construction: operations of the `diagram` dialect, one after another.

Both who traces a Python function and who takes a graph of PyTorch's builds with it. Arithmetic is done in f32 (or i32,
between integers); what arrives narrower is widened first, so that a person need not say it."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, FunctionType, IntegerAttr, ModuleOp, f16, f32, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram import (
    ApplyOp,
    CastOp,
    ContractOp,
    ExtentOp,
    FillOp,
    IndexOp,
    MapOp,
    ReadOp,
    RecurrenceOp,
    ReduceOp,
    RenameOp,
    ScanOp,
    ScatterOp,
    WhereOp,
    YieldOp,
)
from treadle.dialects.diagram.array import DYNAMIC, SizesAttr, array_type, axes_of, check_axis_name, format_of
from treadle.dialects.diagram.formats import BYTES, EIGHT_BIT, INTEGERS, NUMBER_FORMATS, number_format
from treadle.dialects.diagram.place import PlaceAttr, is_scattered
from treadle.dialects.diagram.read import in_no_memory
from treadle.dialects.diagram.recurrence import at_position
from treadle.language.names import name_values
from treadle.language.places import not_given

FORMATS: dict[str, Attribute] = {name: each.type for name, each in NUMBER_FORMATS.items()}

Scalars: TypeAlias = Sequence[SSAValue]


def check_format(format: str) -> None:
    """TreadleError for what is no number format, with the one that NumPy calls so."""
    if format not in FORMATS:
        near = next((name for name, each in NUMBER_FORMATS.items() if each.dtype == format), "")
        meant = f": did you mean '{near}'?" if near else ""
        raise TreadleError(f"unknown number format '{format}' (formats are {', '.join(FORMATS)}){meant}")


class Graph:
    """The body of one function over arrays, and the size of each of its axes (DYNAMIC where it is symbolic). `is_step`:
    it is that of one position of a recurrence, where products are of f32 (i32 between integers) whatever arrives, as no
    tensor cores make them, and arrays are in no memory."""

    def __init__(self, sizes: Mapping[str, int], is_step: bool = False):
        self.block = Block()
        self.is_step = is_step
        self.sizes = dict(sizes)
        self.before_each: Callable[[], None] | None = None
        """Called before an operation is written down."""

    # -- operations ------------------------------------------------------------------------------

    def argument(self, name: str, axes: Sequence[str], format: str) -> SSAValue:
        value = self.block.insert_arg(self._type(axes, FORMATS[format]), len(self.block.args))
        value.name_hint = name if name.isascii() else None  # IR knows no other letters
        return value

    def number(self, name: str, format: Attribute) -> SSAValue:
        """An argument that is a number."""
        value = self.block.insert_arg(format, len(self.block.args))
        value.name_hint = name
        return value

    def map(self, inputs: Scalars, function: Callable[[Scalars], SSAValue], format: Attribute) -> SSAValue:
        """`function` of the elements, over every axis that an input has."""
        region = Region(Block(arg_types=[format_of(value.type) for value in inputs]))
        with ImplicitBuilder(region) as arguments:
            YieldOp(function(arguments))
        return self._add(MapOp(list(inputs), self._type(union(inputs), format), region))

    def contract(
        self,
        left: SSAValue,
        right: SSAValue,
        over: Sequence[str],
        multiply: str | None = None,
        axes: Sequence[str] | None = None,
    ) -> SSAValue:
        """The sum of products over these axes, in f32 (i32 between integers). Where one operand has 16 bits and
        the other more, that is rounded to it: that is what tensor cores multiply. 8-bit numbers widen beside such,
        exactly. Two of f32 multiply as `multiply` says, if it says something. `axes` is the order of those of the
        result, which is that of the operands, the left one first, if nothing is said."""
        if self.is_step:
            common = computing_format([left, right])
            left, right = self.cast(left, common), self.cast(right, common)
        formats = [format_of(left.type), format_of(right.type)]
        named = {*map(str, formats)}
        if len(named) > 1 and not any(named <= {*each} for each in (BYTES, EIGHT_BIT)):
            common = _multiplied(formats)
            left, right = self.cast(left, common), self.cast(right, common)
        accumulate = i32 if is_integer(format_of(left.type)) else f32
        axes = axes or _product_axes(left, right, over)
        multiply = multiply if format_of(left.type) == f32 else None
        return self._add(ContractOp(left, right, over, self._type(axes, accumulate), accumulate, multiply=multiply))

    def reduce(self, kind: str, value: SSAValue, over: Sequence[str]) -> SSAValue:
        value = self.computed(value)
        axes = [axis for axis in axes_of(value.type) if axis not in over]
        return self._add(ReduceOp(kind, value, over, self._type(axes, format_of(value.type))))

    def scan(self, value: SSAValue, axis: str, exclusive: bool = False, reverse: bool = False) -> SSAValue:
        """The sums of all elements up to each along an axis, or from each on, itself included or not."""
        value = self.computed(value)
        type = self._type(axes_of(value.type), format_of(value.type))
        return self._add(ScanOp("add", value, axis, type, exclusive=exclusive, reverse=reverse))

    def apply(self, law: str, values: Sequence[SSAValue], over: Sequence[str], axes: Sequence[str]) -> SSAValue:
        return self._add(ApplyOp(law, [self.computed(each) for each in values], over, [self._type(axes, f32)]))

    def fill(self, number: float | int, axes: Sequence[str]) -> SSAValue:
        """One number everywhere: a fraction in f32, an integer in i32."""
        if isinstance(number, int):
            return self._add(FillOp(_integer(number), self._type(axes, i32)))
        return self._add(FillOp(FloatAttr(number, f32), self._type(axes, f32)))

    def index(self, axis: str) -> SSAValue:
        """Positions along an axis."""
        return self._add(IndexOp(self._type([axis], i32)))

    def keep(self, value: SSAValue, condition: str, inputs: Mapping[str, SSAValue]) -> SSAValue:
        """The elements at which a condition on positions holds; the others are absent (TreadleError)."""
        from xdsl.utils.exceptions import VerifyException

        try:
            op = WhereOp(self.computed(value), condition, {name: self._asked(each) for name, each in inputs.items()})
            op.verify()
        except VerifyException as error:
            said = _as_in_python(str(error))
            named = said.startswith(f"condition '{condition}'")
            raise TreadleError(said if named else f"condition '{condition}': {said}") from error
        return self._add(op)

    def _asked(self, value: SSAValue) -> SSAValue:
        return self.cast(value, i32) if str(format_of(value.type)) in BYTES else value

    def _entries(self, value: SSAValue) -> SSAValue:
        value = self._asked(value)
        return self._saved(value) if isinstance(value.owner, ReadOp) and value.owner.is_padded else value

    def read(
        self,
        value: SSAValue,
        places: Sequence[str],
        axes: Sequence[str],
        padded: bool,
        inputs: Mapping[str, SSAValue] | None = None,
    ) -> SSAValue:
        """The value at other positions, one for each of its axes, with `inputs` for the arrays whose entries these
        are made of; outside of it are zeros, if it is `padded`. What another read gives is saved before, where the two
        cannot be one. An axis that no argument has is as long as there is to read, which is known here where the sizes
        of what is read are (TreadleError)."""
        from xdsl.utils.exceptions import VerifyException

        if self.is_step:
            return self._renamed(value, places, axes)
        named = {name: self._entries(each) for name, each in (inputs or {}).items()}
        text = ", ".join(places)
        told = [axis for axis in axes if check_axis(axis) not in self.sizes]
        self.sizes |= dict.fromkeys(told, DYNAMIC)

        def reading() -> ReadOp:
            return ReadOp(value, text, self._type(axes, format_of(value.type)), padded, named)

        try:
            if in_no_memory(value, padded, is_scattered(PlaceAttr(text).forms)) is not None:
                value = self._saved(value)
            op = reading()
            op.verify()
            if sizes := {axis: size for axis, size in op.fitting({}).items() if axis in told}:
                self.sizes |= sizes
                op = reading()
                op.verify()
        except VerifyException as error:
            raise TreadleError(_as_in_python(str(error))) from error
        return self._add(op)

    def _renamed(self, value: SSAValue, places: Sequence[str], axes: Sequence[str]) -> SSAValue:
        """The value under other names of its axes: what a step reads is in no memory (TreadleError)."""
        from xdsl.utils.exceptions import VerifyException

        text, own = ", ".join(places), axes_of(value.type)
        if [each.strip() for each in text.split(",")] != list(axes) or len(axes) != len(own):
            raise TreadleError(
                f"a step reads an array of [{', '.join(own)}] under other names of its axes alone, one for each, not "
                f"at '{text}': read what is fed before the recurrence"
            )
        if unknown := [axis for axis in axes if axis not in self.sizes]:
            raise TreadleError(f"a step reads an array along '{unknown[0]}', which no argument has")
        names = {old: new for old, new in zip(own, axes, strict=True) if old != new}
        if not names:
            return value
        try:
            op = RenameOp(value, names, self._type(axes, format_of(value.type)))
            op.verify()
        except VerifyException as error:
            raise TreadleError(_as_in_python(str(error))) from error
        return self._add(op)

    def scatter(self, value: SSAValue, place: str, axes: Sequence[str], inputs: Mapping[str, SSAValue]) -> SSAValue:
        """The value added up at positions, one for each of these axes, which there are (TreadleError)."""
        from xdsl.utils.exceptions import VerifyException

        value, named = self.computed(value), {name: self._entries(each) for name, each in inputs.items()}
        try:
            op = ScatterOp(value, place, self._type(axes, format_of(value.type)), named)
            op.verify()
        except VerifyException as error:
            raise TreadleError(_as_in_python(str(error))) from error
        return self._add(op)

    def recurrence(
        self,
        axis: str,
        states: Sequence[SSAValue],
        inputs: Sequence[SSAValue],
        step: Callable[[Graph, Sequence[SSAValue], Sequence[SSAValue]], Sequence[SSAValue]],
        reverse: bool = False,
    ) -> tuple[SSAValue, ...]:
        """The states after the last position of an axis, or with `reverse` the first, and what `step` makes of each,
        which writes that down in the graph of its own that it is given, of the values of a position (TreadleError)."""
        from xdsl.utils.exceptions import VerifyException

        inner = Graph({name: size for name, size in self.sizes.items() if name != axis}, is_step=True)
        values = [inner.block.insert_arg(at_position(v.type, axis), i) for i, v in enumerate((*states, *inputs))]
        for value, argument in zip((*states, *inputs), values, strict=True):
            argument.name_hint = value.name_hint
        made = step(inner, values[: len(states)], values[len(states) :])
        inner.block.add_op(YieldOp(*made))
        inner.erase_unused()
        name_values(inner.block, ())
        order = next(axes_of(value.type) for value in inputs if axis in axes_of(value.type))
        types = [value.type for value in states]
        for value in made[len(states) :]:
            before = [name for name in axes_of(value.type) if name in order[: order.index(axis)]]
            after = [name for name in axes_of(value.type) if name not in before]
            types.append(self._type([*before, axis, *after], format_of(value.type)))
        try:
            op = RecurrenceOp(axis, list(states), list(inputs), types, Region(inner.block), reverse)
            op.verify()
        except VerifyException as error:
            raise TreadleError(_as_in_python(str(error))) from error
        self._add(op)
        return tuple(op.results)

    def _saved(self, value: SSAValue) -> SSAValue:
        """What a read gives, for another one to read: in memory, where each of its elements has one place."""
        return self.map([value], lambda scalars: scalars[0], format_of(value.type))

    def fresh_axis(self, axis: str) -> str:
        """Another axis of the size of one."""
        name = f"{axis}_until"
        while name in self.sizes:
            name += "_"
        self.sizes[name] = self.sizes[axis]
        return name

    def extent(self, axis: str) -> SSAValue:
        """How many elements an axis has, a number in i32."""
        return self._add(ExtentOp(axis))

    def cast(self, value: SSAValue, format: Attribute, axes: Sequence[str] | None = None) -> SSAValue:
        """The value in that format, and with its axes in that order of memory."""
        axes = axes_of(value.type) if axes is None else axes
        if format_of(value.type) == format and tuple(axes) == axes_of(value.type):
            return value
        if is_integer(format) and not is_integer(format_of(value.type)):
            value = self.map([value], lambda scalars: arith.FPToSIOp(scalars[0], i32).result, i32)
            return self.cast(value, format, axes)
        if str(format_of(value.type)) in BYTES and str(format) in EIGHT_BIT:
            return self.cast(self.cast(value, f16), format, axes)
        return self._add(CastOp(value, self._type(axes, format)))

    # -- formats ---------------------------------------------------------------------------------

    def wide(self, value: SSAValue, format: Attribute) -> SSAValue:
        """The value in f32 or i32, whichever is asked for."""
        return self.cast(value, format)

    def computed(self, value: SSAValue) -> SSAValue:
        """The value in the format that its like are computed in."""
        return self.wide(value, computing_format([value]))

    # -- the whole -------------------------------------------------------------------------------

    def module(self, name: str, results: Sequence[SSAValue], defaults: Mapping[str, int]) -> ModuleOp:
        """The program; `defaults` are sizes to optimise for."""
        self.block.add_op(ReturnOp(*results))
        self.erase_unused()
        name_values(self.block, results)
        inputs = [argument.type for argument in self.block.args]
        function = FuncOp(name, FunctionType.from_lists(inputs, [value.type for value in results]), Region(self.block))
        symbolic = {axis: size for axis, size in defaults.items() if self.sizes.get(axis) == DYNAMIC}
        if symbolic:
            function.attributes["sizes"] = SizesAttr(symbolic)
        return ModuleOp([function])

    def erase_unused(self) -> None:
        """Erase what nothing is made of."""
        for op in reversed(list(self.block.ops)):
            if op.results and not any(result.uses for result in op.results):
                op.detach()
                op.erase()

    def _type(self, axes: Sequence[str], format: Attribute) -> Attribute:
        return array_type(format, {axis: self.sizes[axis] for axis in axes})

    def _add(self, op: Operation) -> SSAValue:
        if self.before_each is not None:
            self.before_each()
        self.block.add_op(op)
        return op.results[0]


def union(values: Sequence[SSAValue]) -> tuple[str, ...]:
    """Every axis that one of them has; those of the array with the most axes first, in its order."""
    ordered = sorted(values, key=lambda value: -len(axes_of(value.type)))
    return tuple(dict.fromkeys(axis for value in ordered for axis in axes_of(value.type)))


def _product_axes(left: SSAValue, right: SSAValue, over: Sequence[str]) -> Sequence[str]:
    """The axes of a product: those of the left operand, then those of the right one. Where the right one has them all,
    as an array that the left one weighs, its order stays."""
    first, second = ([axis for axis in axes_of(each.type) if axis not in over] for each in (left, right))
    return second if set(first) <= set(second) else list(dict.fromkeys([*first, *second]))


def computing_format(values: Sequence[SSAValue]) -> Attribute:
    return i32 if values and all(is_integer(format_of(value.type)) for value in values) else f32


def is_integer(format: Attribute) -> bool:
    return str(format) in INTEGERS


def _multiplied(formats: Sequence[Attribute]) -> Attribute:
    """The format in which two that differ are multiplied."""
    if all(map(is_integer, formats)):
        return i32
    of_bytes = not {*map(str, formats)}.isdisjoint(BYTES)
    if i32 in formats or (f32 in formats and of_bytes):  # f16 need not reach as far as what is beside integers
        return f32
    return next((each for each in formats if each != f32 and number_format(each).bytes > 1), f16)


def constant(number: float, format: Attribute) -> SSAValue:
    """A scalar constant, in the body of a map (TreadleError for a fraction among integers, and one beyond 32 bits)."""
    if format != i32:
        return arith.ConstantOp(FloatAttr(_fitting(number), f32)).result
    if number != int(number):
        raise TreadleError(f"{number} cannot be combined with integers: convert the array to f32 first")
    return arith.ConstantOp(_integer(int(number))).result


def _fitting(number: float) -> float:
    """(TreadleError for a finite one beyond f32)"""
    try:
        struct.pack("<f", float(number))
    except OverflowError:
        raise TreadleError(f"{number} does not fit in f32, in which a program computes") from None
    return float(number)


def _integer(number: int) -> IntegerAttr:
    """(TreadleError for one beyond 32 bits)"""
    if not -(2**31) <= number < 2**31:
        raise TreadleError(f"{number} does not fit in 32 bits, which the integers of a program have")
    return IntegerAttr(number, i32)


def check_axis(name: str) -> str:
    """The name, if an axis may have it (TreadleError)."""
    from xdsl.utils.exceptions import VerifyException

    try:
        check_axis_name(name)
    except VerifyException as error:
        raise TreadleError(str(error)) from error
    return name


def plain(value: Any) -> Any:
    """A number of numpy as Python's own; all else as it is."""
    return cast(Any, value).item() if isinstance(value, np.generic) else value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_in_python(said: str) -> str:
    """What a verifier says of the text of a program, said of a call of `keep`."""
    if said.endswith("compute it in an array of integers, and name that"):
        return f"{said}, as in end = (index('q', S) // 16 + 1) * 16; keep(S, 'x < end[q]', end=end)"
    if (unknown := re.match(r"'(\w+)\[.*\]' reads no input", said)) is None:
        return said
    return not_given(unknown[1])

"""`diagram.collapse` and `diagram.expand`: axes that lie one within the other as one axis, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import ClassVar, Self

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    DYNAMIC,
    check_array,
    format_of,
    parse_axis_list,
    print_axis_list,
    sizes_of,
)
from treadle.dialects.diagram.operation import DiagramOperation, quote
from treadle.dialects.syntax import parse_attributes, parse_conversion_types, print_types


class Regrouping(DiagramOperation):
    """What both share: one axis, those that it stands for, and the array with either."""

    operand = operand_def()
    axes = prop_def(ArrayAttr[StringAttr])
    axis = prop_def(StringAttr)
    result = result_def()

    traits = traits_def(Pure())

    COLLAPSES: ClassVar[bool]
    """Whether the one axis is made of the others; if not, they of it."""

    def __init__(self, operand: SSAValue | Operation, parts: Iterable[str], whole: str, result_type: Attribute):
        super().__init__(
            operands=[operand],
            properties={"axes": ArrayAttr(StringAttr(each) for each in parts), "axis": StringAttr(whole)},
            result_types=[result_type],
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """The axes that the one stands for, the outermost first."""
        return tuple(each.data for each in self.axes)

    @property
    def whole(self) -> str:
        """The one axis."""
        return self.axis.data

    @property
    def apart(self) -> SSAValue:
        """The array that has the parts."""
        return self.operand if self.COLLAPSES else self.result

    @property
    def together(self) -> SSAValue:
        """The array that has the one axis."""
        return self.result if self.COLLAPSES else self.operand

    @property
    def unknown(self) -> tuple[str, ...]:
        """Its parts whose sizes the types leave open."""
        sizes = sizes_of(self.apart.type)
        return tuple(axis for axis in self.parts if sizes[axis] == DYNAMIC)

    def fitting(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """What some sizes say of others here: of the one axis, by its parts; of the only part that has none, by the
        one axis."""
        apart, together = sizes_of(self.apart.type), sizes_of(self.together.type)
        static = {axis: size for axis, size in (*apart.items(), *together.items()) if size != DYNAMIC}
        known = {**sizes, **static}
        lacking = [axis for axis in self.parts if axis not in known]
        if not lacking:
            return {self.whole: prod(known[axis] for axis in self.parts)}
        if len(lacking) > 1 or self.whole not in known:
            return {}
        return {lacking[0]: known[self.whole] // max(1, prod(known[axis] for axis in self.parts if axis in known))}

    @property
    def dimensions(self) -> list[list[int]]:
        """For each axis of the array that has the one, as which dimensions it lies in the other."""
        names = list(sizes_of(self.apart.type))
        first, after = names.index(self.parts[0]), names.index(self.parts[-1]) + 1
        whole = list(range(first, after))
        return [*([i] for i in range(first)), whole, *([i] for i in range(after, len(names)))]

    def verify_(self) -> None:
        for what, value in (("operand 0", self.operands[0]), ("result 0", self.results[0])):
            check_array(value.type, what)
        parts, apart, together = self.parts, sizes_of(self.apart.type), sizes_of(self.together.type)
        if len(parts) < 2:
            raise VerifyException(f"one axis stands for two others at least, here for {quote(parts) or 'none'}")
        if missing := [axis for axis in parts if axis not in apart]:
            raise VerifyException(f"axis '{missing[0]}' is not in the array, which has {quote(apart)}")
        names = list(apart)
        first = names.index(parts[0])
        if tuple(names[first : first + len(parts)]) != parts:
            raise VerifyException(
                f"axes {quote(parts)} do not lie one within the other, in that order, in an array of {quote(names)}: "
                "they are no one axis of it"
            )
        if self.whole in names:
            raise VerifyException(f"the array has an axis '{self.whole}' already")
        wanted = [*names[:first], self.whole, *names[first + len(parts) :]]
        if list(together) != wanted:
            raise VerifyException(f"the other array has {quote(together)}, it must have {quote(wanted)}")
        if format_of(self.apart.type) != format_of(self.together.type):
            raise VerifyException(f"its format stays: {format_of(self.operands[0].type)}")
        sizes = {axis: size for axis, size in apart.items() if axis not in parts}
        if changed := [axis for axis, size in sizes.items() if together[axis] != size]:
            raise VerifyException(f"axis '{changed[0]}' changes its size")
        lengths = [apart[axis] for axis in parts]
        length = DYNAMIC if DYNAMIC in lengths else prod(lengths)
        if together[self.whole] != length:
            said = ["?" if size == DYNAMIC else str(size) for size in (length, together[self.whole])]
            raise VerifyException(f"axis '{self.whole}' has {said[0]} elements by its parts, and {said[1]} in its type")


@irdl_op_definition
class CollapseOp(Regrouping):
    """Axes that lie one within the other in memory, as one axis: row-major `(x, y)` is `z = x * Y + y`, so the array is
    the same numbers in the same order, and what treats both axes alike treats `z` so. It stands outside of kernels, as
    a read does, and is a view: where the strides of an argument leave gaps between the axes, the host copies it first.

    ```
    %flat = diagram.collapse %K [x, y] as x_y : !K -> !flat
    ```
    """

    name = "diagram.collapse"
    COLLAPSES: ClassVar[bool] = True

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand = parser.parse_unresolved_operand()
        axes = parse_axis_list(parser)
        parser.parse_keyword("as")
        axis = parser.parse_identifier(" for an axis")
        attributes = parse_attributes(parser)
        source, target = parse_conversion_types(parser)
        op = cls(parser.resolve_operand(operand, source), axes, axis, target)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.operand)
        printer.print_string(" ")
        print_axis_list(printer, self.parts)
        printer.print_string(f" as {self.whole}")
        print_types(printer, self, (self.operand.type,), self.result.type)


@irdl_op_definition
class ExpandOp(Regrouping):
    """One axis as those that it stands for, the inverse of `diagram.collapse`: `z` is `(z // Y, z % Y)`. A symbolic
    size of one of them that no array of the program tells is what the others leave.

    ```
    %O = diagram.expand %flat x_y as [x, y] : !flat -> !O
    ```
    """

    name = "diagram.expand"
    COLLAPSES: ClassVar[bool] = False

    def __init__(self, operand: SSAValue | Operation, axis: str, axes: Iterable[str], result_type: Attribute):
        super().__init__(operand, axes, axis, result_type)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand = parser.parse_unresolved_operand()
        axis = parser.parse_identifier(" for an axis")
        parser.parse_keyword("as")
        axes = parse_axis_list(parser)
        attributes = parse_attributes(parser)
        source, target = parse_conversion_types(parser)
        op = cls(parser.resolve_operand(operand, source), axis, axes, target)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.operand)
        printer.print_string(f" {self.whole} as ")
        print_axis_list(printer, self.parts)
        print_types(printer, self, (self.operand.type,), self.result.type)

"""`diagram.rename`: the elements of an array under other names of its axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import format_of, size_text, sizes_of
from treadle.dialects.diagram.operation import DiagramOperation, quote
from treadle.dialects.syntax import parse_attributes, print_types


@irdl_op_definition
class RenameOp(DiagramOperation):
    """The elements of an array under other names of its axes, each with the size that it had: what lies along one axis
    meets what lies along another, as a state before a matrix does: `h[i]` beside `h[j]`. Names may change places, which
    transposes.

    ```
    %before = diagram.rename %h (j as i) : !hj -> !hi
    %turned = diagram.rename %S (d as e, e as d) : !S -> !S
    ```

    It stands in the body of a recurrence, and in the kernel which that is. Of arrays in memory `diagram.read` does the
    same by other strides, and moves nothing."""

    name = "diagram.rename"

    operand = operand_def()
    old = prop_def(ArrayAttr[StringAttr])
    new = prop_def(ArrayAttr[StringAttr])
    result = result_def()

    traits = traits_def(Pure())

    def __init__(self, operand: SSAValue | Operation, names: Mapping[str, str], result_type: Attribute):
        super().__init__(
            operands=[operand],
            properties={
                "old": ArrayAttr(StringAttr(name) for name in names),
                "new": ArrayAttr(StringAttr(name) for name in names.values()),
            },
            result_types=[result_type],
        )

    @property
    def names(self) -> dict[str, str]:
        """The new name of each axis that has one, by its old one."""
        return {old.data: new.data for old, new in zip(self.old, self.new, strict=True)}

    @property
    def meeting_axes(self) -> tuple[str, ...]:
        """The axes along which an element comes to be where another one was."""
        return tuple(dict.fromkeys(name for pair in self.names.items() for name in pair))

    def verify_(self) -> None:
        self.check_arrays()
        check_names([each.data for each in self.old], [each.data for each in self.new], self.operand.type)
        wanted = renamed(sizes_of(self.operand.type), self.names)
        if wanted.items() != sizes_of(self.result.type).items():
            raise VerifyException(
                f"{_sized(sizes_of(self.operand.type))} under other names is {_sized(wanted)}, not "
                f"{_sized(sizes_of(self.result.type))}"
            )
        if format_of(self.operand.type) != format_of(self.result.type):
            raise VerifyException(f"a rename keeps the format: {format_of(self.operand.type)}")
        around = self.parent_op()
        if around is not None and around.name != "diagram.recurrence" and around.dialect_name() != "hierarchy":
            raise VerifyException(
                "it stands in the body of a recurrence alone: elsewhere an array is read, as in "
                f'`diagram.read .. at "{", ".join(sizes_of(self.result.type))}"`'
            )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand, names, attributes, (type, result) = parse_rename(parser)
        op = cls(parser.resolve_operand(operand, type), {}, result)
        op.old, op.new = names
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        print_rename(printer, self, self.operand, (self.old, self.new))


Names = tuple[ArrayAttr[StringAttr], ArrayAttr[StringAttr]]


def parse_rename(
    parser: Parser,
) -> tuple[UnresolvedOperand, Names, dict[str, Attribute], tuple[Attribute, Attribute]]:
    """The operand, the old and the new names, attributes, and both types."""
    operand = parser.parse_unresolved_operand()

    def pair() -> tuple[str, str]:
        old = parser.parse_identifier(" for an axis")
        parser.parse_keyword("as")
        return old, parser.parse_identifier(" for its new name")

    pairs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, pair)
    names = ArrayAttr(StringAttr(old) for old, _ in pairs), ArrayAttr(StringAttr(new) for _, new in pairs)
    attributes = parse_attributes(parser)
    type = parser.parse_type()
    parser.parse_punctuation("->")
    return operand, names, attributes, (type, parser.parse_type())


def print_rename(printer: Printer, op: IRDLOperation, operand: SSAValue, names: Names) -> None:
    pairs = ", ".join(f"{old.data} as {new.data}" for old, new in zip(*names, strict=True))
    printer.print_string(" ")
    printer.print_operand(operand)
    printer.print_string(f" ({pairs})")
    print_types(printer, op, (operand.type,), op.results[0].type)


def renamed(sizes: Mapping[str, int], names: Mapping[str, str]) -> dict[str, int]:
    """Sizes of axes by their new names, in the same order."""
    return {names.get(axis, axis): size for axis, size in sizes.items()}


def _sized(sizes: Mapping[str, int]) -> str:
    return f"[{', '.join(f'{axis} = {size_text(size)}' for axis, size in sizes.items())}]"


def check_names(old: list[str], new: list[str], type: Attribute) -> None:
    """Raise unless axes of a type can have these new names (VerifyException)."""
    axes = [*sizes_of(type)]
    if not old:
        raise VerifyException("no axis has another name: use the array itself")
    for name, other in zip(old, new, strict=True):
        if name not in axes:
            raise VerifyException(f"axis '{name}' has another name, but the operand has no such axis ({quote(axes)})")
        if old.count(name) > 1 or new.count(other) > 1:
            raise VerifyException(f"'{name if old.count(name) > 1 else other}' is named twice")
        if name == other:
            raise VerifyException(f"axis '{name}' is renamed to what it is called")
        if other in axes and other not in old:
            raise VerifyException(f"axis '{name}' is to be called '{other}', as another axis of the operand is")


__all__ = ["RenameOp", "check_names", "parse_rename", "print_rename", "renamed"]

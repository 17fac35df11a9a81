"""Pieces of custom syntax that operations of several dialects share, read and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer


def parse_attributes(parser: Parser) -> dict[str, Attribute]:
    """`{...} :`, the attributes before an operation's types."""
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    return attributes


def print_types(printer: Printer, op: Operation, inputs: Sequence[Attribute], result: Attribute | None = None) -> None:
    """`{...} : !A, !B -> !C`, the end of an operation; without a result nothing after the inputs."""
    printer.print_op_attributes(op.attributes)
    printer.print_string(" : ")
    printer.print_list(inputs, printer.print_attribute)
    if result is not None:
        printer.print_string(" -> ")
        printer.print_attribute(result)


def parse_region_attributes(parser: Parser) -> Mapping[str, Attribute]:
    """`attributes {...}`, the attributes before an operation's region."""
    attributes = parser.parse_optional_attr_dict_with_keyword()
    return {} if attributes is None else attributes.data


def print_region_attributes(printer: Printer, op: Operation) -> None:
    """`attributes {...}` if there are any, and the space before the region."""
    if op.attributes:
        printer.print_op_attributes(op.attributes, print_keyword=True)
    printer.print_string(" ")


def parse_pair(parser: Parser) -> tuple[UnresolvedOperand, UnresolvedOperand]:
    """`%left, %right`"""
    left = parser.parse_unresolved_operand()
    parser.parse_punctuation(",")
    return left, parser.parse_unresolved_operand()


def parse_pair_types(parser: Parser) -> tuple[Attribute, Attribute, Attribute]:
    """`!left, !right -> !result`"""
    left = parser.parse_type()
    parser.parse_punctuation(",")
    return left, *parse_conversion_types(parser)


def parse_conversion_types(parser: Parser) -> tuple[Attribute, Attribute]:
    """`!source -> !result`"""
    source = parser.parse_type()
    parser.parse_punctuation("->")
    return source, parser.parse_type()


def parse_element(parser: Parser) -> tuple[UnresolvedOperand, UnresolvedOperand]:
    """`%values[%index]`"""
    values = parser.parse_unresolved_operand()
    parser.parse_punctuation("[")
    index = parser.parse_unresolved_operand()
    parser.parse_punctuation("]")
    return values, index


def print_element(printer: Printer, values: SSAValue, index: SSAValue) -> None:
    """`%values[%index]`"""
    printer.print_operand(values)
    printer.print_string("[")
    printer.print_operand(index)
    printer.print_string("]")


def print_binding(printer: Printer, inner: SSAValue, outer: SSAValue) -> None:
    """`%inner = %outer : !outer`, an argument of a region with the operand that it stands for."""
    printer.print_ssa_value(inner)
    printer.print_string(" = ")
    printer.print_operand(outer)
    printer.print_string(" : ")
    printer.print_attribute(outer.type)


def parse_binding(parser: Parser) -> tuple[Parser.UnresolvedArgument, SSAValue]:
    """What `print_binding` prints: the argument, whose type the operation knows, and the operand."""
    argument = parser.parse_argument(expect_type=False)
    parser.parse_punctuation("=")
    operand = parser.parse_unresolved_operand()
    parser.parse_punctuation(":")
    return argument, parser.resolve_operand(operand, parser.parse_type())


def parse_inputs(parser: Parser) -> dict[str, SSAValue]:
    """`with (n = %n : i32)`: values by the names that a condition gives them; none where it is not there."""
    inputs: dict[str, SSAValue] = {}

    def entry() -> None:
        name = parser.parse_identifier(" for an input")
        if name in inputs:
            parser.raise_error(f"input '{name}' is named twice")
        parser.parse_punctuation("=")
        value = parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        inputs[name] = parser.resolve_operand(value, parser.parse_type())

    if parser.parse_optional_keyword("with") is not None:
        parser.parse_comma_separated_list(parser.Delimiter.PAREN, entry)
    return inputs


def print_inputs(printer: Printer, inputs: Iterable[tuple[str, SSAValue]]) -> None:
    """As `parse_inputs` takes them."""

    def entry(pair: tuple[str, SSAValue]) -> None:
        printer.print_string(f"{pair[0]} = ")
        printer.print_operand(pair[1])
        printer.print_string(" : ")
        printer.print_attribute(pair[1].type)

    if named := list(inputs):
        printer.print_string(" with (")
        printer.print_list(named, entry)
        printer.print_string(")")

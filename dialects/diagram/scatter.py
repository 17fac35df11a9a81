"""`diagram.scatter`: elements are added up where data say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import AttrSizedOperandSegments, irdl_op_definition, operand_def, opt_operand_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import axes_of, check_array, format_of, merge_sizes
from treadle.dialects.diagram.operation import quote
from treadle.dialects.diagram.place import PlaceAttr, axes_of_forms
from treadle.dialects.diagram.placed import PlacedOperation
from treadle.dialects.syntax import parse_attributes, parse_inputs, print_inputs, print_types

SUMS = ("f32", "i32")
"""The formats of sums: those of atomic additions on every machine."""


@irdl_op_definition
class ScatterOp(PlacedOperation):
    """Add each element of an array to that element of the result which `at` says: for each axis of the result a
    position over the axes of the operand, of which entries of arrays in i32 may be part, and remainders and quotients.
    It is the transpose of a padded `diagram.read` at the same place. An element whose position lies outside of the
    result, or whose entry lies outside of its array, is added to nothing, and so is one that is absent; where nothing
    is added there is zero. With `into`, the sums begin with the elements of that array.

    Gradients of rows that data choose, histograms, and experts' outputs that tokens gather are such sums:

    ```
    %dW = diagram.scatter %dY at "token[t], d" with (token = %token : !token) : !dY -> !dW
    %count = diagram.scatter %ones at "bin[t]" with (bin = %bin : !bin) : !ones -> !count
    ```

    In f32 or i32. The order of the additions is not fixed: sums in f32 may differ in their last digits from launch to
    launch."""

    name = "diagram.scatter"

    operand = operand_def()
    init = opt_operand_def()
    result = result_def()

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    traits = traits_def(Pure())

    def __init__(
        self,
        operand: SSAValue | Operation,
        place: PlaceAttr | str,
        result_type: Attribute,
        inputs: Mapping[str, SSAValue] | None = None,
        init: SSAValue | None = None,
    ):
        inputs = inputs or {}
        properties = {
            "place": PlaceAttr(place) if isinstance(place, str) else place,
            "names": ArrayAttr(StringAttr(name) for name in inputs) if inputs else None,
        }
        super().__init__(
            operands=[operand, [] if init is None else [init], list(inputs.values())],
            properties=properties,
            result_types=[result_type],
        )

    @property
    def whole(self) -> SSAValue:
        return self.result

    @property
    def part(self) -> SSAValue:
        return self.operand

    def verify_(self) -> None:
        values = [
            ("operand 0", self.operand),
            ("result 0", self.result),
            *((f"'{n}'", v) for n, v in self.named.items()),
        ]
        for what, value in values:
            check_array(value.type, what)
        merge_sizes([(what, value.type) for what, value in values])
        formats = {str(format_of(value.type)) for value in (self.operand, self.result)}
        if len(formats) > 1 or not formats <= {*SUMS}:
            raise VerifyException(
                f"{format_of(self.operand.type)} is added up in {format_of(self.result.type)}: both are f32, or both "
                "i32; cast before, or after"
            )
        if self.init is not None and self.init.type != self.result.type:
            raise VerifyException(f"'into' has type {self.init.type}, the result has {self.result.type}")
        source, target, forms = axes_of(self.operand.type), axes_of(self.result.type), self.place.forms
        if len(forms) != len(target):
            raise VerifyException(f"{len(forms)} positions for the {len(target)} axes of the result ({quote(target)})")
        if unknown := [term for term in axes_of_forms(forms) if term not in source]:
            raise VerifyException(f"'{unknown[0]}' is no axis of the operand ({quote(source)})")
        self.check_entries(source)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("at")
        place = parser.parse_str_literal()
        init = parser.parse_unresolved_operand() if parser.parse_optional_keyword("into") else None
        inputs = parse_inputs(parser)
        attributes = parse_attributes(parser)
        type = parser.parse_type()
        parser.parse_punctuation("->")
        result = parser.parse_type()
        begin = None if init is None else parser.resolve_operand(init, result)
        op = cls(parser.resolve_operand(operand, type), place, result, inputs, begin)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.operand)
        printer.print_string(" at ")
        printer.print_string_literal(self.place.text.data)
        if self.init is not None:
            printer.print_string(" into ")
            printer.print_operand(self.init)
        print_inputs(printer, self.named.items())
        print_types(printer, self, (self.operand.type,), self.result.type)

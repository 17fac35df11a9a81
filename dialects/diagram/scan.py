"""`diagram.scan`: what all elements up to each make along an axis."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import EIGHT_BIT, STORED
from treadle.dialects.diagram.operation import REDUCTIONS, DiagramOperation, quote, same_axes
from treadle.dialects.syntax import parse_attributes, print_types


@irdl_op_definition
class ScanOp(DiagramOperation):
    """Combine, for each position along an axis, the elements up to it with `add`, `mul`, `max` or `min`, itself
    included: an inclusive scan (prefix sums, of `add`), in the format of the result. `exclusive` leaves the element
    itself out, so that the first has the neutral element; `reverse` combines the elements from each on (suffix sums).
    With `into`, an array without the axis is combined in where the scan begins. Elements that are absent count for
    nothing, and each position has a result.

    ```
    %C = diagram.scan add %L over x : !S -> !S
    %D = diagram.scan add %L over x exclusive reverse : !S -> !S
    ```

    `total %T` names the reduction of the same elements over the whole axis. A stream along it has in `%T` what came
    before a piece, and combines that into the scan of the piece. What is scanned in reverse grows by what comes later
    instead: a stream begins each piece with nothing, and what it has added up is repaired by what each piece adds to
    `%T`.

    Source: G. E. Blelloch, "Prefix Sums and Their Applications", 1990.
    """

    name = "diagram.scan"

    operand = operand_def()
    total = opt_operand_def()
    init = opt_operand_def()
    kind = prop_def(StringAttr)
    axis = prop_def(StringAttr)
    exclusive = opt_prop_def(UnitAttr)
    reverse = opt_prop_def(UnitAttr)
    result = result_def()

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    traits = traits_def(Pure())

    def __init__(
        self,
        kind: str,
        operand: SSAValue | Operation,
        axis: str,
        result_type: Attribute,
        total: SSAValue | Operation | None = None,
        init: SSAValue | Operation | None = None,
        exclusive: bool = False,
        reverse: bool = False,
    ):
        super().__init__(
            operands=[operand, [] if total is None else [total], [] if init is None else [init]],
            properties={
                "kind": StringAttr(kind),
                "axis": StringAttr(axis),
                "exclusive": UnitAttr() if exclusive else None,
                "reverse": UnitAttr() if reverse else None,
            },
            result_types=[result_type],
        )

    @property
    def is_exclusive(self) -> bool:
        return self.exclusive is not None

    @property
    def is_reverse(self) -> bool:
        return self.reverse is not None

    def along(self, axis: str, operand: SSAValue, total: SSAValue, type: Attribute) -> ScanOp:
        """The same scan of a part of the axis, which has another name."""
        return ScanOp(self.kind.data, operand, axis, type, total, None, self.is_exclusive, self.is_reverse)

    def of(
        self, operand: SSAValue, type: Attribute, total: SSAValue | None = None, init: SSAValue | None = None
    ) -> ScanOp:
        """The same scan of something else."""
        kind, axis = self.kind.data, self.axis.data
        new = ScanOp(kind, operand, axis, type, total, init, self.is_exclusive, self.is_reverse)
        new.attributes |= self.attributes
        new.location, new.result.name_hint = self.location, self.result.name_hint
        return new

    def verify_(self) -> None:
        if self.kind.data not in REDUCTIONS:
            raise VerifyException(f"unknown scan '{self.kind.data}' (known: {', '.join(REDUCTIONS)})")
        for type in (format_of(self.operand.type), format_of(self.result.type)):
            if str(type) in STORED:
                wide = "f32" if str(type) in EIGHT_BIT else "i32"
                raise VerifyException(f"a scan in {type}: cast to {wide} and scan that")
        self.check_arrays()
        axis, formats = self.axis.data, (str(format_of(self.operand.type)), str(format_of(self.result.type)))
        if axis not in axes_of(self.operand.type):
            known = quote(axes_of(self.operand.type))
            raise VerifyException(f"axis '{axis}' is scanned, but the operand has no such axis (it has {known})")
        if not same_axes(self.operand.type, self.result.type):
            raise VerifyException(
                f"a scan keeps the axes: operand has {quote(axes_of(self.operand.type))}, result "
                f"{quote(axes_of(self.result.type))}"
            )
        if formats.count("i32") == 1:
            raise VerifyException(f"cannot scan {formats[0]} in {formats[1]}")
        for what, value in (("total", self.total), ("into", self.init)):
            if value is not None:
                self._check_without_axis(what, value.type)

    def _check_without_axis(self, what: str, type: Attribute) -> None:
        wanted = {axis: size for axis, size in sizes_of(self.result.type).items() if axis != self.axis.data}
        if sizes_of(type) != wanted or format_of(type) != format_of(self.result.type):
            raise VerifyException(
                f"'{what}' has type {type}: it has the axes of the result but '{self.axis.data}', and its format"
            )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        kind = parser.parse_identifier(" for the scan")
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("over")
        axis = parser.parse_identifier(" for the axis")
        flags = {flag: parser.parse_optional_keyword(flag) is not None for flag in ("exclusive", "reverse")}
        beside: dict[str, UnresolvedOperand] = {}
        for keyword in ("total", "into"):
            if parser.parse_optional_keyword(keyword) is not None:
                beside[keyword] = parser.parse_unresolved_operand()
        attributes = parse_attributes(parser)
        operand_type = parser.parse_type()
        types: dict[str, Attribute] = {}
        for keyword in beside:
            parser.parse_punctuation(",")
            types[keyword] = parser.parse_type()
        parser.parse_punctuation("->")
        type = parser.parse_type()
        given = {keyword: parser.resolve_operand(value, types[keyword]) for keyword, value in beside.items()}
        resolved = parser.resolve_operand(operand, operand_type)
        op = cls(kind, resolved, axis, type, given.get("total"), given.get("into"), **flags)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_operand(self.operand)
        printer.print_string(f" over {self.axis.data}")
        for flag in ("exclusive", "reverse"):
            if flag in self.properties:
                printer.print_string(f" {flag}")
        types = [self.operand.type]
        for keyword, value in (("total", self.total), ("into", self.init)):
            if value is not None:
                printer.print_string(f" {keyword} ")
                printer.print_operand(value)
                types.append(value.type)
        print_types(printer, self, types, self.result.type)

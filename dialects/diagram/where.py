"""`diagram.where`: the elements at which a condition holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import (
    ArrayAttr,
    StringAttr,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    Pure,
)
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    axes_of,
    format_of,
)
from treadle.dialects.diagram.condition import Atom, Condition, ConditionAttr, Read, resolved, terms_of
from treadle.dialects.diagram.operation import DiagramOperation, quote
from treadle.dialects.syntax import parse_attributes, parse_inputs, print_inputs, print_types


@irdl_op_definition
class WhereOp(DiagramOperation):
    """The elements of an array at which a condition holds; the others are absent.

    An absent element does not exist: what a map makes of it is absent, too; a reduction passes over it, so a reduction
    of nothing is its neutral element; where one leaves the program it is saved as zero. The condition is over positions
    along the array's axes (their names), integer scalars and integer arrays, which `with` names, and over sums of them
    divided by numbers above zero: `//` rounds down, `%` is what that leaves, as Python's. A result at another
    level than the operand has its type after `->`.

    A product with an absent factor does not count either. But kernels take a zero for that factor, so what it is
    multiplied by must be a finite number, or the sum may be NaN: data past a length, say, which nobody wrote.

    ```
    %W = diagram.where %S if "x <= q" : !S
    %W = diagram.where %S if "x < len[b]" with (len = %len : !len) : !S
    %W = diagram.where %S if "x <= q and ((q - x) % 128 == 0 or q - x < 128)" : !S
    ```

    Of data, a program may know more than the condition says. It holds only where `within` does, and wherever
    `throughout` does; both are over the same positions and inputs. Streams take that for granted, to leave pieces out
    and to test no element of others, and the interpreter checks it.

    ```
    %W = diagram.where %S if "of_x[x] == of_q[q]" within "first[q] <= x and x < end[q]"
        throughout "first[q] <= x and x < whole[q]" with (of_x = %of_x : !x, of_q = %of_q : !q, ..) : !S
    ```
    """

    name = "diagram.where"

    operand = operand_def()
    inputs = var_operand_def()
    condition = prop_def(ConditionAttr)
    within = opt_prop_def(ConditionAttr)
    throughout = opt_prop_def(ConditionAttr)
    names = prop_def(ArrayAttr[StringAttr])
    result = result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        operand: SSAValue | Operation,
        condition: ConditionAttr | str,
        inputs: Mapping[str, SSAValue] | None = None,
        result_type: Attribute | None = None,
        within: ConditionAttr | str | None = None,
        throughout: ConditionAttr | str | None = None,
    ):
        inputs = inputs or {}
        super().__init__(
            operands=[operand, list(inputs.values())],
            properties={
                "condition": _as_attribute(condition),
                "within": _as_attribute(within),
                "throughout": _as_attribute(throughout),
                "names": ArrayAttr(StringAttr(name) for name in inputs),
            },
            result_types=[SSAValue.get(operand).type if result_type is None else result_type],
        )

    @property
    def holds(self) -> Condition:
        """The condition over positions and the values of its inputs."""
        return self._resolved(self.condition)

    @property
    def may_hold(self) -> Condition:
        """What holds wherever the condition does, as far as it is known."""
        return self.holds if self.within is None else self._resolved(self.within)

    @property
    def surely_holds(self) -> Condition:
        """What the condition holds wherever it does, as far as it is known."""
        return self.holds if self.throughout is None else self._resolved(self.throughout)

    @property
    def told(self) -> dict[str, ConditionAttr]:
        """All that it says, by the names of its properties."""
        every = {"condition": self.condition, "within": self.within, "throughout": self.throughout}
        return {name: each for name, each in every.items() if each is not None}

    @property
    def asked(self) -> dict[str, SSAValue]:
        """The inputs that the condition itself asks, by name: all, where no more is known than it says."""
        named = {name.data: value for name, value in zip(self.names, self.inputs, strict=True)}
        terms = (term for term in terms_of(self.condition.condition) if not isinstance(term, SSAValue))
        read = {term.name if isinstance(term, Read) else term for term in terms}
        return {name: value for name, value in named.items() if name in read}

    def of(self, value: SSAValue) -> Self:
        """The elements of another array at which it holds; of which no more is known."""
        return type(self)(value, self.condition, self.asked)

    def _resolved(self, condition: ConditionAttr) -> Condition:
        named = {name.data: value for name, value in zip(self.names, self.inputs, strict=True)}

        def value(term: Atom) -> SSAValue | None:
            return None if isinstance(term, SSAValue) else named.get(term if isinstance(term, str) else term.name)

        return resolved(condition.condition, value)

    def verify_(self) -> None:
        self.check_arrays()
        axes = axes_of(self.operand.type)
        if axes != axes_of(self.result.type) or format_of(self.operand.type) != format_of(self.result.type):
            raise VerifyException(
                f"elements that are kept stay as they are: {self.operand.type} is not {self.result.type}"
            )
        names = [name.data for name in self.names]
        if len(names) != len(self.inputs):
            raise VerifyException(f"{len(names)} names for {len(self.inputs)} inputs")
        for name, value in zip(names, self.inputs, strict=True):
            if names.count(name) > 1 or name in axes:
                raise VerifyException(f"input '{name}' has the name of another input, or of an axis")
            if str(format_of(value.type)) != "i32":
                raise VerifyException(f"input '{name}' of a condition has elements {format_of(value.type)}, not i32")
            if missing := [axis for axis in axes_of(value.type) if axis not in axes]:
                raise VerifyException(f"input '{name}' has axis '{missing[0]}', which the array has not")
        read = dict.fromkeys(term for each in self.told.values() for term in terms_of(each.condition))
        for term in read:
            self._check_term(term, names, axes)
        used = {term.name if isinstance(term, Read) else term for term in read}
        if unused := [name for name in names if name not in used]:
            raise VerifyException(f"input '{unused[0]}' does not appear in the condition")

    def _check_term(self, term: Atom, names: Sequence[str], axes: Sequence[str]) -> None:
        assert not isinstance(term, SSAValue)
        name = term if isinstance(term, str) else term.name
        if name in names:
            value = self.inputs[names.index(name)]
            given = () if isinstance(term, str) else term.axes
            if given != axes_of(value.type):
                wanted = f"{name}[{', '.join(axes_of(value.type))}]" if axes_of(value.type) else name
                raise VerifyException(f"input '{name}' is read as '{term}': write '{wanted}'")
        elif isinstance(term, Read):
            raise VerifyException(f"'{term}' reads no input: name it after 'with'")
        elif term not in axes:
            raise VerifyException(f"'{term}' is neither an axis of the array ({quote(axes)}) nor an input")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("if")
        condition = parser.parse_str_literal()
        within = _parse_known(parser, "within")
        throughout = _parse_known(parser, "throughout")
        inputs = parse_inputs(parser)
        attributes = parse_attributes(parser)
        type = parser.parse_type()
        result_type = parser.parse_type() if parser.parse_optional_punctuation("->") is not None else type
        operand = parser.resolve_operand(operand, type)
        op = cls(operand, condition, inputs, result_type, within, throughout)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.operand)
        printer.print_string(" if ")
        printer.print_string_literal(self.condition.text.data)
        for word, known in list(self.told.items())[1:]:
            printer.print_string(f" {word} ")
            printer.print_string_literal(known.text.data)
        print_inputs(printer, ((name.data, value) for name, value in zip(self.names, self.inputs, strict=True)))
        print_types(printer, self, (self.operand.type,))
        if self.operand.type != self.result.type:
            printer.print_string(" -> ")
            printer.print_attribute(self.result.type)


def _as_attribute(condition: ConditionAttr | str | None) -> ConditionAttr | None:
    return ConditionAttr(condition) if isinstance(condition, str) else condition


def _parse_known(parser: Parser, word: str) -> str | None:
    return None if parser.parse_optional_keyword(word) is None else parser.parse_str_literal()

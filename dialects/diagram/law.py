"""Laws: functions along axes, by name, and their application."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from xdsl.dialects.builtin import (
    ArrayAttr,
    FunctionType,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
)
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    IsolatedFromAbove,
    NoTerminator,
    Pure,
    SymbolOpInterface,
)
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    axes_of,
    parse_axis_list,
    print_axis_list,
)
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.yields import YieldOp
from treadle.dialects.syntax import parse_attributes


@irdl_op_definition
class ApplyOp(DiagramOperation):
    """Apply a law along an axis; every other axis of the operands is weaved. The law computes in the
    formats it states: operands are converted to them and the result to its own format.

    ```
    %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
    ```
    """

    name = "diagram.apply"

    inputs = var_operand_def()
    law = prop_def(SymbolRefAttr)
    over = prop_def(ArrayAttr[StringAttr])
    outputs = var_result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        law: str | SymbolRefAttr,
        inputs: Sequence[SSAValue | Operation],
        over: Iterable[str],
        result_types: Sequence[Attribute],
    ):
        super().__init__(
            operands=[inputs],
            properties={
                "law": SymbolRefAttr(law) if isinstance(law, str) else law,
                "over": ArrayAttr(StringAttr(axis) for axis in over),
            },
            result_types=[result_types],
        )

    @property
    def over_axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.over)

    @property
    def result(self) -> SSAValue:
        """The first result: what an application is called by."""
        return self.outputs[0]

    def verify_(self) -> None:
        self.check_arrays()
        if not self.outputs:
            raise VerifyException("a law gives one array at least")
        for axis in self.over_axes:
            if all(axis not in axes_of(operand.type) for operand in self.inputs):
                raise VerifyException(f"axis '{axis}' is in no operand of the law")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        law = parser.parse_symbol_name()
        operands = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        attributes = parse_attributes(parser)
        position = parser.pos
        function = parser.parse_function_type()
        inputs = parser.resolve_operands(operands, function.inputs.data, position)
        op = cls(SymbolRefAttr(law), inputs, over, function.outputs.data)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.law)
        printer.print_string("(")
        printer.print_list(self.inputs, printer.print_operand)
        printer.print_string(") over ")
        print_axis_list(printer, self.over_axes)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_function_type([value.type for value in self.inputs], [value.type for value in self.outputs])


@irdl_op_definition
class LawOp(IRDLOperation):
    """A named function along axes, generic in the other axes: its plain meaning and, for a law over one
    axis, how it is fed that axis in pieces. Without the second part the stream is derived from the meaning.
    The standard laws ship in `dialects/diagram/laws`; a program that defines a law of the same name
    uses its own.

    ```
    diagram.law @softmax over [x] (%v : !v) -> !v { ... diagram.yield %y : !v }
    ```

    ```
    diagram.law @mean over [x] (%v : !v) -> !r { ...
    } initialise { ... diagram.yield %zero : !r
    } step (%sum : !r, %piece : !v) { ... diagram.yield %next : !r
    } finish (%sum : !r) { ... diagram.yield %mean : !r
    } merge (%one : !r, %other : !r) { ... diagram.yield %both : !r }
    ```

    ```
    diagram.law @softmax over [x] (%v : !v) -> !v gradient @softmax_gradient { ... diagram.yield %y : !v }
    diagram.law @softmax_gradient over [x] (%v : !v, %y : !v, %dy : !v) -> !v { ... diagram.yield %dv : !v }
    ```

    `initialise` gives the state before the first piece. `step` takes the state and the arguments, those that
    have the axis piece by piece, and yields the next state, then the pieces of the results that have the
    axis. `finish` takes the state and the arguments that lack the axis, and yields the results that lack it.
    `merge`, which may be left out, takes the states of two neighbouring parts of the axis, the first part
    first, and the arguments that lack the axis, and yields the state of both parts together. `treadle check`
    tries whether all that is what the meaning says.

    `gradient` names the law that `diagram-differentiate` applies for this one. It takes the arguments, the results and
    the cotangents of the results, and yields the gradients of the arguments; integers have neither. `treadle check`
    holds it against differences of the meaning.
    """

    name = "diagram.law"

    sym_name = prop_def(SymbolNameConstraint())
    over = prop_def(ArrayAttr[StringAttr])
    function_type = prop_def(FunctionType)
    gradient = opt_prop_def(SymbolRefAttr)
    body = region_def("single_block")
    stream = var_region_def("single_block")

    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove(), NoTerminator())

    def __init__(
        self,
        name: str,
        over: Iterable[str],
        result_types: Sequence[Attribute],
        body: Region,
        stream: Sequence[Region],
        gradient: str | None = None,
    ):
        inputs = [arg.type for arg in body.block.args]
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "over": ArrayAttr(StringAttr(axis) for axis in over),
                "function_type": FunctionType.from_lists(inputs, result_types),
                "gradient": None if gradient is None else SymbolRefAttr(gradient),
            },
            regions=[body, stream],
        )

    @property
    def over_axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.over)

    @property
    def own_axes(self) -> tuple[str, ...]:
        """Axes that only the meaning has: no argument brings them."""
        given = {axis for type in self.inputs for axis in axes_of(type)}
        inside = (axis for op in self.body.walk() for result in op.results for axis in axes_of(result.type))
        return tuple(axis for axis in dict.fromkeys(inside) if axis not in given)

    def why_not(self, apply: ApplyOp) -> str | None:
        """Why the law cannot be applied in this way; None if it can."""
        name = self.sym_name.data
        if len(apply.over_axes) != len(self.over_axes):
            return (
                f"law @{name} is over [{', '.join(self.over_axes)}], it is applied over "
                f"[{', '.join(apply.over_axes)}]: a law is for as many axes as it names"
            )
        if len(apply.inputs) != len(self.inputs):
            return f"law @{name} takes {len(self.inputs)} arrays, it is given {len(apply.inputs)}"
        if len(apply.outputs) != len(self.outputs):
            return f"law @{name} gives {len(self.outputs)} arrays, {len(apply.outputs)} are taken"
        given = {axis for operand in apply.inputs for axis in axes_of(operand.type)}
        if confused := [axis for axis in self.own_axes if axis in given]:
            return (
                f"law @{name} has an axis '{confused[0]}' of its own, and so has an array that it is applied to: "
                "give that of the law another name"
            )
        return None

    @property
    def parts(self) -> dict[str, Region]:
        """The regions of the stream by name, `STREAM_PARTS`; none if it is to be derived."""
        return dict(zip(STREAM_PARTS, self.stream, strict=False))

    @property
    def inputs(self) -> tuple[Attribute, ...]:
        return self.function_type.inputs.data

    @property
    def outputs(self) -> tuple[Attribute, ...]:
        return self.function_type.outputs.data

    def verify_(self) -> None:
        _check_yield(self.body, list(self.outputs), "the meaning")
        for axis in self.over_axes:
            if all(axis not in axes_of(type) for type in self.inputs):
                raise VerifyException(f"axis '{axis}' is in no argument of the law")
        if not self.stream:
            return
        if len(self.stream) not in (3, 4):
            raise VerifyException("a stream has 'initialise', 'step', 'finish' and, if it can be split, 'merge'")
        if len(self.over_axes) != 1:
            raise VerifyException(f"a stream is fed along one axis, the law is over {len(self.over_axes)}")
        self._verify_stream(self.over_axes[0])

    def _verify_stream(self, axis: str) -> None:
        parts = self.parts
        state = _yielded(parts["initialise"], "'initialise'")
        still = [type for type in self.inputs if axis not in axes_of(type)]
        pieces = [type for type in self.outputs if axis in axes_of(type)]
        results = [type for type in self.outputs if axis not in axes_of(type)]
        if moving := [type for type in state if axis in axes_of(type)]:
            raise VerifyException(f"the state {moving[0]} has axis '{axis}', which the stream is fed along")
        takes = {
            "initialise": [],
            "step": [*state, *self.inputs],
            "finish": [*state, *still],
            "merge": [*state, *state, *still],
        }
        gives = {"step": [*state, *pieces], "finish": results, "merge": state}
        for name, region in parts.items():
            given = [arg.type for arg in region.block.args]
            if given != takes[name]:
                raise VerifyException(f"'{name}' takes {_types(given)}, it is given {_types(takes[name])}")
            if name in gives:
                _check_yield(region, gives[name], f"'{name}'")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        name = parser.parse_symbol_name().data
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        arguments = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=True)
        )
        parser.parse_punctuation("->")
        types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        types = [parser.parse_type()] if types is None else types
        gradient = parser.parse_symbol_name().data if parser.parse_optional_keyword("gradient") is not None else None
        body = parser.parse_region(arguments)
        stream: list[Region] = []
        for part in STREAM_PARTS:
            if parser.parse_optional_keyword(part) is None:
                break
            given = parser.parse_optional_comma_separated_list(
                parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=True)
            )
            stream.append(parser.parse_region(given or ()))
        return cls(name, over, types, body, stream, gradient)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" over ")
        print_axis_list(printer, self.over_axes)
        printer.print_string(" (")
        printer.print_list(self.body.block.args, printer.print_block_argument)
        printer.print_string(") -> ")
        if len(self.outputs) == 1:
            printer.print_attribute(self.outputs[0])
        else:
            with printer.in_parens():
                printer.print_list(self.outputs, printer.print_attribute)
        printer.print_string(" ")
        if self.gradient is not None:
            printer.print_string(f"gradient @{self.gradient.string_value()} ")
        printer.print_region(self.body, print_entry_block_args=False)
        for part, region in self.parts.items():
            printer.enter_scope()
            printer.print_string(f" {part} ")
            if region.block.args:
                with printer.in_parens():
                    printer.print_list(region.block.args, printer.print_block_argument)
                printer.print_string(" ")
            printer.print_region(region, print_entry_block_args=False)
            printer.exit_scope()


STREAM_PARTS = ("initialise", "step", "finish", "merge")
"""The regions of the stream of a law, in order; the last may be left out."""


def _yielded(region: Region, what: str) -> list[Attribute]:
    terminator = region.block.last_op
    if not isinstance(terminator, YieldOp):
        raise VerifyException(f"{what} of a law ends with diagram.yield")
    return [operand.type for operand in terminator.operands]


def _check_yield(region: Region, wanted: Sequence[Attribute], what: str) -> None:
    if (types := _yielded(region, what)) != list(wanted):
        raise VerifyException(f"{what} of a law yields {_types(types)} where {_types(wanted)} is declared")


def _types(types: Sequence[Attribute]) -> str:
    return f"({', '.join(str(type) for type in types)})"

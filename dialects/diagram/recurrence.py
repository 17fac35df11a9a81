"""`diagram.recurrence`: states that are taken from position to position by any function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    irdl_op_definition,
    lazy_traits_def,
    opt_prop_def,
    prop_def,
    region_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, Pure, SingleBlockImplicitTerminator
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import array_type, axes_of, check_array, format_of, is_array, merge_sizes, sizes_of
from treadle.dialects.diagram.contract import ContractOp
from treadle.dialects.diagram.elements import CastOp, FillOp, IndexOp
from treadle.dialects.diagram.law import ApplyOp
from treadle.dialects.diagram.map import MapOp
from treadle.dialects.diagram.operation import DiagramOperation, quote, same_axes
from treadle.dialects.diagram.reduce import ReduceOp
from treadle.dialects.diagram.rename import RenameOp
from treadle.dialects.diagram.yields import YieldOp
from treadle.dialects.syntax import parse_binding, parse_region_attributes, print_binding, print_region_attributes

KEPT = ("f32", "i32")
"""The formats of states: what is rounded at every position, a long row would lose."""
MULTIPLIED = ("f16", "bf16", "f32", "i32")
"""The formats of factors in a step: those that a map multiplies."""
STEPS = (ApplyOp, CastOp, ContractOp, FillOp, IndexOp, MapOp, ReduceOp, RenameOp)
"""What a step is made of."""


def at_position(type: Attribute, axis: str) -> Attribute:
    """The type of an array at one position of an axis: without it, wherever the array lies."""
    sizes = {name: size for name, size in sizes_of(type).items() if name != axis}
    return array_type(format_of(type), sizes)


@irdl_op_definition
class RecurrenceOp(DiagramOperation):
    """Take states along an axis, one position after another, from the first on. The body is what happens at one
    position: it is given the states as they are before it, and each array that is read as it is there; those without
    the axis are the same at all of them. It yields the states as they are after it, then what is made of the position.

    The results are the states after the last position, and for each further array that the body yields all of them
    along the axis. Without a position the states are what they began with. With `reverse` the last position is taken
    first: the states before a position are those after the one that follows it along the axis, and results are the
    states after the first.

    ```
    %last, %Y = diagram.recurrence over t (%h = %H0 : !h) each (%x = %X : !X) -> (!h, !X) {
      %g = diagram.map (%a = %h : !h, %b = %x : !h) -> !h { ... }
      diagram.yield %g, %g : !h, !h
    }
    %first, %Z = diagram.recurrence over t reverse (%h = %H0 : !h) each (%x = %X : !X) -> (!h, !X) { ... }
    ```

    The body holds maps, casts, reductions, contractions, laws, renames, fills and positions, none of which has the
    axis. States are f32 or i32."""

    name = "diagram.recurrence"

    axis = prop_def(StringAttr)
    reverse = opt_prop_def(UnitAttr)
    states = var_operand_def()
    inputs = var_operand_def()
    made = var_result_def()
    body = region_def("single_block")

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    traits = lazy_traits_def(lambda: (Pure(), IsolatedFromAbove(), SingleBlockImplicitTerminator(YieldOp)))

    def __init__(
        self,
        axis: str,
        states: Sequence[SSAValue | Operation],
        inputs: Sequence[SSAValue | Operation],
        result_types: Sequence[Attribute],
        body: Region,
        reverse: bool = False,
    ):
        super().__init__(
            operands=[states, inputs],
            properties={"axis": StringAttr(axis), "reverse": UnitAttr() if reverse else None},
            result_types=[result_types],
            regions=[body],
        )

    @property
    def is_reverse(self) -> bool:
        """Whether the last position is taken first."""
        return self.reverse is not None

    @property
    def last(self) -> tuple[SSAValue, ...]:
        """The states after the last position that is taken."""
        return tuple(self.results[: len(self.states)])

    @property
    def outputs(self) -> tuple[SSAValue, ...]:
        """What is made of every position."""
        return tuple(self.results[len(self.states) :])

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """What the body gives, one value for each result."""
        terminator = self.body.block.last_op
        assert terminator is not None
        return tuple(terminator.operands)

    @property
    def step(self) -> tuple[Operation, ...]:
        """What happens at a position, in order."""
        return tuple(self.body.block.ops)[:-1]

    @property
    def over_axes(self) -> tuple[str, ...]:
        """The axes along which elements meet: its own, and those that the body reduces, or that change names."""
        met = [self.axis.data]
        for op in self.step:
            if isinstance(op, ApplyOp | ContractOp | ReduceOp):
                met += op.over_axes
            elif isinstance(op, RenameOp):
                met += op.meeting_axes
        return tuple(dict.fromkeys(met))

    def verify_(self) -> None:
        self.check_arrays()
        axis = self.axis.data
        if not self.states:
            raise VerifyException("a recurrence has one state at least: what has none is a map")
        for i, value in enumerate(self.states):
            self._check_state(i, value.type)
        if all(axis not in axes_of(value.type) for value in self.inputs):
            raise VerifyException(f"no array has axis '{axis}': nothing says how many positions there are")
        self._verify_body()
        self._verify_results()

    def _check_state(self, place: int, type: Attribute) -> None:
        if not is_array(type) or str(format_of(type)) not in KEPT:
            raise VerifyException(
                f"state {place} is {type}: states are arrays of {' or '.join(KEPT)}; cast what the body yields of them"
            )
        if self.axis.data in axes_of(type):
            raise VerifyException(f"state {place} has axis '{self.axis.data}', along which it is taken")

    def _verify_body(self) -> None:
        axis, block = self.axis.data, self.body.block
        wanted = [at_position(value.type, axis) if is_array(value.type) else value.type for value in self.operands]
        if [argument.type for argument in block.args] != wanted:
            given = ", ".join(str(argument.type) for argument in block.args)
            raise VerifyException(f"the body takes ({given}), a position has ({', '.join(map(str, wanted))})")
        named = [(f"argument {i} of the body", argument.type) for i, argument in enumerate(block.args)]
        for op in self.step:
            self._check_step(op)
            named += [(f"'{op.name}' of the body", result.type) for result in op.results]
        merge_sizes(named)

    def _check_step(self, op: Operation) -> None:
        if not isinstance(op, STEPS):
            known = ", ".join(each.name for each in STEPS)
            raise VerifyException(f"'{op.name}' in the body of a recurrence: a position has {known}")
        for value in op.results:
            check_array(value.type, f"the result of '{op.name}'")
            if self.axis.data in axes_of(value.type):
                raise VerifyException(f"'{op.name}' in the body has axis '{self.axis.data}': it is of one position")
        if isinstance(op, ContractOp | ReduceOp) and op.init is not None:
            raise VerifyException(f"'{op.name}' in the body of a recurrence adds 'into' an array: add it by a map")
        if isinstance(op, ContractOp):
            formats = [str(format_of(value.type)) for value in (op.lhs, op.rhs)]
            if not {*formats} <= {*MULTIPLIED} or str(op.accumulate) not in KEPT:
                raise VerifyException(
                    f"a product of {' and '.join(formats)}, accumulated in {op.accumulate}, in the body of a "
                    f"recurrence: cast to one of {', '.join(MULTIPLIED)}, and accumulate in {' or '.join(KEPT)}"
                )

    def _verify_results(self) -> None:
        axis, given = self.axis.data, [value.type for value in self.yielded]
        if len(given) != len(self.results):
            raise VerifyException(f"the body yields {len(given)} arrays, the recurrence gives {len(self.results)}")
        for i, (state, result) in enumerate(zip(self.states, self.last, strict=False)):
            if at_position(state.type, axis) != at_position(result.type, axis) or axis in axes_of(result.type):
                raise VerifyException(f"result {i} is {result.type}, the state that it is in the end {state.type}")
        for i, result in enumerate(self.outputs, start=len(self.states)):
            if axis not in axes_of(result.type):
                raise VerifyException(f"result {i} is {result.type}, without axis '{axis}': it is of every position")
        for i, (type, result) in enumerate(zip(given, self.results, strict=True)):
            wanted = at_position(result.type, axis)
            if not is_array(type) or not same_axes(type, wanted) or format_of(type) != format_of(wanted):
                raise VerifyException(f"the body yields {type} for result {i}, which is {wanted} at a position")
            if i < len(self.states) and type != wanted:
                raise VerifyException(
                    f"the body yields state {i} with axes {quote(axes_of(type))}, it has {quote(axes_of(wanted))}"
                )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.parse_keyword("over")
        axis = parser.parse_identifier(" for the axis")
        reverse = parser.parse_optional_keyword("reverse") is not None

        def entries(values: list[SSAValue]) -> list[Parser.Argument]:
            def entry() -> Parser.Argument:
                argument, value = parse_binding(parser)
                values.append(value)
                return argument.resolve(at_position(value.type, axis) if is_array(value.type) else value.type)

            return parser.parse_comma_separated_list(parser.Delimiter.PAREN, entry)

        states: list[SSAValue] = []
        inputs: list[SSAValue] = []
        arguments = entries(states)
        parser.parse_keyword("each")
        arguments += entries(inputs)
        parser.parse_punctuation("->")
        types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        attributes = parse_region_attributes(parser)
        op = cls(axis, states, inputs, types, parser.parse_region(arguments), reverse)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.enter_scope()
        arguments = self.body.block.args

        def entries(pairs: Iterable[tuple[SSAValue, SSAValue]]) -> None:
            printer.print_string("(")
            printer.print_list(list(pairs), lambda pair: print_binding(printer, *pair))
            printer.print_string(")")

        printer.print_string(f" over {self.axis.data} {'reverse ' if self.is_reverse else ''}")
        entries(zip(arguments, self.states, strict=False))
        printer.print_string(" each ")
        entries(zip(arguments[len(self.states) :], self.inputs, strict=True))
        printer.print_string(" -> (")
        printer.print_list([result.type for result in self.results], printer.print_attribute)
        printer.print_string(")")
        print_region_attributes(printer, self)
        printer.print_region(self.body, print_entry_block_args=False, print_empty_block=False)
        printer.exit_scope()

"""`hierarchy.kernel`: what runs as one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import MemRefType, StringAttr
from xdsl.ir import Attribute, BlockArgument, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    DYNAMIC,
    axes_of,
    check_array,
    check_axis_name,
    format_of,
    is_array,
    level_of,
    size_text,
    sizes_of,
)
from treadle.dialects.hierarchy.schedule import (
    UNDECIDED,
    ScheduleAttr,
)
from treadle.dialects.hierarchy.yields import YieldOp
from treadle.dialects.syntax import parse_region_attributes, print_binding, print_region_attributes


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A convex part of the algorithm that runs as one launch; its operands and results are arrays at
    device level, and nothing inside touches that level but loads and saves.

    Until its streams are expanded the body is the algorithm, decorated: `diagram` operations whose values
    carry the level they live at, with a schedule that says how each axis is treated; `hierarchy.yield` gives
    the results. Expanded, the body has one argument more for each result, a `memref` to save to, and holds
    one `hierarchy.group`.

    ```
    %O = hierarchy.kernel @attention (%q = %Q : !Q, %k = %K : !K) -> (!O)
        schedule #hierarchy.schedule<group = [q = ?], stream = [x = ?], whole = [d = 64]> { ... }
    ```
    """

    name = "hierarchy.kernel"

    inputs = var_operand_def()
    kernel_name = prop_def(StringAttr)
    schedule = opt_prop_def(ScheduleAttr)
    outputs = var_result_def()
    body = region_def("single_block")

    traits = traits_def(IsolatedFromAbove(), NoTerminator())

    def __init__(
        self,
        name: str,
        inputs: Sequence[SSAValue],
        output_types: Sequence[Attribute],
        body: Region,
        schedule: ScheduleAttr | None = None,
    ):
        super().__init__(
            operands=[inputs],
            result_types=[output_types],
            properties={"kernel_name": StringAttr(name), "schedule": schedule},
            regions=[body],
        )

    @property
    def is_expanded(self) -> bool:
        return len(self.body.block.args) > len(self.inputs)

    @property
    def destinations(self) -> tuple[SSAValue, ...]:
        """Where an expanded kernel saves its results."""
        return tuple(self.body.block.args[len(self.inputs) :])

    def verify_(self) -> None:
        check_axis_name(self.kernel_name.data)
        for i, output in enumerate(self.outputs):
            check_array(output.type, f"result {i}")
        args = self.body.block.args
        for i, (arg, operand) in enumerate(zip(args, self.inputs, strict=False)):
            check_array(operand.type, f"operand {i}")
            check_array(arg.type, f"argument {i}")
            alike = sizes_of(arg.type) == sizes_of(operand.type) and axes_of(arg.type) == axes_of(operand.type)
            if not alike or format_of(arg.type) != format_of(operand.type):
                raise VerifyException(f"argument {i} is {arg.type}, operand {i} is {operand.type}")
            if is_array(arg.type) and level_of(arg.type) != "device":
                raise VerifyException(
                    f"argument {i} is at level {level_of(arg.type) or 'undecided'}: a kernel is given device"
                )
        terminator = self.body.block.last_op
        if not isinstance(terminator, YieldOp):
            raise VerifyException("the body of a kernel ends with hierarchy.yield")
        self._verify_whole()
        if self.is_expanded:
            self._verify_expanded(terminator)
        else:
            self._verify_functional(terminator)

    def _verify_whole(self) -> None:
        """Of an axis that groups hold whole the schedule says what arrays have: how many blocks share it follows."""
        whole = {} if self.schedule is None else self.schedule.whole.as_dict()
        for value in (*self.inputs, *self.outputs):
            for axis, size in sizes_of(value.type).items():
                if DYNAMIC != size != whole.get(axis, size) != UNDECIDED:
                    raise VerifyException(f"the schedule holds {whole[axis]} of axis '{axis}' whole, which has {size}")

    def _verify_functional(self, terminator: YieldOp) -> None:
        if len(self.body.block.args) != len(self.inputs):
            raise VerifyException("the body has fewer arguments than the kernel has operands")
        given = [sizes_of(operand.type) for operand in terminator.operands]
        wanted = [sizes_of(output.type) for output in self.outputs]
        if given != wanted:
            raise VerifyException(f"the body yields {_axes_text(given)}, the kernel gives {_axes_text(wanted)}")

    def _verify_expanded(self, terminator: YieldOp) -> None:
        if terminator.operands:
            raise VerifyException("an expanded kernel saves its results: it yields nothing")
        if len(self.destinations) != len(self.outputs):
            raise VerifyException(f"{len(self.destinations)} destinations for {len(self.outputs)} results")
        for i, (destination, output) in enumerate(zip(self.destinations, self.outputs, strict=True)):
            type = destination.type
            if not isinstance(type, MemRefType):
                raise VerifyException(f"destination {i} is {type}: expected a memref")
            if sizes_of(destination.type) != sizes_of(output.type):
                raise VerifyException(f"destination {i} is {destination.type}, result {i} is {output.type}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        name = parser.parse_symbol_name().data
        inputs: list[SSAValue] = []

        def entry() -> Parser.Argument:
            argument = parser.parse_argument(expect_type=False)
            parser.parse_punctuation("=")
            operand = parser.parse_unresolved_operand()
            parser.parse_punctuation(":")
            outer = parser.parse_type()
            inner = parser.parse_type() if parser.parse_optional_keyword("as") else outer
            inputs.append(parser.resolve_operand(operand, outer))
            return argument.resolve(inner)

        arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, entry)
        if parser.parse_optional_keyword("saves"):
            arguments += parser.parse_comma_separated_list(
                parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=True)
            )
        parser.parse_punctuation("->")
        types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        schedule = None
        if parser.parse_optional_keyword("schedule"):
            attribute = parser.parse_attribute()
            if not isinstance(attribute, ScheduleAttr):
                parser.raise_error("expected #hierarchy.schedule<...>")
            schedule = attribute
        attributes = parse_region_attributes(parser)
        op = cls(name, inputs, types, parser.parse_region(arguments), schedule)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.enter_scope()
        args = self.body.block.args

        def entry(pair: tuple[SSAValue, SSAValue]) -> None:
            print_binding(printer, *pair)
            if pair[0].type != pair[1].type:
                printer.print_string(" as ")
                printer.print_attribute(pair[0].type)

        printer.print_string(" ")
        printer.print_symbol_name(self.kernel_name.data)
        printer.print_string(" (")
        printer.print_list(list(zip(args, self.inputs, strict=False)), entry)
        printer.print_string(")")
        if self.is_expanded:
            printer.print_string(" saves (")
            printer.print_list(args[len(self.inputs) :], printer.print_block_argument)
            printer.print_string(")")
        printer.print_string(" -> (")
        printer.print_list([output.type for output in self.outputs], printer.print_attribute)
        printer.print_string(")")
        if self.schedule is not None:
            printer.print_string(" schedule ")
            printer.print_attribute(self.schedule)
        print_region_attributes(printer, self)
        printer.print_region(self.body, print_entry_block_args=False)
        printer.exit_scope()


def given_for(value: SSAValue) -> SSAValue | None:
    """The array that a kernel is given for an argument; None for one that it saves to, and for what is none."""
    kernel = value.block.parent_op() if isinstance(value, BlockArgument) else None
    if not isinstance(kernel, KernelOp) or not isinstance(value, BlockArgument):
        return None
    return kernel.inputs[value.index] if value.index < len(kernel.inputs) else None


def saved_as(value: SSAValue) -> SSAValue | None:
    """The result of a kernel that it saves to an argument; None for what is no such argument."""
    kernel = value.block.parent_op() if isinstance(value, BlockArgument) else None
    if not isinstance(kernel, KernelOp) or not isinstance(value, BlockArgument):
        return None
    return kernel.outputs[value.index - len(kernel.inputs)] if value.index >= len(kernel.inputs) else None


def _axes_text(arrays: Sequence[Mapping[str, int]]) -> str:
    """`[q = ?, d = 64], [q = ?]`"""
    return ", ".join(
        f"[{', '.join(f'{axis} = {size_text(size)}' for axis, size in array.items())}]" for array in arrays
    )

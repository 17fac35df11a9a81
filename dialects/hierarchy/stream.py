"""`hierarchy.group` and `hierarchy.stream`: the loops over pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    AttrSizedRegionSegments,
    IRDLOperation,
    irdl_op_definition,
    opt_operand_def,
    opt_region_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.absence import Finishing
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy.schedule import (
    UNDECIDED,
    PartitionAttr,
    parse_partition,
    print_partition,
)
from treadle.dialects.hierarchy.selection import SelectionType
from treadle.dialects.hierarchy.yields import YieldOp
from treadle.dialects.syntax import parse_region_attributes, print_region_attributes

RECURS = "recurs"
"""The attribute of a stream whose steps are those of a recurrence (`diagram.recurrence`)."""

REVERSE = "reverse"
"""And that of one which is fed the last position first."""


@irdl_op_definition
class GroupOp(IRDLOperation):
    """Run the body for every group: every combination of pieces of the partitioned axes, independently. In
    the body an axis means its piece; a piece at the edge of an axis is smaller than its type says.

    ```
    hierarchy.group [b = 1, h = 1, q = 64] { ... }
    ```
    """

    name = "hierarchy.group"

    partition = prop_def(PartitionAttr)
    body = region_def("single_block")

    traits = traits_def(NoTerminator())

    def __init__(self, partition: Mapping[str, int] | PartitionAttr, body: Region):
        if not isinstance(partition, PartitionAttr):
            partition = PartitionAttr(partition)
        super().__init__(properties={"partition": partition}, regions=[body])

    def verify_(self) -> None:
        _check_decided(self.partition)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        partition = parse_partition(parser)
        attributes = parse_region_attributes(parser)
        op = cls(partition, parser.parse_region())
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_partition(printer, self.partition)
        print_region_attributes(printer, self)
        printer.print_region(self.body)


@irdl_op_definition
class StreamOp(IRDLOperation, Finishing):
    """Feed an axis in pieces: `initialise` gives the state before the first piece, `step` takes it through
    one piece (in which the axis means that piece), `finish` turns the last state into the results. A stream
    without state saves what it makes in its step.

    ```
    %O = hierarchy.stream [x = 64] -> (!O) initialise { ... } step (%m : !m, %acc : !A) { ... }
        finish (%m_end : !m, %acc_end : !A) { ... }
    ```

    `from %low to %high`: only pieces that hold a position of that range are fed; the others would leave the state as
    it is. `whole from %a to %b`: `step` is for pieces that lie within that range, where conditions hold throughout;
    the others take the state through `border`, which tests them.

    ```
    %O = hierarchy.stream [x = 64] from %zero to %q_end whole from %zero to %q0 -> (!O) initialise { ... }
        step (%m : !m, %acc : !A) { ... } border (%m : !m, %acc : !A) { ... } finish (...) { ... }
    ```

    `among %pieces`: of those only the pieces that `hierarchy.select` has selected, in the same range. Those that its
    list has no room for go through `border`, if there is one: nothing is known of them.

    With the attribute `recurs` the states are those of a recurrence: any function takes them from piece to piece, each
    of one position; with `reverse` beside it the last one is fed first.
    """

    name = "hierarchy.stream"

    partition = prop_def(PartitionAttr)
    limits = var_operand_def(IndexType())
    selection = opt_operand_def(SelectionType())
    outputs = var_result_def()
    initialise = region_def("single_block")
    step = region_def("single_block")
    border = opt_region_def("single_block")
    finish = region_def("single_block")

    irdl_options = (AttrSizedOperandSegments(as_property=True), AttrSizedRegionSegments(as_property=True))

    traits = traits_def(NoTerminator())

    def __init__(
        self,
        partition: Mapping[str, int] | PartitionAttr,
        output_types: Sequence[Attribute],
        initialise: Region,
        step: Region,
        finish: Region,
        limits: Sequence[SSAValue] = (),
        border: Region | None = None,
        selection: SSAValue | None = None,
    ):
        if not isinstance(partition, PartitionAttr):
            partition = PartitionAttr(partition)
        super().__init__(
            operands=[limits, selection],
            properties={"partition": partition},
            result_types=[output_types],
            regions=[initialise, step, [] if border is None else [border], finish],
        )

    @property
    def axis(self) -> str:
        return next(iter(self.partition.as_dict()))

    @property
    def size(self) -> int:
        return next(iter(self.partition.as_dict().values()))

    @property
    def fed(self) -> tuple[SSAValue, SSAValue] | None:
        """The range of which it is fed the pieces; None for all of the axis."""
        return (self.limits[0], self.limits[1]) if self.limits else None

    @property
    def whole(self) -> tuple[SSAValue, SSAValue] | None:
        """The range within which pieces go through `step`; None where all do."""
        return (self.limits[2], self.limits[3]) if len(self.limits) == 4 else None

    @property
    def recurs(self) -> bool:
        """Whether it takes a recurrence along its axis, which says so: its states are no sums of pieces."""
        return RECURS in self.attributes

    @property
    def is_reverse(self) -> bool:
        """Whether it is fed the last piece first."""
        return REVERSE in self.attributes

    @property
    def steps(self) -> tuple[Region, ...]:
        """`step`, and `border` if there is one."""
        return (self.step,) if self.border is None else (self.step, self.border)

    def finished(self, result: SSAValue) -> SSAValue:
        """The value in `finish` that a result is."""
        terminator = self.finish.block.last_op
        assert terminator is not None
        return next(value for value, own in zip(terminator.operands, self.outputs, strict=True) if own is result)

    def verify_(self) -> None:
        _check_decided(self.partition)
        if len(self.partition.axes) != 1:
            raise VerifyException("a stream is fed along exactly one axis")
        if self.recurs and self.size != 1:
            raise VerifyException(f"a recurrence takes one position after another, not pieces of {self.size}")
        if self.is_reverse and (not self.recurs or self.limits):
            raise VerifyException("a stream of a recurrence alone, all of it, is fed the last piece first")
        if len(self.limits) != (4 if self.border is not None else 2 if self.limits else 0):
            raise VerifyException(
                f"{len(self.limits)} limits: a stream has 2 ('from .. to ..'), 4 with a 'border' "
                "('whole from .. to ..' as well), or none"
            )
        if self.selection is not None and not self.limits:
            raise VerifyException("pieces are fed 'among' others of a range: 'from .. to ..'")
        state = self._yielded(self.initialise, "initialise")
        named = [(self.step, "step"), (self.finish, "finish")]
        if self.border is not None:
            named.append((self.border, "border"))
        for region, name in named:
            given = [arg.type for arg in region.block.args]
            if given != state:
                raise VerifyException(f"'{name}' takes {_types(given)}, the state is {_types(state)}")
        for region, name in zip(self.steps, ("step", "border"), strict=False):
            if (after := self._yielded(region, name)) != state:
                raise VerifyException(f"'{name}' yields {_types(after)}, the state is {_types(state)}")
        results = [output.type for output in self.outputs]
        if (finished := self._yielded(self.finish, "finish")) != results:
            raise VerifyException(f"'finish' yields {_types(finished)}, results are {_types(results)}")

    @staticmethod
    def _yielded(region: Region, name: str) -> list[Attribute]:
        terminator = region.block.last_op
        if not isinstance(terminator, YieldOp):
            raise VerifyException(f"'{name}' ends with hierarchy.yield")
        return [operand.type for operand in terminator.operands]

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        partition = parse_partition(parser)
        limits = [] if parser.parse_optional_keyword("from") is None else _parse_range(parser)
        if parser.parse_optional_keyword("whole") is not None:
            parser.parse_keyword("from")
            limits += _parse_range(parser)
        selection = None
        if parser.parse_optional_keyword("among") is not None:
            selection = parser.resolve_operand(parser.parse_unresolved_operand(), SelectionType())
        types: list[Attribute] = []
        if parser.parse_optional_punctuation("->") is not None:
            types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        attributes = parse_region_attributes(parser)

        def region(keyword: str) -> Region:
            parser.parse_keyword(keyword)
            return body()

        def body() -> Region:
            arguments = parser.parse_optional_comma_separated_list(
                parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=True)
            )
            return parser.parse_region(arguments or ())

        parser.parse_keyword("initialise")
        initialise = parser.parse_region()
        step = region("step")
        border = body() if parser.parse_optional_keyword("border") is not None else None
        op = cls(partition, types, initialise, step, region("finish"), limits, border, selection)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_partition(printer, self.partition)
        for word, limits in ((" from ", self.fed), (" whole from ", self.whole)):
            if limits is not None:
                printer.print_string(word)
                printer.print_operand(limits[0])
                printer.print_string(" to ")
                printer.print_operand(limits[1])
        if self.selection is not None:
            printer.print_string(" among ")
            printer.print_operand(self.selection)
        if self.outputs:
            printer.print_string(" -> (")
            printer.print_list([output.type for output in self.outputs], printer.print_attribute)
            printer.print_string(")")
        if self.attributes:
            printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" initialise ")
        printer.print_region(self.initialise)
        for name, region in (("step", self.step), ("border", self.border), ("finish", self.finish)):
            if region is None:
                continue
            printer.enter_scope()
            printer.print_string(f" {name} ")
            if region.block.args:
                printer.print_string("(")
                printer.print_list(region.block.args, printer.print_block_argument)
                printer.print_string(") ")
            printer.print_region(region, print_entry_block_args=False)
            printer.exit_scope()


def _parse_range(parser: Parser) -> list[SSAValue]:
    """`%low to %high`"""

    def end() -> SSAValue:
        return parser.resolve_operand(parser.parse_unresolved_operand(), IndexType())

    low = end()
    parser.parse_keyword("to")
    return [low, end()]


def _types(types: Sequence[Attribute]) -> str:
    return f"({', '.join(str(type) for type in types)})"


def moved_by_steps(kernel: Operation, arrays: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Of the arrays that a kernel with its streams expanded is given and saves to, those that lanes should find their
    neighbours in: where it is a recurrence, what each position has a part of; else all."""
    along = {op.axis for op in kernel.walk() if isinstance(op, StreamOp) and op.recurs}
    return [value for value in arrays if along & {*axes_of(value.type)}] or arrays


def _check_decided(partition: PartitionAttr) -> None:
    for axis, size in partition.as_dict().items():
        if size == UNDECIDED:
            raise VerifyException(f"the size of the pieces of axis '{axis}' is not decided")

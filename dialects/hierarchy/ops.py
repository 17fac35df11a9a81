"""Operations of the `hierarchy` dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from xdsl.dialects.builtin import IndexType, MemRefType, StringAttr
from xdsl.dialects.utils import AbstractYieldOperation
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedRegionSegments,
    IRDLOperation,
    irdl_op_definition,
    lazy_traits_def,
    operand_def,
    opt_prop_def,
    opt_region_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator, NoTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    axes_of,
    check_array,
    check_axis_name,
    format_of,
    is_array,
    level_of,
    shape_of,
    size_text,
    sizes_of,
)
from treadle.dialects.hierarchy.schedule import (
    UNDECIDED,
    PartitionAttr,
    ScheduleAttr,
    parse_partition,
    print_partition,
)


@irdl_op_definition
class YieldOp(AbstractYieldOperation[Attribute]):
    """The values that a region of a `hierarchy` operation gives back."""

    name = "hierarchy.yield"

    traits = lazy_traits_def(lambda: (IsTerminator(), HasParent(KernelOp, StreamOp)))


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
            if sizes_of(arg.type) != sizes_of(operand.type) or format_of(arg.type) != format_of(operand.type):
                raise VerifyException(f"argument {i} is {arg.type}, operand {i} is {operand.type}")
            if is_array(arg.type) and level_of(arg.type) != "device":
                raise VerifyException(
                    f"argument {i} is at level {level_of(arg.type) or 'undecided'}: a kernel is given device"
                )
        terminator = self.body.block.last_op
        if not isinstance(terminator, YieldOp):
            raise VerifyException("the body of a kernel ends with hierarchy.yield")
        if self.is_expanded:
            self._verify_expanded(terminator)
        else:
            self._verify_functional(terminator)

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
        attributes = parser.parse_optional_attr_dict_with_keyword()
        op = cls(name, inputs, types, parser.parse_region(arguments), schedule)
        if attributes is not None:
            op.attributes |= attributes.data
        return op

    def print(self, printer: Printer) -> None:
        printer.enter_scope()
        args = self.body.block.args

        def entry(pair: tuple[SSAValue, SSAValue]) -> None:
            printer.print_ssa_value(pair[0])
            printer.print_string(" = ")
            printer.print_operand(pair[1])
            printer.print_string(" : ")
            printer.print_attribute(pair[1].type)
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
        if self.attributes:
            printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)
        printer.exit_scope()


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
        attributes = parser.parse_optional_attr_dict_with_keyword()
        op = cls(partition, parser.parse_region())
        if attributes is not None:
            op.attributes |= attributes.data
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_partition(printer, self.partition)
        if self.attributes:
            printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body)


@irdl_op_definition
class StreamOp(IRDLOperation):
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
    """

    name = "hierarchy.stream"

    partition = prop_def(PartitionAttr)
    limits = var_operand_def(IndexType())
    outputs = var_result_def()
    initialise = region_def("single_block")
    step = region_def("single_block")
    border = opt_region_def("single_block")
    finish = region_def("single_block")

    irdl_options = (AttrSizedRegionSegments(as_property=True),)

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
    ):
        if not isinstance(partition, PartitionAttr):
            partition = PartitionAttr(partition)
        super().__init__(
            operands=[limits],
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
    def steps(self) -> tuple[Region, ...]:
        """`step`, and `border` if there is one."""
        return (self.step,) if self.border is None else (self.step, self.border)

    def verify_(self) -> None:
        _check_decided(self.partition)
        if len(self.partition.axes) != 1:
            raise VerifyException("a stream is fed along exactly one axis")
        if len(self.limits) != (4 if self.border is not None else 2 if self.limits else 0):
            raise VerifyException(
                f"{len(self.limits)} limits: a stream has 2 ('from .. to ..'), 4 with a 'border' "
                "('whole from .. to ..' as well), or none"
            )
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
        types: list[Attribute] = []
        if parser.parse_optional_punctuation("->") is not None:
            types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        attributes = parser.parse_optional_attr_dict_with_keyword()

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
        op = cls(partition, types, initialise, step, region("finish"), limits, border)
        if attributes is not None:
            op.attributes |= attributes.data
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


@irdl_op_definition
class LoadOp(IRDLOperation):
    """Bring the piece of an array that the enclosing groups and streams select to a nearer level.

    ```
    %Qt = hierarchy.load %Q : !Q -> tensor<64x64xf16, #diagram.array<[q, d], level = shared>>
    ```
    """

    name = "hierarchy.load"

    source = operand_def()
    result = result_def()

    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue | Operation, result_type: Attribute):
        super().__init__(operands=[source], result_types=[result_type])

    def verify_(self) -> None:
        check_array(self.source.type, "the source")
        check_array(self.result.type, "the piece")
        _check_piece(self, self.result.type, self.source.type, "loaded")


@irdl_op_definition
class SaveOp(IRDLOperation):
    """Write a piece to its place in an array at device level.

    ```
    hierarchy.save %o into %O : !Ot, memref<?x64xf16, #diagram.array<[q, d], level = device>>
    ```
    """

    name = "hierarchy.save"

    value = operand_def()
    destination = operand_def()

    assembly_format = "$value `into` $destination attr-dict `:` type($value) `,` type($destination)"

    def __init__(self, value: SSAValue | Operation, destination: SSAValue):
        super().__init__(operands=[value, destination])

    def verify_(self) -> None:
        check_array(self.value.type, "the piece")
        check_array(self.destination.type, "the destination")
        _check_piece(self, self.value.type, self.destination.type, "saved")


@irdl_op_definition
class PieceOp(IRDLOperation):
    """Where the piece of an axis that the enclosing groups and streams select begins, and where it ends (one past its
    last position); of an axis that none of them cuts, all of it.

    ```
    %q0, %q_end = hierarchy.piece "q" : index, index
    ```
    """

    name = "hierarchy.piece"

    axis = prop_def(StringAttr)
    first = result_def(IndexType())
    end = result_def(IndexType())

    traits = traits_def(Pure())
    assembly_format = "$axis attr-dict `:` type($first) `,` type($end)"

    def __init__(self, axis: str):
        super().__init__(properties={"axis": StringAttr(axis)}, result_types=[IndexType(), IndexType()])


def _parse_range(parser: Parser) -> list[SSAValue]:
    """`%low to %high`"""

    def end() -> SSAValue:
        return parser.resolve_operand(parser.parse_unresolved_operand(), IndexType())

    low = end()
    parser.parse_keyword("to")
    return [low, end()]


def _types(types: Sequence[Attribute]) -> str:
    return f"({', '.join(str(type) for type in types)})"


def _axes_text(arrays: Sequence[Mapping[str, int]]) -> str:
    """`[q = ?, d = 64], [q = ?]`"""
    return ", ".join(
        f"[{', '.join(f'{axis} = {size_text(size)}' for axis, size in array.items())}]" for array in arrays
    )


def _check_decided(partition: PartitionAttr) -> None:
    for axis, size in partition.as_dict().items():
        if size == UNDECIDED:
            raise VerifyException(f"the size of the pieces of axis '{axis}' is not decided")


def partitions_around(op: Operation) -> dict[str, int]:
    """Size of the pieces of every axis that a group or stream around `op` partitions."""
    sizes: dict[str, int] = {}
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, GroupOp | StreamOp):
            sizes = {**parent.partition.as_dict(), **sizes}
        parent = parent.parent_op()
    return sizes


def _check_piece(op: Operation, piece: Attribute, whole: Attribute, verb: str) -> None:
    if axes_of(piece) != axes_of(whole):
        raise VerifyException(f"axes [{', '.join(axes_of(whole))}] are {verb} as [{', '.join(axes_of(piece))}]")
    if format_of(piece) != format_of(whole):
        raise VerifyException(f"{format_of(whole)} is {verb} as {format_of(piece)}: cast it at a near level")
    if level_of(whole) != "device":
        raise VerifyException(f"pieces are {verb} between a nearer level and 'device', not {level_of(whole)}")
    parts = partitions_around(op)
    for axis, size, full in zip(axes_of(piece), shape_of(piece), shape_of(whole), strict=True):
        wanted = parts.get(axis, full)
        if size != wanted:
            raise VerifyException(
                f"axis '{axis}' of the piece has size {size_text(size)}, but its pieces here are {size_text(wanted)}"
            )

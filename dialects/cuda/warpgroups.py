"""Roles of warpgroups, and their products (PTX ISA 9.7.15 and 9.7.19.5)."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import IntAttr, MemRefType, StringAttr, TensorType
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.boxes import BoxesAttr
from treadle.dialects.cuda.layout import LayoutAttr, Mode, accumulator, row_operand
from treadle.dialects.cuda.ops import KernelOp, is_shared, layout_of
from treadle.dialects.diagram.array import encoding_of, format_of, parse_axis_list, print_axis_list, sizes_of

WARPGROUP = 128
"""Threads of a warpgroup."""

ROWS = 64
"""Rows of a product of a warpgroup."""

DEPTH = 16
"""Values of 16 bits that a product sums over."""

MOST_COLUMNS = 256


@irdl_op_definition
class RolesOp(IRDLOperation):
    """The warps of a block part: one thread of the first warpgroup is the producer, which starts copies; `consumers`
    further warpgroups compute. `registers` are those that a thread of each role has after it has given or taken some
    (PTX ISA 9.7.19.5); with 0 and 0 none move. In `consumers`, warps and threads count from the first consumer's.

    ```
    cuda.roles registers 24, 240 producer { ... } consumers 2 { ... }
    ```
    """

    name = "cuda.roles"

    producer_registers = prop_def(IntAttr)
    consumer_registers = prop_def(IntAttr)
    consumer_groups = prop_def(IntAttr)
    producer = region_def("single_block")
    consumers = region_def("single_block")

    traits = traits_def(NoTerminator())

    def __init__(self, registers: tuple[int, int], producer: Region, groups: int, consumers: Region):
        super().__init__(
            properties={
                "producer_registers": IntAttr(registers[0]),
                "consumer_registers": IntAttr(registers[1]),
                "consumer_groups": IntAttr(groups),
            },
            regions=[producer, consumers],
        )

    @property
    def registers(self) -> tuple[int, int]:
        """Registers of a thread of the producer's warpgroup and of a consumer."""
        return self.producer_registers.data, self.consumer_registers.data

    def verify_(self) -> None:
        groups = self.consumer_groups.data
        kernel = self.parent_op()
        if not isinstance(kernel, KernelOp):
            raise VerifyException("roles part the warps of a whole kernel: expected in the body of cuda.kernel")
        if kernel.threads.data != WARPGROUP * (1 + groups):
            raise VerifyException(
                f"a producer and {groups} consumers are {WARPGROUP * (1 + groups)} threads, "
                f"the kernel has {kernel.threads.data}"
            )
        if self.registers == (0, 0):
            return
        cap = register_cap(kernel.threads.data)
        for registers in self.registers:
            if registers % 8 or not 24 <= registers <= 256:
                raise VerifyException(f"{registers} registers a thread: a multiple of 8 from 24 to 256")
        if self.registers[0] > cap or self.registers[1] < cap:
            raise VerifyException(
                f"the producer gives and consumers take registers: of {cap} each, not {self.registers}"
            )
        if self.registers[0] + groups * self.registers[1] > cap * (1 + groups):
            raise VerifyException(
                f"registers {self.registers[0]} + {groups} x {self.registers[1]} are more than the {1 + groups} x "
                f"{cap} that the block begins with: consumers would wait for ever"
            )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.parse_keyword("registers")
        given = parser.parse_integer()
        parser.parse_punctuation(",")
        taken = parser.parse_integer()
        parser.parse_keyword("producer")
        producer = parser.parse_region([])  # with a block, even if it is empty
        parser.parse_keyword("consumers")
        groups = parser.parse_integer()
        op = cls((given, taken), producer, groups, parser.parse_region([]))
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" registers {self.registers[0]}, {self.registers[1]} producer ")
        printer.print_region(self.producer)
        printer.print_string(f" consumers {self.consumer_groups.data} ")
        printer.print_region(self.consumers)
        printer.print_op_attributes(self.attributes)


def register_cap(threads: int) -> int:
    """Registers of a thread of a block that has a multiprocessor to itself, before any move."""
    return min(65536 // threads // 8 * 8, 248)


def roles_of(kernel: KernelOp) -> RolesOp | None:
    """The roles of a kernel, if it has any."""
    return next((op for op in kernel.body.block.ops if isinstance(op, RolesOp)), None)


def working_threads(kernel: KernelOp) -> int:
    """Threads that compute: all, or those of the consumers."""
    roles = roles_of(kernel)
    return kernel.threads.data if roles is None else WARPGROUP * roles.consumer_groups.data


@irdl_op_definition
class WarpgroupProductOp(IRDLOperation):
    """Every consumer warpgroup starts its part of a sum of products over one axis, 64 rows of it, as one group
    (PTX ISA 9.7.15.5), added to the accumulator if there is one. Registers of the result, and of a left operand in
    registers, must not be touched, and stages of operands not released, before a `cuda.warpgroup_wait`.

    ```
    %C_started = cuda.warpgroup_product %A_now, %B_now into %C over [k] : !As, !Bs -> !C
    ```
    """

    name = "cuda.warpgroup_product"

    lhs = operand_def()
    rhs = operand_def(MemRefType)
    accumulator = opt_operand_def(TensorType)
    over = prop_def(StringAttr)
    result = result_def(TensorType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(self, lhs: SSAValue, rhs: SSAValue, accumulator: SSAValue | None, over: str, result: Attribute):
        super().__init__(
            operands=[lhs, rhs, [] if accumulator is None else [accumulator]],
            properties={"over": StringAttr(over)},
            result_types=[result],
        )

    @property
    def axis(self) -> str:
        return self.over.data

    def verify_(self) -> None:
        if (problem := why_no_product(self.lhs.type, self.rhs.type, self.result.type, self.axis)) is not None:
            raise VerifyException(problem)
        if self.accumulator is not None and self.accumulator.type != self.result.type:
            raise VerifyException("the result has the type of the accumulator")
        for operand in (self.lhs, self.rhs):
            if is_shared(operand.type) and not isinstance(encoding_of(operand.type).layout, BoxesAttr):
                raise VerifyException(f"{operand.type} is no operand of a warpgroup: expected #cuda.boxes")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        lhs = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        rhs = parser.parse_unresolved_operand()
        accumulator = parser.parse_unresolved_operand() if parser.parse_optional_keyword("into") else None
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        lhs_type = parser.parse_type()
        parser.parse_punctuation(",")
        rhs_type = parser.parse_type()
        parser.parse_punctuation("->")
        type = parser.parse_type()
        if len(over) != 1:
            parser.raise_error("a product sums over one axis")
        op = cls(
            parser.resolve_operand(lhs, lhs_type),
            parser.resolve_operand(rhs, rhs_type),
            None if accumulator is None else parser.resolve_operand(accumulator, type),
            over[0],
            type,
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list((self.lhs, self.rhs), printer.print_operand)
        if self.accumulator is not None:
            printer.print_string(" into ")
            printer.print_operand(self.accumulator)
        printer.print_string(" over ")
        print_axis_list(printer, (self.axis,))
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list((self.lhs.type, self.rhs.type), printer.print_attribute)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class WarpgroupWaitOp(IRDLOperation):
    """A warpgroup waits until at most `pending` of its newest groups of products are under way; the value, which a
    group that is now finished has made, may be read (PTX ISA 9.7.15.7.3).

    ```
    %S = cuda.warpgroup_wait %S_started pending 1 : !S
    ```
    """

    name = "cuda.warpgroup_wait"

    value = operand_def(TensorType)
    pending = prop_def(IntAttr)
    result = result_def(TensorType)

    def __init__(self, value: SSAValue, pending: int = 0):
        super().__init__(operands=[value], properties={"pending": IntAttr(pending)}, result_types=[value.type])

    def verify_(self) -> None:
        if not 0 <= self.pending.data < 8:
            raise VerifyException(f"{self.pending.data} groups pending: 0 to 7")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = parser.parse_unresolved_operand()
        parser.parse_keyword("pending")
        pending = parser.parse_integer()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        op = cls(parser.resolve_operand(value, parser.parse_type()), pending)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(f" pending {self.pending.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


def result_axes(layout: LayoutAttr) -> tuple[str, str] | None:
    """Rows and columns of fragments that are an accumulator of warpgroups, 64 rows each; None if they are not."""
    modes = tuple(layout.register)
    if len(modes) != 3:
        return None
    columns, rows = modes[0].axis, modes[1].axis
    warps = layout.warps
    if warps % 4 or layout != accumulator(rows, columns, 1, modes[0].size, (warps, 1)):
        return None
    return rows, columns


def why_no_product(lhs: Attribute, rhs: Attribute, result: Attribute, axis: str) -> str | None:
    """Why no product of warpgroups takes operands and a result of these types, whatever the layout of its tiles; None
    if one does."""
    found = result_axes(layout_of(result))
    if found is None:
        return "the result is not spread over warpgroups of 64 rows each, side by side along the rows"
    rows, columns = found
    sizes, warps = sizes_of(result), layout_of(result).warps
    if str(format_of(result)) != "f32" or str(format_of(rhs)) not in ("f16", "bf16"):
        return f"{format_of(rhs)} is multiplied and {format_of(result)} accumulated: expected 16 bits and f32"
    if format_of(lhs) != format_of(rhs):
        return f"operands are {format_of(lhs)} and {format_of(rhs)}"
    if sizes[rows] != 16 * warps or sizes[columns] != layout_of(result).extent(columns):
        return f"a result of {sizes[rows]} x {sizes[columns]} does not fill its fragments"
    if sizes[columns] % 8 or sizes[columns] > MOST_COLUMNS:
        return f"a product has 8 to {MOST_COLUMNS} columns, a multiple of 8, not {sizes[columns]}"
    depth = sizes_of(rhs).get(axis, 0)
    if depth == 0 or depth % DEPTH:
        return f"a product sums over a multiple of {DEPTH} values along '{axis}', not {depth}"
    for type, outer in ((lhs, rows), (rhs, columns)):
        if not is_shared(type):
            continue
        wide = {name: size for name, size in sizes_of(type).items() if size != 1}
        if wide != {outer: sizes[outer], axis: depth}:
            return f"an operand has elements along {wide}: expected {outer} = {sizes[outer]} and {axis} = {depth}"
    if is_shared(lhs):
        return None
    if layout_of(lhs) != row_operand(rows, axis, 1, depth // DEPTH, (Mode(rows, warps, 16),)):
        return "the left operand in registers is spread otherwise than warpgroups take it"
    return None

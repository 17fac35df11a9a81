"""Roles of warpgroups (PTX ISA 9.7.19.5)."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import IntAttr, UnitAttr
from xdsl.ir import Operation, Region
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.kernel import KernelOp
from treadle.dialects.cuda.layout import LANES

WARPGROUP = 128
"""Threads of a warpgroup."""


@irdl_op_definition
class RolesOp(IRDLOperation):
    """The warps of a block part: one thread of the first warpgroup is the producer, which starts copies; `consumers`
    further warpgroups compute. `registers` are those that a thread of each role has after it has given or taken some
    (PTX ISA 9.7.19.5), of those that its block begins with beside the others that a multiprocessor is to hold
    (`resident` of the kernel); with 0 and 0 none move. In `consumers`, warps and threads count from the first
    consumer's.

    With `warps`, so many warps are the producer where its lanes copy elements or vectors themselves; tensor copies
    their first thread starts, and those of runs of rows the lanes of the first warp.

    ```
    cuda.roles registers 24, 240 producer { ... } consumers 2 { ... }
    cuda.roles registers 40, 232 producer warps 4 { ... } consumers 2 { ... }
    ```
    """

    name = "cuda.roles"

    producer_registers = prop_def(IntAttr)
    consumer_registers = prop_def(IntAttr)
    consumer_groups = prop_def(IntAttr)
    producer_warps = opt_prop_def(IntAttr)
    producer = region_def("single_block")
    consumers = region_def("single_block")

    traits = traits_def(NoTerminator())

    def __init__(
        self, registers: tuple[int, int], producer: Region, groups: int, consumers: Region, producer_warps: int = 1
    ):
        super().__init__(
            properties={
                "producer_warps": IntAttr(producer_warps) if producer_warps > 1 else None,
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

    @property
    def copying_warps(self) -> int:
        """Warps whose lanes copy, if lanes do."""
        return 1 if self.producer_warps is None else self.producer_warps.data

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
        if not 1 <= self.copying_warps <= WARPGROUP // LANES:
            most = WARPGROUP // LANES
            raise VerifyException(f"{self.copying_warps} warps of a producer: a warpgroup has 1 to {most}")
        if self.registers == (0, 0):
            return
        blocks = 1 if kernel.resident is None else kernel.resident.data
        cap = register_cap(kernel.threads.data, blocks)
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
        warps = parser.parse_integer() if parser.parse_optional_keyword("warps") is not None else 1
        producer = parser.parse_region([])  # with a block, even if it is empty
        parser.parse_keyword("consumers")
        groups = parser.parse_integer()
        op = cls((given, taken), producer, groups, parser.parse_region([]), warps)
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        warps = f" warps {self.copying_warps}" if self.copying_warps > 1 else ""
        printer.print_string(f" registers {self.registers[0]}, {self.registers[1]} producer{warps} ")
        printer.print_region(self.producer, print_empty_block=False)
        printer.print_string(f" consumers {self.consumer_groups.data} ")
        printer.print_region(self.consumers, print_empty_block=False)
        printer.print_op_attributes(self.attributes)


REGISTER_FILE = 65536
"""Registers of a multiprocessor."""
MOST_REGISTERS = 255
"""Of a thread, whatever its role."""


def register_cap(threads: int, blocks: int = 1) -> int:
    """Registers of a thread where so many blocks share a multiprocessor, before any move."""
    return min(REGISTER_FILE // (threads * blocks) // 8 * 8, 248)


def roles_of(kernel: KernelOp) -> RolesOp | None:
    """The roles of a kernel, if it has any."""
    return next((op for op in kernel.body.block.ops if isinstance(op, RolesOp)), None)


def threads_at(op: Operation, kernel: KernelOp) -> int:
    """Threads that come to an operation of a kernel: all of a block before its roles, and then those of the consumers,
    or of the producer's warps whose lanes copy."""
    roles = roles_of(kernel)
    if roles is not None and roles.producer.block.is_ancestor(op):
        return LANES * roles.copying_warps
    return kernel.threads.data if roles is None or not roles.is_ancestor(op) else working_threads(kernel)


def working_threads(kernel: KernelOp) -> int:
    """Threads that compute: all, or those of the consumers."""
    roles = roles_of(kernel)
    return kernel.threads.data if roles is None else WARPGROUP * roles.consumer_groups.data


def consumers_around(op: Operation) -> int:
    """The consumer warpgroups that an operation is of; 0 where it is of no consumers."""
    block, around = op.parent, op.parent_op()
    while around is not None and not isinstance(around, RolesOp):
        block, around = around.parent, around.parent_op()
    return around.consumer_groups.data if around is not None and block is around.consumers.block else 0


def check_by_groups(op: Operation, by_groups: UnitAttr | None) -> None:
    """That what each warpgroup does for itself is done by several (VerifyException)."""
    if by_groups is not None and consumers_around(op) < 2:
        raise VerifyException(f"'{op.name}' by groups: expected among two or more consumers of cuda.roles")

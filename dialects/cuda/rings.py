"""Rings of barriers in shared memory: how a producer and its consumers hand the stages of a tile to each other
(PTX ISA 9.7.13.15, mbarrier)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.dialects.builtin import DenseArrayBase, IndexType, IntAttr, UnitAttr, i64
from xdsl.ir import Attribute, Block, Operation, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    param_def,
    prop_def,
    result_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.clusters import cluster_around
from treadle.dialects.cuda.kernel import KernelOp
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.roles import WARPGROUP, roles_of
from treadle.dialects.cuda.shared import SharedOp, place_tiles
from treadle.dialects.syntax import parse_attributes, parse_element, print_element, print_types

BARRIER_BYTES = 8

COUNTED = "turns"
"""Attribute of a loop that counts its turns from 0 on by 1. There are fewer than 2^31 of them: each moves a piece of
512 bytes at the least, and no memory is that large; so the counter is printed as an `int`."""

SIDE_BY_SIDE = "side_by_side"
"""Attribute of a loop: the places of states that have two arrays, which turns take alternately, so that one may make
its own while products still read that of the turn before, and nothing is moved."""


def alternating(loop: Operation) -> tuple[int, ...]:
    """The places of a loop's states that have two arrays."""
    places = loop.attributes.get(SIDE_BY_SIDE)
    return tuple(map(int, places.get_values())) if isinstance(places, DenseArrayBase) else ()


def let_alternate(loop: Operation, places: Sequence[int]) -> None:
    """Give these states of a loop two arrays."""
    loop.attributes[SIDE_BY_SIDE] = DenseArrayBase.from_list(i64, places)


@irdl_attr_definition
class RingType(ParametrizedAttribute, TypeAttribute):
    """`!cuda.ring<3>`: for each of so many stages a barrier that says it is full and one that says it is empty."""

    name = "cuda.ring"

    stages: IntAttr = param_def()

    def __init__(self, stages: int):
        super().__init__(IntAttr(stages))

    def verify(self) -> None:
        if self.stages.data < 1:
            raise VerifyException(f"a ring of {self.stages.data} stages: it has 1 or more")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (IntAttr(parser.parse_integer()),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.stages.data))


def stages_of(ring: SSAValue) -> int:
    assert isinstance(ring.type, RingType)
    return ring.type.stages.data


@irdl_op_definition
class RingOp(IRDLOperation):
    """A ring, its barriers at an offset in bytes of shared memory: the full ones, which one arrival and the bytes of
    its copies complete, then the empty ones, which an arrival of each of the `consumers`, warpgroups, completes
    (PTX ISA 9.7.13.15, mbarrier).

    Turn t of the ring is use t / stages of stage t mod stages. The producer acquires a turn, says how many bytes will
    come, and starts the copies; a consumer awaits the turn, reads the stage, and releases it.

    ```
    %A_ring = cuda.ring at 98304 consumers 2 : !cuda.ring<3>
    ```

    `consumers 2 by warps`: the warps of a consumer read the tile into registers, and each gives it back for itself. A
    product of a warpgroup reads for all four, so that one arrival of theirs is enough.

    `consumers 2 filled by lanes`: the lanes of the producer's warps copy elements or vectors, and a full barrier waits
    for an arrival of each, which follows its copies; no bytes are counted.

    With `blocks 2` after the consumers, the blocks of a cluster fill their stages together: the consumers of all of
    them release a stage of each, so that its empty barrier waits for the arrivals of all. With `blocks 2 step 2` in a
    cluster of four, two and two do so: those whose numbers in the cluster differ by 2.
    """

    name = "cuda.ring"

    offset = prop_def(IntAttr)
    consumers = prop_def(IntAttr)
    by_warps = opt_prop_def(UnitAttr)
    by_lanes = opt_prop_def(UnitAttr)
    blocks = opt_prop_def(IntAttr)
    step = opt_prop_def(IntAttr)
    result = result_def(RingType)

    def __init__(
        self,
        offset: int,
        consumers: int,
        stages: int | Attribute,
        blocks: int | None = None,
        by_warps: bool = False,
        step: int | None = None,
        by_lanes: bool = False,
    ):
        type = RingType(stages) if isinstance(stages, int) else stages
        properties = {
            "offset": IntAttr(offset),
            "consumers": IntAttr(consumers),
            "by_warps": UnitAttr() if by_warps else None,
            "by_lanes": UnitAttr() if by_lanes else None,
            "blocks": None if blocks is None else IntAttr(blocks),
            "step": None if step is None else IntAttr(step),
        }
        super().__init__(properties=properties, result_types=[type])

    @property
    def filled_by(self) -> int:
        """Blocks that fill the stages together; 1 where each fills its own."""
        return 1 if self.blocks is None else self.blocks.data

    @property
    def apart(self) -> int:
        """By how much the numbers in the cluster of blocks that fill a stage together differ, from one to the next."""
        return 1 if self.step is None else self.step.data

    @property
    def filling(self) -> int:
        """Arrivals of which a full barrier waits for all."""
        return 1 if self.by_lanes is None else LANES * _copying_warps(self)

    @property
    def needs_fence(self) -> bool:
        """Whether what fills it is written through the generic proxy, and read through the asynchronous one: by lanes,
        and by products of warpgroups."""
        return self.by_lanes is not None and self.by_warps is None

    @property
    def arrivals(self) -> int:
        """Of which an empty barrier waits for all."""
        each = WARPGROUP // LANES if self.by_warps is not None else 1
        return self.consumers.data * each * self.filled_by

    @property
    def bytes(self) -> int:
        return 2 * BARRIER_BYTES * stages_of(self.result)

    def verify_(self) -> None:
        if self.offset.data % BARRIER_BYTES:
            raise VerifyException(
                f"a barrier at byte {self.offset.data}: barriers are aligned to {BARRIER_BYTES} bytes"
            )
        if self.consumers.data < 1:
            raise VerifyException("a ring without consumers is never empty again")
        if self.step is not None and (self.blocks is None or self.step.data < 1):
            raise VerifyException("a step is 1 or more, between the blocks that fill a ring: say `blocks` before it")
        if self.blocks is not None and self.by_lanes is not None:
            raise VerifyException("the lanes of a producer fill the stages of their own block: not those of a cluster")
        if self.blocks is not None and not self._are_of_cluster():
            raise VerifyException(
                f"a ring that {_blocks(self.filled_by, self.step)} fill, in a kernel with clusters of "
                f"{cluster_around(self)}"
            )

    def _are_of_cluster(self) -> bool:
        """Whether the cluster consists of so many, so far from each other."""
        return self.filled_by > 1 and cluster_around(self) % (self.filled_by * self.apart) == 0

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.parse_keyword("at")
        offset = parser.parse_integer()
        parser.parse_keyword("consumers")
        consumers = parser.parse_integer()
        by_warps = parser.parse_optional_keyword("by") is not None
        if by_warps:
            parser.parse_keyword("warps")
        by_lanes = parser.parse_optional_keyword("filled") is not None
        if by_lanes:
            parser.parse_keyword("by")
            parser.parse_keyword("lanes")
        blocks = parser.parse_integer() if parser.parse_optional_keyword("blocks") else None
        step = parser.parse_integer() if parser.parse_optional_keyword("step") else None
        attributes = parse_attributes(parser)
        op = cls(offset, consumers, parser.parse_type(), blocks, by_warps, step, by_lanes)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        warps = "" if self.by_warps is None else " by warps"
        lanes = "" if self.by_lanes is None else " filled by lanes"
        blocks = "" if self.blocks is None else f" blocks {self.blocks.data}"
        step = "" if self.step is None else f" step {self.step.data}"
        printer.print_string(f" at {self.offset.data} consumers {self.consumers.data}{warps}{lanes}{blocks}{step}")
        print_types(printer, self, (self.result.type,))


def _copying_warps(op: IRDLOperation) -> int:
    """Of the producer of the kernel around."""
    kernel = op.parent_op()
    roles = roles_of(kernel) if isinstance(kernel, KernelOp) else None
    return 1 if roles is None else roles.copying_warps


def _blocks(count: int, step: IntAttr | None) -> str:
    return f"{count} blocks" if step is None else f"{count} blocks {step.data} apart"


def place_shared(block: Block) -> int:
    """Give the tiles of a kernel with roles their offsets, and its rings behind them; gives the bytes that all take."""
    end = place_tiles(op for op in block.ops if isinstance(op, SharedOp))
    for op in block.ops:
        if isinstance(op, RingOp):
            op.offset = IntAttr(end)
            end += op.bytes
    return end


@irdl_op_definition
class ReadyOp(IRDLOperation):
    """One thread initialises the barriers of rings, fences, and all threads of the block, or of its cluster, meet;
    before any other use of the rings (PTX ISA 9.7.13.15.9, 9.7.13.4 and 9.7.13.3)."""

    name = "cuda.ready"

    rings = var_operand_def(RingType)

    assembly_format = "$rings attr-dict `:` type($rings)"

    def __init__(self, rings: Sequence[SSAValue]):
        super().__init__(operands=[rings])


class _OnRing(IRDLOperation):
    """What is done to one turn of a ring."""

    ring = operand_def(RingType)
    turn = operand_def(IndexType())

    def __init__(self, ring: SSAValue, turn: SSAValue):
        super().__init__(operands=[ring, turn])

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        ring, turn = parse_element(parser)
        attributes = parse_attributes(parser)
        op = cls(parser.resolve_operand(ring, parser.parse_type()), parser.resolve_operand(turn, IndexType()))
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_element(printer, self.ring, self.turn)
        print_types(printer, self, (self.ring.type,))


@irdl_op_definition
class AcquireOp(_OnRing):
    """The producer waits until all consumers have released the stage's turn before this one; the first turn of a stage
    is free (PTX ISA 9.7.13.15.16)."""

    name = "cuda.acquire"


@irdl_op_definition
class AcquireBesideOp(IRDLOperation):
    """The producer waits for the stage of a turn until it could acquire a turn of another ring: whatever consumers read
    of the stage, they have read when they release what that ring had in the place before. They release the stage by no
    operation of its own (PTX ISA 9.7.13.15.16).

    ```
    cuda.acquire_beside %Q_ring[%turn], %K_ring[%turn_2] : !cuda.ring<1>, !cuda.ring<2>
    ```
    """

    name = "cuda.acquire_beside"

    ring = operand_def(RingType)
    turn = operand_def(IndexType())
    beside = operand_def(RingType)
    turn_beside = operand_def(IndexType())

    def __init__(self, ring: SSAValue, turn: SSAValue, beside: SSAValue, turn_beside: SSAValue):
        super().__init__(operands=[ring, turn, beside, turn_beside])

    def verify_(self) -> None:
        if self.ring is self.beside:
            raise VerifyException("a turn is acquired beside one of another ring")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        ring, turn = parse_element(parser)
        parser.parse_punctuation(",")
        beside, turn_beside = parse_element(parser)
        attributes = parse_attributes(parser)
        own = parser.parse_type()
        parser.parse_punctuation(",")
        op = cls(
            parser.resolve_operand(ring, own),
            parser.resolve_operand(turn, IndexType()),
            parser.resolve_operand(beside, parser.parse_type()),
            parser.resolve_operand(turn_beside, IndexType()),
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_element(printer, self.ring, self.turn)
        printer.print_string(", ")
        print_element(printer, self.beside, self.turn_beside)
        print_types(printer, self, (self.ring.type, self.beside.type))


@irdl_op_definition
class AwaitOp(_OnRing):
    """A consumer waits until the bytes of this turn have come (PTX ISA 9.7.13.15.16).

    `fenced`: what lanes have copied, which is written through the generic proxy, its products may then read, which do
    so through the asynchronous one (8.6.1 and 9.7.13.4, fence.proxy.async). The thread that has waited knows the writes
    of all lanes, whose copies arrive by themselves, so it is the one that fences. Tensor copies need no fence.

    ```
    cuda.await %A_ring[%turn] : !cuda.ring<3>
    cuda.await %B_ring[%turn] fenced : !cuda.ring<3>
    ```
    """

    name = "cuda.await"

    fenced = opt_prop_def(UnitAttr)

    def __init__(self, ring: SSAValue, turn: SSAValue, fenced: bool = False):
        super().__init__(ring, turn)
        self.fenced = UnitAttr() if fenced else None

    def verify_(self) -> None:
        ring = self.ring.owner
        if isinstance(ring, RingOp) and ring.needs_fence is not (self.fenced is not None):
            what = "what lanes copy is" if ring.needs_fence else "only what lanes copy is"
            raise VerifyException(f"{what} fenced before products of warpgroups read it")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        ring, turn = parse_element(parser)
        fenced = parser.parse_optional_keyword("fenced") is not None
        attributes = parse_attributes(parser)
        ring = parser.resolve_operand(ring, parser.parse_type())
        op = cls(ring, parser.resolve_operand(turn, IndexType()), fenced)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_element(printer, self.ring, self.turn)
        if self.fenced is not None:
            printer.print_string(" fenced")
        print_types(printer, self, (self.ring.type,))


@irdl_op_definition
class ReleaseOp(_OnRing):
    """A warpgroup, or each of its warps, has read the stage and gives it back: one arrival, at the barrier of each
    block that fills it (PTX ISA 9.7.13.15.13; for another block's, 9.7.9.24, `mapa`)."""

    name = "cuda.release"


@irdl_op_definition
class ArriveOp(_OnRing):
    """Each lane of the producer's warps arrives once the elements have come that it has started to copy so far
    (PTX ISA 9.7.13.15.14, cp.async.mbarrier.arrive.noinc), those that stand right before; of a ring that is filled by
    lanes. Where rows are aligned to less than a copy moves, lanes have stored them, and just arrive (9.7.13.15.13)."""

    name = "cuda.arrive"

    def verify_(self) -> None:
        if isinstance(ring := self.ring.owner, RingOp) and ring.by_lanes is None:
            raise VerifyException("lanes arrive at a ring that is not filled by lanes")


@irdl_op_definition
class ExpectOp(IRDLOperation):
    """The producer says how many bytes the copies of this turn bring: one arrival (PTX ISA 9.7.13.15.13).

    ```
    cuda.expect %A_ring[%turn] bytes 16384 : !cuda.ring<3>
    ```
    """

    name = "cuda.expect"

    ring = operand_def(RingType)
    turn = operand_def(IndexType())
    bytes = prop_def(IntAttr)

    def __init__(self, ring: SSAValue, turn: SSAValue, bytes: int):
        super().__init__(operands=[ring, turn], properties={"bytes": IntAttr(bytes)})

    def verify_(self) -> None:
        if not 0 < self.bytes.data < 1 << 20:
            raise VerifyException(f"a barrier expects 1 to 2^20 - 1 bytes, not {self.bytes.data}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        ring, turn = parse_element(parser)
        parser.parse_keyword("bytes")
        bytes = parser.parse_integer()
        attributes = parse_attributes(parser)
        op = cls(parser.resolve_operand(ring, parser.parse_type()), parser.resolve_operand(turn, IndexType()), bytes)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_element(printer, self.ring, self.turn)
        printer.print_string(f" bytes {self.bytes.data}")
        print_types(printer, self, (self.ring.type,))

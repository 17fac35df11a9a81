"""Attributes that decorate an algorithm with a schedule, and record how it was derived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import check_axis_name, format_of
from treadle.dialects.diagram.contract import ContractOp
from treadle.dialects.diagram.formats import EIGHT_BIT

UNDECIDED = -1
"""A partition size that no pass has chosen yet (`?`)."""


@irdl_attr_definition
class PartitionAttr(ParametrizedAttribute):
    """`#hierarchy.partition<[q = 64, x = ?]>`: pieces into which axes are cut; `?` is not chosen yet."""

    name = "hierarchy.partition"

    axes: ArrayAttr[StringAttr] = param_def()
    sizes: ArrayAttr[IntAttr] = param_def()

    def __init__(self, sizes: Mapping[str, int]):
        super().__init__(
            ArrayAttr(StringAttr(axis) for axis in sizes),
            ArrayAttr(IntAttr(size) for size in sizes.values()),
        )

    def as_dict(self) -> dict[str, int]:
        return {axis.data: size.data for axis, size in zip(self.axes, self.sizes, strict=True)}

    def verify(self) -> None:
        names = [axis.data for axis in self.axes]
        for name, size in zip(names, self.sizes, strict=True):
            check_axis_name(name)
            if names.count(name) > 1:
                raise VerifyException(f"axis '{name}' is partitioned twice")
            if size.data != UNDECIDED and size.data < 1:
                raise VerifyException(f"axis '{name}' is cut into pieces of {size.data}: use 1 or more")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            partition = parse_partition(parser)
        return (partition.axes, partition.sizes)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            print_partition(printer, self)


@lru_cache(maxsize=1024)
def _partition(sizes: tuple[tuple[str, int], ...]) -> PartitionAttr:
    """Attributes do not change, so that equal ones may be one; a schedule has seven partitions, most of them empty."""
    return PartitionAttr(dict(sizes))


def parse_partition(parser: AttrParser) -> PartitionAttr:
    """`[q = 64, x = ?]`"""

    def entry() -> tuple[str, int]:
        axis = parser.parse_identifier(" for an axis")
        parser.parse_punctuation("=")
        if parser.parse_optional_punctuation("?") is not None:
            return axis, UNDECIDED
        return axis, parser.parse_integer(allow_boolean=False)

    position = parser.pos
    entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, entry)
    if len(dict(entries)) != len(entries):
        parser.raise_error("an axis is partitioned twice", position)
    return PartitionAttr(dict(entries))


def print_partition(printer: Printer, partition: PartitionAttr) -> None:
    entries = (f"{axis} = {'?' if size == UNDECIDED else size}" for axis, size in partition.as_dict().items())
    printer.print_string(f"[{', '.join(entries)}]")


LEFT = ("", "registers", "shared")
"""Where left operands that all steps of a stream share are."""


@irdl_attr_definition
class ScheduleAttr(ParametrizedAttribute):
    """How one kernel treats each of its axes: cut into independent groups, streamed in pieces, or held
    whole by every group; and how many warps of a group lie along which axis.

    `#hierarchy.schedule<group = [q = 64], stream = [x = 64], whole = [d = 64], warps = [q = 4]>`

    `warps = [h = 4, c = 2]`, with `c` held whole, puts warps across those of the rows: products that have columns along
    `c` share them, and what lacks it all of these warps make.

    `whole` gives the size of the tile that holds the axis. `left = shared` says that left operands which all steps of
    a stream share stay in shared memory, and are read from there in every step; `left = registers`, that each thread
    reads its part once and keeps it. Where neither is said, they are kept if they take few registers.

    `subloop = [d = 16]` says that contractions over `d` walk what a group holds of it in pieces of 16, by a loop, so
    that registers hold no more of the operands at once. Where nothing is said, it is walked as one piece.

    `cluster = [x = 16384]` says that the blocks of a cluster share a group: of `x`, which the group holds whole, each
    block holds a piece of 16384. The cluster has as many blocks as there are pieces.

    `promote = [k = 128]` says that a unit which keeps fewer digits of a sum than the accumulator's format has (tensor
    cores, of 8-bit products) adds up at most 128 products along the streamed axis `k`. The partial sum is then
    promoted: added to an accumulator in registers.

    `turns = 3` says that three blocks of each processor take the pieces of the grid one after another, so that one
    begins while another ends; `turns = 0`, that each piece has a block of its own. Where nothing is said, passes
    decide."""

    name = "hierarchy.schedule"

    group: PartitionAttr = param_def()
    stream: PartitionAttr = param_def()
    whole: PartitionAttr = param_def()
    warps: PartitionAttr = param_def()
    left: StringAttr = param_def()
    subloop: PartitionAttr = param_def()
    cluster: PartitionAttr = param_def()
    promote: PartitionAttr = param_def()
    turns: IntAttr = param_def()

    def __init__(
        self,
        group: Mapping[str, int],
        stream: Mapping[str, int],
        whole: Mapping[str, int],
        warps: Mapping[str, int] | None = None,
        left: str = "",
        subloop: Mapping[str, int] | None = None,
        cluster: Mapping[str, int] | None = None,
        promote: Mapping[str, int] | None = None,
        turns: int = UNDECIDED,
    ):
        parts = (_partition(tuple(part.items())) for part in (group, stream, whole, warps or {}))
        others = (_partition(tuple((part or {}).items())) for part in (subloop, cluster, promote))
        super().__init__(*parts, StringAttr(left), *others, IntAttr(turns))

    def but(
        self,
        group: Mapping[str, int] | None = None,
        stream: Mapping[str, int] | None = None,
        whole: Mapping[str, int] | None = None,
        subloop: Mapping[str, int] | None = None,
        promote: Mapping[str, int] | None = None,
        warps: Mapping[str, int] | None = None,
        left: str | None = None,
        cluster: Mapping[str, int] | None = None,
        turns: int | None = None,
    ) -> ScheduleAttr:
        """This schedule with what is given in place of its own."""
        return ScheduleAttr(
            self.group.as_dict() if group is None else group,
            self.stream.as_dict() if stream is None else stream,
            self.whole.as_dict() if whole is None else whole,
            self.warps.as_dict() if warps is None else warps,
            self.left.data if left is None else left,
            self.subloop.as_dict() if subloop is None else subloop,
            self.cluster.as_dict() if cluster is None else cluster,
            self.promote.as_dict() if promote is None else promote,
            self.turns.data if turns is None else turns,
        )

    def tile_sizes(self) -> dict[str, int]:
        """Size of the piece of each axis that one group holds at one moment."""
        return {**self.group.as_dict(), **self.stream.as_dict(), **self.whole.as_dict()}

    @property
    def blocks(self) -> int:
        """How many blocks share a group."""
        whole = self.whole.as_dict()
        return prod(-(-whole[axis] // piece) for axis, piece in self.cluster.as_dict().items())

    @property
    def resident(self) -> int:
        """How many blocks of a processor take turns; 1 where nothing else is said."""
        return max(1, self.turns.data)

    @property
    def is_decided(self) -> bool:
        parts = (self.group, self.stream, self.whole, self.warps)
        return all(size != UNDECIDED for part in parts for size in part.as_dict().values())

    def verify(self) -> None:
        roles: dict[str, str] = {}
        for role, part in (("group", self.group), ("stream", self.stream), ("whole", self.whole)):
            for axis in part.as_dict():
                if axis in roles:
                    raise VerifyException(f"axis '{axis}' is both in '{roles[axis]}' and in '{role}'")
                roles[axis] = role
        if self.left.data not in LEFT:
            raise VerifyException(f"'left' is '{self.left.data}': expected {LEFT[1]} or {LEFT[2]}")
        for axis in self.warps.as_dict():
            if axis not in roles:
                raise VerifyException(f"warps lie along axis '{axis}', which the schedule does not have")
        for axis, size in self.subloop.as_dict().items():
            _check_subloop(axis, size, roles.get(axis), self.tile_sizes().get(axis, UNDECIDED))
        if len(self.cluster.axes) > 1:
            names = " and ".join(f"'{axis}'" for axis in self.cluster.as_dict())
            raise VerifyException(f"blocks of a cluster share the axes {names}: they share one")
        for axis, size in self.cluster.as_dict().items():
            _check_shared(axis, size, roles.get(axis), self.tile_sizes().get(axis, UNDECIDED))
        for axis, size in self.promote.as_dict().items():
            _check_promoted(axis, size, roles.get(axis))
        if self.turns.data < UNDECIDED:
            raise VerifyException(f"{self.turns.data} blocks of a processor take turns: use 0 or more")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        parts: dict[str, PartitionAttr] = {}
        keys = ("group", "stream", "whole", "warps", "subloop", "cluster", "promote")
        left, turns = [""], [UNDECIDED]

        def entry() -> None:
            key = parser.parse_keyword_in((*keys, "left", "turns"), " in hierarchy.schedule")
            parser.parse_punctuation("=")
            if key == "left":
                left.append(parser.parse_keyword_in(LEFT[1:], " as 'left' of hierarchy.schedule"))
            elif key == "turns":
                turns.append(parser.parse_integer(allow_boolean=False, allow_negative=False))
            else:
                parts[key] = parse_partition(parser)

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, entry)
        *cut, subloop, cluster, promote = (parts.get(key, PartitionAttr({})) for key in keys)
        return (*cut, StringAttr(left[-1]), subloop, cluster, promote, IntAttr(turns[-1]))

    def print_parameters(self, printer: Printer) -> None:
        parts = (("group", self.group), ("stream", self.stream), ("whole", self.whole), ("warps", self.warps))

        def entry(part: tuple[str, PartitionAttr | str]) -> None:
            printer.print_string(f"{part[0]} = ")
            if isinstance(part[1], PartitionAttr):
                print_partition(printer, part[1])
            else:
                printer.print_string(part[1])

        further = (("subloop", self.subloop), ("cluster", self.cluster), ("promote", self.promote))
        stated = [part for part in (*parts, *further) if part[1].as_dict()]
        left = [("left", self.left.data)] if self.left.data else []
        turns = [] if self.turns.data == UNDECIDED else [("turns", str(self.turns.data))]
        with printer.in_angle_brackets():
            printer.print_list([*stated, *left, *turns], entry)


def promoted_every(schedule: ScheduleAttr | None, op: ContractOp) -> int:
    """How many products of a contraction are added up before their sum is promoted; 0 where it is not. Of 16 bits no
    unit loses any digits."""
    promoted = {} if schedule is None else schedule.promote.as_dict()
    if str(format_of(op.lhs.type)) not in EIGHT_BIT:
        return 0
    return next((promoted[axis] for axis in op.over_axes if axis in promoted), 0)


def _check_subloop(axis: str, size: int, role: str | None, whole: int) -> None:
    if role not in ("stream", "whole"):
        where = f"is in '{role}'" if role else "is none of the schedule's"
        raise VerifyException(f"a subloop walks axis '{axis}', which {where}: it may be one of 'stream' or 'whole'")
    if size == UNDECIDED:
        raise VerifyException(f"the size of the subloop along '{axis}' is not decided")
    if whole != UNDECIDED and (size >= whole or whole % size):
        raise VerifyException(f"a subloop of {size} does not cut the {whole} that a group holds of '{axis}' evenly")


def _check_shared(axis: str, size: int, role: str | None, whole: int) -> None:
    if role != "whole":
        where = f"is in '{role}'" if role else "is none of the schedule's"
        raise VerifyException(f"blocks of a cluster share axis '{axis}', which {where}: it may be one of 'whole'")
    if size == UNDECIDED:
        raise VerifyException(f"what each block of a cluster holds of '{axis}' is not decided")
    if size >= whole:
        raise VerifyException(f"a piece of {size} leaves nothing of the {whole} of '{axis}' to a second block")


def _check_promoted(axis: str, size: int, role: str | None) -> None:
    if role != "stream":
        where = f"is in '{role}'" if role else "is none of the schedule's"
        raise VerifyException(f"sums are promoted along axis '{axis}', which {where}: it may be the one of 'stream'")
    if size == UNDECIDED:
        raise VerifyException(f"how many products along '{axis}' are added up before a sum is promoted is not decided")


@irdl_attr_definition
class StepAttr(ParametrizedAttribute):
    """`#hierarchy.step<"streaming", "x of @attention", "cascade", "why">`: one rewrite of a derivation:
    the pass, what it rewrote, the law or theorem that allowed it, and the reason in words."""

    name = "hierarchy.step"

    rewrite: StringAttr = param_def()
    subject: StringAttr = param_def()
    law: StringAttr = param_def()
    reason: StringAttr = param_def()

    def __init__(self, rewrite: str, subject: str, law: str, reason: str = ""):
        super().__init__(StringAttr(rewrite), StringAttr(subject), StringAttr(law), StringAttr(reason))

    def texts(self) -> tuple[str, str, str, str]:
        return self.rewrite.data, self.subject.data, self.law.data, self.reason.data


DERIVATION = "derivation"
"""Name of the attribute of a function that holds its derivation."""


def derivation_of(attributes: Mapping[str, Attribute]) -> tuple[StepAttr, ...]:
    steps = attributes.get(DERIVATION)
    if not isinstance(steps, ArrayAttr):
        return ()
    return tuple(step for step in cast(ArrayAttr[Attribute], steps) if isinstance(step, StepAttr))


def record(attributes: dict[str, Attribute], steps: Iterable[StepAttr]) -> None:
    """Append steps to the derivation of a function, given its attributes."""
    new = tuple(steps)
    if new:
        attributes[DERIVATION] = ArrayAttr((*derivation_of(attributes), *new))

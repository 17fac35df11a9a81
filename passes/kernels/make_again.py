"""What kernels make again instead of reading it: elements that are computed from others that they read anyway.

Where a cut leaves several arrays of one size between two kernels, such as scores and their powers, all but one of them
can often be made again, element by element. What a map gives is the same wherever it is asked, and computing takes less
than saving and reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import DYNAMIC, format_of, sizes_of
from treadle.dialects.diagram.formats import number_format
from treadle.passes._functions import erase_dead, fresh_hint, label, note
from treadle.passes._parts import is_free, part_of
from treadle.passes.kernels.by_time import is_faster

PASS = "fusion"
LAW = "recomputation"

Cluster = frozenset[Operation]
WhyNot = Callable[[Cluster, Cluster], str | None]
"""Why operations of a cluster cannot be one kernel once some are added or gone; given before and after."""


Clocked = Callable[[Sequence[Cluster]], Sequence[float]]
"""How long kernels take at the stated sizes, and where axes known only at launch are long; nothing if that is not
known."""


def make_again(
    function: func.FuncOp,
    block: Block,
    clusters: Iterable[Cluster],
    sizes: Mapping[str, int],
    why_not: WhyNot,
    times: Clocked | None = None,
) -> list[Cluster]:
    """The same clusters, which make again what they read of each other wherever that moves fewer bytes.

    What contractions multiply stays saved, for they read it by copies, unless it has absent elements, or the cost model
    finds that faster."""
    return _Making(function, block, list(clusters), sizes, why_not, times).run()


class _Making:
    def __init__(
        self,
        function: func.FuncOp,
        block: Block,
        clusters: list[Cluster],
        sizes: Mapping[str, int],
        why_not: WhyNot,
        times: Clocked | None,
    ):
        self.function = function
        self.block = block
        self.clusters = clusters
        self.sizes = sizes
        self.why_not = why_not
        self.times: Clocked = times or _unknown

    def run(self) -> list[Cluster]:
        for value in self._crossing():
            self._consider(value)
        erase_dead(self.block)
        return [cluster for cluster in map(self._alive, self.clusters) if cluster]

    def _alive(self, cluster: Cluster) -> Cluster:
        return frozenset(op for op in cluster if op.parent is self.block)

    def _crossing(self) -> list[SSAValue]:
        """What one cluster makes element by element and another one reads, the last first."""
        leaving = [value for cluster in self.clusters for value in part_of(cluster).leaving]
        made = [value for value in leaving if isinstance(value.owner, MapOp | CastOp | WhereOp)]
        return sorted(made, key=self._position, reverse=True)

    def _position(self, value: SSAValue) -> int:
        assert isinstance(value.owner, Operation)
        return self.block.get_operation_index(value.owner)

    def _consider(self, value: SSAValue) -> None:
        maker = next(i for i, cluster in enumerate(self.clusters) if value.owner in cluster)
        users = {op for use in value.uses if (op := use.operation) not in self.clusters[maker]}
        readers = {i: ops for i, cluster in enumerate(self.clusters) if (ops := users & cluster)}
        cone = self._cone(value, maker)
        is_factor = not absences(value) and _are_factors(users)
        if users != {op for ops in readers.values() for op in ops} or (is_factor and cone >= self.clusters[maker]):
            return
        given = dict.fromkeys(operand for op in cone for operand in op.operands if operand.owner not in cone)
        if self._bytes_again(given, maker, readers) >= (1 + len(readers)) * self._bytes(value):
            return
        touched = (maker, *readers)
        times = self.times([self.clusters[i] for i in touched]) if is_factor else ()
        if times or not is_factor:
            self._make(value, cone, maker, readers, times)

    def _cone(self, value: SSAValue, maker: int) -> set[Operation]:
        """The operations that make an array element by element of what leaves the cluster anyway, is given to it, or is
        made otherwise."""
        cluster = self.clusters[maker]
        leaving = {*part_of(cluster).leaving} - {value}
        cone: set[Operation] = set()
        left = [value]
        while left:
            each = left.pop()
            owner = each.owner
            if isinstance(owner, MapOp | CastOp | WhereOp) and owner in cluster and each not in leaving:
                cone.add(owner)
                left += [operand for operand in owner.operands if operand.owner not in cone]
        return cone

    def _bytes_again(self, given: Iterable[SSAValue], maker: int, readers: Mapping[int, set[Operation]]) -> int:
        """What is saved for the readers that was not, and what they read that they did not."""
        leaving = part_of(self.clusters[maker]).leaving
        total = 0
        for each in given:
            if isinstance(each.owner, Operation) and is_free(each.owner):
                continue
            is_saved = each.owner not in self.clusters[maker] or each in leaving
            reading = sum(each not in part_of(self.clusters[i]).read for i in readers)
            total += ((not is_saved) + reading) * self._bytes(each)
        return total

    def _bytes(self, value: SSAValue) -> int:
        likely = (
            max(1, self.sizes.get(axis, UNKNOWN_SIZE) if size == DYNAMIC else size)
            for axis, size in sizes_of(value.type).items()
        )
        return prod(likely) * number_format(format_of(value.type)).bytes

    def _make(
        self,
        value: SSAValue,
        cone: set[Operation],
        maker: int,
        readers: Mapping[int, set[Operation]],
        times: Sequence[float],
    ) -> None:
        """Let each reader use copies of its own, unless a kernel could not be made of it then, or the kernels would not
        take less time than they did, as far as that is given."""
        before = [(use.operation, use.index) for use in value.uses]
        changed = list(self.clusters)
        copied: list[Operation] = []
        for i, users in readers.items():
            copies = self._copies(cone, min(users, key=self.block.get_operation_index))
            copied += copies
            changed[i] |= {*copies}
            for user in users:
                user.operands = [copies[-1].results[0] if each is value else each for each in user.operands]
        changed[maker] = frozenset(op for op in changed[maker] if op.results[0].uses)
        touched = [i for i in (maker, *readers) if changed[i]]  # nothing is left of one whose readers make all of it
        if any(self.why_not(self.clusters[i], changed[i]) is not None for i in touched) or not is_faster(
            self.times([changed[i] for i in touched]) if times else (), times
        ):
            for user, index in before:
                user.operands[index] = value
            for op in reversed(copied):
                op.detach()
                op.erase()
            return
        self.clusters = changed
        names = ", ".join(label(op.results[0]) for op in copied)
        note(self.function, PASS, f"{names}: {label(value)} again", LAW, "moves fewer bytes than saving and reading it")

    def _copies(self, cone: set[Operation], before: Operation) -> list[Operation]:
        values: dict[SSAValue, SSAValue] = {}
        made: list[Operation] = []
        for op in sorted(cone, key=self.block.get_operation_index):
            copy = op.clone(values)
            values[op.results[0]] = copy.results[0]
            copy.results[0].name_hint = fresh_hint(op.results[0], op.results[0].name_hint)
            copy.location = before.location
            self.block.insert_op_before(copy, before)
            made.append(copy)
        return made


def _unknown(clusters: Sequence[Cluster]) -> Sequence[float]:
    return ()


def _are_factors(users: Iterable[Operation]) -> bool:
    return any(isinstance(op, ContractOp) for op in users)

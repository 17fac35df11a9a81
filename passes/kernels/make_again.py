"""What kernels make again instead of reading it: elements that are computed from others that they read anyway.

Where a cut leaves several arrays of one size between two kernels, such as scores and their powers, all but one of them
can often be made again, element by element. What a map gives is the same wherever it is asked, and computing takes less
than saving and reading. A product takes more, and is made again where the cost model finds that faster
(`kernels.by_time`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from types import UnionType

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import DYNAMIC, format_of, sizes_of
from treadle.dialects.diagram.formats import number_format
from treadle.passes._functions import erase_dead, fresh_hint, label, note
from treadle.passes._parts import is_free, part_of
from treadle.passes.expressions.steady import is_steady
from treadle.passes.kernels.by_time import Clock, Times

PASS = "fusion"
LAW = "recomputation"

Cluster = frozenset[Operation]
Elementwise = MapOp | CastOp | WhereOp
WhyNot = Callable[[Cluster, Cluster], str | None]
"""Why operations of a cluster cannot be one kernel once some are added or gone; given before and after."""


def make_again(
    function: func.FuncOp,
    block: Block,
    clusters: Iterable[Cluster],
    sizes: Mapping[str, int],
    why_not: WhyNot,
    clock: Clock | None = None,
) -> list[Cluster]:
    """The same clusters, which make again what they read of each other wherever that moves fewer bytes; what takes a
    product only if that takes less time by the `clock`.

    What contractions multiply stays saved, for they read it by copies, unless it has absent elements."""
    return _Making(function, block, list(clusters), sizes, why_not, clock).run()


class _Making:
    def __init__(
        self,
        function: func.FuncOp,
        block: Block,
        clusters: list[Cluster],
        sizes: Mapping[str, int],
        why_not: WhyNot,
        clock: Clock | None,
    ):
        self.function = function
        self.block = block
        self.clusters = clusters
        self.sizes = sizes
        self.why_not = why_not
        self.clock = clock

    def run(self) -> list[Cluster]:
        for value in self._crossing(Elementwise):
            self._consider(value)
        self._erase_dead()
        if self.clock is not None:
            for value in self._crossing(Elementwise | ContractOp):
                self._consider_product(value, self.clock)
            self._erase_dead()
        return self.clusters

    def _erase_dead(self) -> None:
        erase_dead(self.block)
        self.clusters = [cluster for cluster in map(self._alive, self.clusters) if cluster]

    def _alive(self, cluster: Cluster) -> Cluster:
        return frozenset(op for op in cluster if op.parent is self.block)

    def _crossing(self, kinds: type | UnionType) -> list[SSAValue]:
        """What one cluster makes by such an operation and another one reads, the last first."""
        leaving = [value for cluster in self.clusters for value in part_of(cluster).leaving]
        made = [value for value in leaving if isinstance(value.owner, kinds)]
        return sorted(made, key=self._position, reverse=True)

    def _position(self, value: SSAValue) -> int:
        assert isinstance(value.owner, Operation)
        return self.block.get_operation_index(value.owner)

    def _consider(self, value: SSAValue) -> None:
        maker, readers = self._maker(value), self._readers(value)
        if not readers or (not absences(value) and _are_factors(readers)):
            return
        cone = self._cone(value, maker, Elementwise)
        given = dict.fromkeys(operand for op in cone for operand in op.operands if operand.owner not in cone)
        if self._bytes_again(given, maker, readers) >= (1 + len(readers)) * self._bytes(value):
            return
        if (copied := self._made(value, cone, maker, readers, None)) is not None:
            self._note(value, copied, "moves fewer bytes than saving and reading it")

    def _consider_product(self, value: SSAValue, clock: Clock) -> None:
        """Tried where reading alone takes longer than multiplying."""
        if value.owner not in {op for cluster in self.clusters for op in cluster}:
            return  # nobody reads it any more
        maker, readers = self._maker(value), self._readers(value)
        cone = self._cone(value, maker, Elementwise | ContractOp)
        products = [op for op in cone if isinstance(op, ContractOp)]
        if not readers or not products or _are_factors(readers):
            return
        if not all(is_steady([op.result for op in products], cone | self.clusters[i]) for i in readers):
            return
        parts = [self.clusters[i] for i in (maker, *readers)]
        found = clock.sized(frozenset[Operation]().union(*parts))
        if found is None or found.moving_time(found.bytes(value)) <= found.multiplying_time(products):
            return
        saved = clock.times(found, parts)

        again = list[Times]()

        def is_slower(changed: Sequence[Cluster]) -> bool:
            again.append(clock.times(found, changed))
            return not again[-1].are_worth(saved)

        if (copied := self._made(value, cone, maker, readers, is_slower)) is not None:
            both = f"estimated {again[-1].stated:.3g} us, {saved.stated:.3g} us if it is saved and read"
            self._note(value, copied, f"{both}{found.at}")

    def _maker(self, value: SSAValue) -> int:
        return next(i for i, cluster in enumerate(self.clusters) if value.owner in cluster)

    def _readers(self, value: SSAValue) -> dict[int, set[Operation]]:
        """Who reads a value in other clusters, if nobody else does."""
        users = {op for use in value.uses if (op := use.operation) not in self.clusters[self._maker(value)]}
        readers = {i: ops for i, cluster in enumerate(self.clusters) if (ops := users & cluster)}
        return readers if users == {op for ops in readers.values() for op in ops} else {}

    def _cone(self, value: SSAValue, maker: int, kinds: type | UnionType) -> set[Operation]:
        """The operations of these kinds that make an array of what leaves the cluster anyway, is given to it, or is
        made otherwise."""
        cluster = self.clusters[maker]
        leaving = {*part_of(cluster).leaving} - {value}
        cone: set[Operation] = set()
        left = [value]
        while left:
            each = left.pop()
            owner = each.owner
            if isinstance(owner, kinds) and owner in cluster and each not in leaving:
                assert isinstance(owner, Operation)
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

    def _made(
        self,
        value: SSAValue,
        cone: set[Operation],
        maker: int,
        readers: Mapping[int, set[Operation]],
        is_slower: Callable[[Sequence[Cluster]], bool] | None,
    ) -> list[Operation] | None:
        """Let each reader use copies of its own, unless a kernel could not be made of it then, or a slower one."""
        before = [(use.operation, use.index) for use in value.uses]
        changed = list(self.clusters)
        copied: list[Operation] = []
        for i, users in readers.items():
            copies = self._copies(cone, min(users, key=self.block.get_operation_index))
            copied += copies
            changed[i] |= {*copies}
            for user in users:
                user.operands = [copies[-1].results[0] if each is value else each for each in user.operands]
        dead = {op: [*op.operands] for op in changed[maker] - self._used(changed[maker])}
        for op in dead:
            op.operands = []  # what only they use does not leave
        changed[maker] -= {*dead}
        concerned = [i for i in (maker, *readers) if changed[i]]
        is_refused = any(self.why_not(self.clusters[i], changed[i]) is not None for i in concerned)
        if is_refused or (is_slower is not None and is_slower([changed[i] for i in concerned])):
            for op, operands in dead.items():
                op.operands = operands
            for user, index in before:
                user.operands[index] = value
            for op in reversed(copied):
                op.detach()
                op.erase()
            return None
        self.clusters = changed
        return copied

    def _used(self, cluster: Cluster) -> Cluster:
        """The operations of a cluster whose results somebody uses."""
        used = set[Operation]()
        for op in sorted(cluster, key=self.block.get_operation_index, reverse=True):
            if any(use.operation in used or use.operation not in cluster for use in op.results[0].uses):
                used.add(op)
        return frozenset(used)

    def _note(self, value: SSAValue, copied: Iterable[Operation], reason: str) -> None:
        names = ", ".join(label(op.results[0]) for op in copied)
        note(self.function, PASS, f"{names}: {label(value)} again", LAW, reason)

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


def _are_factors(readers: Mapping[int, set[Operation]]) -> bool:
    return any(isinstance(op, ContractOp) for ops in readers.values() for op in ops)

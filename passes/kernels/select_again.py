"""Conditions that are asked again where other kernels read what they leave.

An absent element is saved as zero, and whoever reads that zero takes it for an element. But a condition holds or does
not wherever it is asked, so a kernel that reads such an array asks again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import CastOp, ReadOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.condition import ConditionAttr, renamed
from treadle.passes._functions import erase_dead, fresh_hint, label, note
from treadle.passes._parts import is_free, part_of

PASS = "fusion"
LAW = "a condition holds wherever it is asked"

Cluster = frozenset[Operation]


def select_again(
    function: func.FuncOp, block: Block, clusters: Iterable[Cluster], why_not: Callable[[Cluster], str | None]
) -> list[Cluster]:
    """The same clusters, none of which takes for an element what is absent in another: the one that reads selects
    again, of what is saved. `why_not` says why operations cannot be one kernel (Refusal)."""
    return _Selection(function, block, list(clusters), why_not).run()


class _Selection:
    def __init__(
        self,
        function: func.FuncOp,
        block: Block,
        clusters: list[Cluster],
        why_not: Callable[[Cluster], str | None],
    ):
        self.function = function
        self.block = block
        self.clusters = clusters
        self.why_not = why_not
        self.asking: set[Operation] = set()
        """What was made to ask again, and so may read absent elements."""

    def run(self) -> list[Cluster]:
        while (found := self._next()) is not None:
            self._ask(*found)
        erase_dead(self.block)
        alive = (frozenset(op for op in cluster if op.parent is self.block) for cluster in self.clusters)
        return [cluster for cluster in alive if cluster]

    def _next(self) -> tuple[SSAValue, Cluster, int] | None:
        """An array that has absent elements, the cluster that makes it, and the place of another one that reads it."""
        for maker in self.clusters:
            for value in part_of(maker).leaving:
                for place, reader in enumerate(self.clusters):
                    if reader is not maker and self._users(value, reader) and absences(value):
                        return value, maker, place
        return None

    def _users(self, value: SSAValue, reader: Cluster) -> list[Operation]:
        users = {use.operation for use in value.uses} & (reader - self.asking)
        return sorted(users, key=self.block.get_operation_index)

    def _ask(self, value: SSAValue, maker: Cluster, place: int) -> None:
        users = self._users(value, self.clusters[place])
        made = self._selected_again(value, maker, users[0])
        same = made[-1].results[0]
        for user in users:
            user.operands = [same if each is value else each for each in user.operands]
        self.clusters[place] |= {*made}
        for cluster in (maker, self.clusters[place]):
            if (reason := self.why_not(cluster)) is not None:
                raise Refusal(users[0], f"{_lacks(value)}, and no kernel can ask again: {reason}")
        asked = " and ".join(sorted({f"'{op.condition.text.data}'" for op in absences(value)}))
        note(self.function, PASS, f"{label(same)}, as {label(value)}, for {label(users[0].results[0])}", LAW, asked)

    def _selected_again(self, value: SSAValue, maker: Cluster, before: Operation) -> list[Operation]:
        """Each of its conditions, on the zeros that are saved for what is absent, or on the constant it selects of."""
        made: list[Operation] = []
        source = _constant(value) or value
        for op in _distinct(absences(value), self.block):
            inputs = {name: self._read_again(each, maker, before, made) for name, each in op.asked.items()}
            made.append(self._insert(_asked_of(op, source, inputs), value, before))
            self.asking.add(made[-1])
            source = made[-1].results[0]
        return made

    def _read_again(self, value: SSAValue, maker: Cluster, before: Operation, made: list[Operation]) -> SSAValue:
        """What a condition asks of, where that is read from an argument: no kernel saves it for another."""
        chain = list(_reads(value, maker))
        for op in reversed(chain):
            clone = op.clone()
            if op is not chain[-1]:
                clone.operands[0] = made[-1].results[0]
            made.append(self._insert(clone, op.results[0], before))
        return made[-1].results[0] if chain else value

    def _insert(self, op: Operation, like: SSAValue, before: Operation) -> Operation:
        op.results[0].name_hint = fresh_hint(like, like.name_hint)
        op.location = before.location
        self.block.insert_op_before(op, before)
        return op


def _constant(value: SSAValue) -> SSAValue | None:
    """What conditions select elements of, if every kernel has it."""
    while isinstance(value.owner, WhereOp):
        value = value.owner.operand
    return value if isinstance(value.owner, Operation) and is_free(value.owner) else None


def _distinct(conditions: Iterable[WhereOp], block: Block) -> Iterator[WhereOp]:
    """Those that ask different questions, in program order."""
    seen: set[object] = set()
    for op in sorted(conditions, key=block.get_operation_index):
        if op.holds not in seen:
            seen.add(op.holds)
            yield op


def _reads(value: SSAValue, maker: Cluster) -> Iterator[Operation]:
    """The reads and casts of a cluster that lead from an array of which it is given to a value, the last first; none if
    anything is computed on the way."""
    chain: list[Operation] = []
    while isinstance(value.owner, Operation) and value.owner in maker:
        if not isinstance(value.owner, ReadOp | CastOp):
            return
        chain.append(value.owner)
        value = value.owner.operands[0]
    yield from chain


def _asked_of(op: WhereOp, array: SSAValue, given: Mapping[str, SSAValue]) -> WhereOp:
    """The condition of an operation, on another array that has its axes, of the inputs that are given; these give way
    to the names of its others."""
    axes = axes_of(array.type)
    clear = {name: _clear(name, (*axes, *given)) for name in given if name in axes}
    inputs = {clear.get(name, name): value for name, value in given.items()}
    return WhereOp(array, ConditionAttr(renamed(op.condition.text.data, clear)), inputs)


def _clear(name: str, taken: Iterable[str]) -> str:
    return next(each for each in (f"{name}_{i}" for i in range(1, 999)) if each not in taken)


def _lacks(value: SSAValue) -> str:
    texts = " and ".join(sorted({f"'{op.condition.text.data}'" for op in absences(value)}))
    return f"{label(value)} has elements only where {texts}, but it would be saved by one kernel and read by another"

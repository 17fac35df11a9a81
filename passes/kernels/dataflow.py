"""What must run after what in one block, and in which order sets of its operations can run."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise

from xdsl.ir import Operation
from xdsl.traits import is_side_effect_free

from treadle.passes.kernels.scattered import must_follow


class Dataflow:
    """What must run after what in one block: users after producers, effects in their order."""

    def __init__(self, ops: list[Operation]):
        self.ops = ops
        self.position = {op: i for i, op in enumerate(ops)}
        self.users: dict[Operation, set[Operation]] = {op: set() for op in ops}
        effects = [op for op in ops if not is_side_effect_free(op)]
        for op in ops:
            for inner in op.walk():
                for operand in inner.operands:
                    if isinstance(owner := operand.owner, Operation) and owner in self.users and owner is not op:
                        self.users[owner].add(op)
            for before, after in must_follow(op):
                if before in self.users:
                    self.users[before].add(after)
        for earlier, later in pairwise(effects):
            self.users[earlier].add(later)

    def way_back(self, ops: frozenset[Operation], cluster: dict[Operation, frozenset[Operation]]) -> Operation | None:
        """An operation outside that needs a value of `ops` and that `ops` need, if there is one."""
        seen: set[Operation] = set()
        stack = [user for op in ops for user in self.users[op] if user not in ops]
        while stack:
            op = stack.pop()
            if op in seen:
                continue
            unit = cluster.get(op, frozenset([op]))
            seen |= unit
            for user in {user for member in unit for user in self.users[member]} - unit:
                if user in ops:
                    return op
                stack.append(user)
        return None

    def in_order(self, units: list[frozenset[Operation]]) -> list[frozenset[Operation]]:
        """Each unit once, after all that it needs; of those that can run, the one that ends first."""
        unit_of = {op: unit for unit in units for op in unit}
        later = {unit: {unit_of[user] for op in unit for user in self.users[op]} - {unit} for unit in unit_of.values()}
        needs = {unit: sum(unit in users for users in later.values()) for unit in later}
        ready = [(self._end(unit), unit) for unit, count in needs.items() if count == 0]
        heapify(ready)
        ordered: list[frozenset[Operation]] = []
        while ready:
            _, unit = heappop(ready)
            ordered.append(unit)
            for user in later[unit]:
                needs[user] -= 1
                if needs[user] == 0:
                    heappush(ready, (self._end(user), user))
        return ordered

    def _end(self, unit: frozenset[Operation]) -> int:
        return max(self.position[op] for op in unit)

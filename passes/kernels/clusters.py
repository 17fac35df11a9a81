"""Which operations become one kernel: clusters of a block, grown greedily, and cut where that saves time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.errors import Refusal as NotFused
from treadle.compiler.sizes import default_sizes
from treadle.dialects.diagram import (
    ApplyOp,
    CastOp,
    ContractOp,
    ExtentOp,
    FillOp,
    IndexOp,
    MapOp,
    ReadOp,
    RecurrenceOp,
    ReduceOp,
    ScanOp,
    ScatterOp,
    SwapOp,
)
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.read import with_fitting
from treadle.passes._functions import label, note
from treadle.passes._parts import Reducing, part_of
from treadle.passes.expressions.polynomials import Keys
from treadle.passes.kernels.by_time import WORTH, Clock, is_faster
from treadle.passes.kernels.dataflow import Dataflow
from treadle.passes.kernels.make_again import make_again
from treadle.passes.kernels.narrow import narrow_product
from treadle.passes.kernels.phases import phases_of, phases_reached
from treadle.passes.kernels.roles import Refusal, Roles, must_hold_rows, roles_of
from treadle.passes.kernels.scattered import must_follow
from treadle.passes.kernels.select_again import select_again
from treadle.passes.kernels.spread import made_for_each, spread_axes
from treadle.passes.kernels.sums import Sums, classes_of, long_axes, summed_axes
from treadle.passes.kernels.wide import joined, judged, wide_chains
from treadle.passes.streams.stages import Repairs, StreamPlan

PASS = "fusion"
NO_KERNEL = NO_MEMORY, NO_ROLE = "no memory for one kernel", "no role for an axis"


Unfit: TypeAlias = Callable[[frozenset[Operation]], str | None]
"""Why operations that could be one kernel fit no machine as one; None if they fit."""


@dataclass(frozen=True)
class _Apart:
    """Why an operation was not put into the cluster of another one: what, by which law, and why."""

    op: Operation
    other: Operation
    texts: tuple[str, str, str]

    def is_within(self, ops: frozenset[Operation]) -> bool:
        return self.op in ops and self.other in ops


class Clusters:
    """Sets of diagram operations of one block, grown greedily in program order."""

    def __init__(
        self,
        function: func.FuncOp,
        block: Block,
        limit: int,
        together: bool = True,
        unfit: Unfit = lambda ops: None,
        asked: Collection[str] = (),
        clock: Clock | None = None,
        given: Collection[frozenset[Operation]] = (),
        too_large: Unfit = lambda ops: None,
    ):
        self.function = function
        self.limit = limit
        self.together = together
        self._unfit = unfit
        self._too_large = too_large
        self._fitting: dict[frozenset[Operation], str | None] = {}
        """What `unfit` said of operations: while they are placed the block stays as it is."""
        self._roles: dict[tuple[frozenset[Operation], bool], Roles | Refusal] = {}
        """Of operations, wide ones or not, for the same time."""
        self.asked = asked
        """The operations that may join what they use, by the names of their results; all if none is named."""
        self.clock = clock
        self.ops = list(block.ops)
        self.members: dict[Operation, frozenset[Operation]] = {}
        """The cluster of each operation that is in one."""
        self.flow = Dataflow(self.ops)
        self.repairs = Repairs(keys=Keys())
        self.sums = Sums(block)
        self.phases = phases_of(self.sums.ops, classes_of(self.sums.ops))
        self.reached = phases_reached(self.sums.ops, self.phases)
        self.apart: list[_Apart] = []
        """What was not put together, in the order of the program; wide roles may bring it together still."""
        self.alone: list[tuple[str, str, str]] = []
        """What is said of operations that no kernel can have."""
        self.owed: set[Operation] | None = set()
        """Those that were put into a cluster without asking whether it fits; None where all are asked for."""
        self.undone: dict[Operation, frozenset[Operation]] = {}
        """The clusters of which some were that did not fit after all: these are put together again one by one."""
        for cluster in given:
            self._join(cluster)
        if not given:
            self._place_all()
        if together and not asked and not given:
            self._join_readers()
            self._cut()
            self._join_fed()
            self._join_wide()
            self._join_rest()
            self._undo()
        for each in self.apart:
            note(self.function, "keep apart", *each.texts)
        self.found = self._again(block)
        """The clusters, each of which becomes a kernel."""

    def _again(self, block: Block) -> list[frozenset[Operation]]:
        """The clusters, which make again what need not be saved, and ask again what others would take for elements."""
        clusters = list(dict.fromkeys(self.members[op] for op in self.ops if op in self.members))
        if self.together and not self.asked:
            sizes = with_fitting(block, default_sizes(self.function))
            times = None if self.clock is None else self.clock.times
            clusters = make_again(self.function, block, clusters, sizes, self._why_other, times)
        clusters = select_again(self.function, block, clusters, partial(self._why_no_kernel, wide=True))
        self.ops = list(block.ops)
        self.members = {op: cluster for cluster in clusters for op in cluster}
        self.flow = Dataflow(self.ops)
        return clusters

    def _why_no_kernel(self, ops: frozenset[Operation], wide: bool = False) -> str | None:
        roles = roles_of(part_of(ops), self.limit, wide=wide)
        return roles.reason if isinstance(roles, Refusal) else None

    def _why_other(self, before: frozenset[Operation], after: frozenset[Operation]) -> str | None:
        """Why what became of a cluster could be no kernel, or would be one of other groups or of another stream."""
        is_wide = self._why_no_kernel(before) is not None
        old, new = (roles_of(part_of(each), self.limit, wide=is_wide) for each in (before, after))
        if isinstance(new, Refusal):
            return new.reason
        if isinstance(old, Roles) and (set(new.group), new.stream) != (set(old.group), old.stream):
            return "it would have other groups or another stream"
        return self._unfit(after)  # for which the block was rewritten

    def in_order(self) -> list[frozenset[Operation]]:
        """Clusters and operations outside of any, in an order in which they can run: the program's, as far
        as it allows."""
        return self.flow.in_order([self._unit(op) for op in self.ops])

    def unfit(self, ops: frozenset[Operation]) -> str | None:
        """Why operations do not fit as one kernel; asked once."""
        if ops not in self._fitting:
            self._fitting[ops] = self._unfit(ops)
        return self._fitting[ops]

    def _roles_of(self, ops: frozenset[Operation], wide: bool = False) -> Roles | Refusal:
        """A role for each axis, or why there is none; asked once."""
        if (ops, wide) not in self._roles:
            self._roles[ops, wide] = roles_of(part_of(ops), self.limit, repairs=self.repairs, wide=wide)
        return self._roles[ops, wide]

    def _unit(self, op: Operation) -> frozenset[Operation]:
        return self.members.get(op, frozenset([op]))

    def _place_all(self) -> None:
        """Each operation in turn. Whether a cluster fits is not asked at once for what adds nothing to the largest
        that it holds: it is when something else comes to it, or at the end. If it does not then, all are asked for."""
        for op in self.ops:
            if _may_join(op) and op not in self.members:
                self._place(op)
        if self.owed and any(map(self.unfit, dict.fromkeys(self.members[op] for op in self.owed))):
            self.members, self.apart, self.alone, self.owed = {}, [], [], None
            return self._place_all()
        for told in self.alone:
            note(self.function, "keep apart", *told)
        return None

    def _place(self, op: Operation) -> None:
        if isinstance(op, RecurrenceOp):
            self._place_recurrence(op)
            return
        if isinstance(op, ScanOp) and self.together and not self.asked and self._place_scanned(op):
            return
        cluster = self._begun(op)
        if isinstance(alone := self._roles_of(cluster), Refusal):
            if isinstance(op, ScanOp):
                raise NotFused(op, f"no kernel can have it: {self._why_not_scanned(op) or alone.reason}")
            self.alone.append((f"{_names(cluster)} from all", "no kernel", alone.reason))
            return
        if isinstance(op, SwapOp) and (reason := self.unfit(cluster)) is not None:
            self.alone.append((f"{_names([op])} from {_names(cluster - {op})}", NO_MEMORY, reason))
            return
        is_asked = (op.results[0].name_hint or "") in self.asked
        producers = self._producers(op) if self.together and (is_asked or not self.asked) else []
        if is_asked and not producers:
            raise NotFused(op, "it is to share a kernel with what it uses, and no kernel makes that: name what uses it")
        together = cluster.union(*producers)
        if self._why_not(together) is None and self._why_unfit(op, together, producers) is None:
            self._join(together)
            return
        reasons: list[str] = []
        joined: list[frozenset[Operation]] = []
        for producer in producers:
            refusal = self._why_not(cluster | producer) or self._why_unfit(op, cluster | producer, [*joined, producer])
            if refusal is None:
                cluster |= producer
                joined.append(producer)
            else:
                reasons.append(f"from {_names(producer)}: {refusal[1]}")
                self._keep_apart([op], producer, f"{label(op.results[0])} from {_names(producer)}", *refusal)
        if is_asked and len(cluster) == 1:
            raise NotFused(op, f"it is to share a kernel with what it uses, and must stay apart {'; '.join(reasons)}")
        self._join(cluster)

    def _undo(self) -> None:
        """What fits no machine after all becomes several kernels: its operations are placed again, each of which asks
        whether it fits beside what it uses. Few clusters hold so much, so few are asked of before."""
        for cluster in dict.fromkeys(self.members[op] for op in self.ops if op in self.members):
            if len(cluster) > 1 and self._has_no_room(cluster):
                self.undone |= dict.fromkeys(cluster, cluster)
                for op in cluster:
                    del self.members[op]
                for op in self.ops:
                    if op in cluster and op not in self.members:
                        self._place(op)

    def _has_no_room(self, ops: frozenset[Operation]) -> bool:
        """Whether no sizes of a cluster fit. Nothing is asked again of what fits as a kernel, nor of what is added up
        where data say: alone it would be another kernel, whose times those that ask for this one would be told."""
        fits = ops in self._fitting and self._fitting[ops] is None
        leaving = part_of(ops).leaving
        is_scattered = any(isinstance(use.operation, ScatterOp) for value in leaving for use in value.uses)
        return not fits and not is_scattered and self._too_large(ops) is not None

    def _place_recurrence(self, op: RecurrenceOp) -> None:
        """A recurrence is a kernel of its own (NotFused where there is none)."""
        if (absent := next((value for value in op.operands if absences(value)), None)) is not None:
            raise NotFused(
                op,
                f"{label(absent)} has elements only where a condition holds, and a recurrence is given all: "
                "let those that are left out be numbers, by a choice of a map (`where` of Python)",
            )
        alone = frozenset([op])
        if isinstance(roles := self._roles_of(alone), Refusal):
            raise NotFused(op, f"no kernel can have it: {roles.reason}")
        self._join(alone)

    def _place_scanned(self, op: ScanOp) -> bool:
        """Put a scan together with all that is made of it up to sums along its axis, if it may be: what stands between
        can leave in no stream, where it changes with each piece."""
        whole = self._with_all_made_of(op)
        if not all(map(_may_join, whole)) or self._why_not(whole) is not None or self._is_too_much(whole):
            return False
        self._join(whole)
        return True

    def _with_all_made_of(self, op: ScanOp) -> frozenset[Operation]:
        """A scan, what is made of it, and the clusters that these use."""
        made = _made_of_scan(op)
        owners = (operand.owner for each in made for operand in each.operands)
        inside = [each for each in owners if isinstance(each, Operation) and each in self.members]
        return made.union(*(self.members[each] for each in inside))

    def _is_too_much(self, ops: frozenset[Operation]) -> bool:
        """Whether several products beside a scan do not fit the machine, or what did not before."""
        is_much = sum(isinstance(each, ContractOp) for each in ops) > 1 or not ops.isdisjoint(self.undone)
        return is_much and self.unfit(ops) is not None

    def _why_not_scanned(self, op: ScanOp) -> str | None:
        """Why a scan is in no stream with what is made of it: by no law does that follow, or it leaves."""
        if not op.is_reverse:
            return None
        whole = self._with_all_made_of(op)
        if self._why_not(whole) is None and (reason := self.unfit(whole)) is not None:
            return reason
        plan = StreamPlan(part_of(whole), op.axis.data, self.repairs)
        refused = next((each for each in plan.verdicts.values() if each.refused), None)
        grows = f"in a stream along '{op.axis.data}' it grows with each piece"
        static = "with a static size a group may hold the axis whole"
        return f"{grows}, and {'it is needed as it is at the end' if refused is None else refused.refused}; {static}"

    def _begun(self, op: Operation) -> frozenset[Operation]:
        """What an operation cannot be without: a scan is where its total is, a swap where what it swaps is."""
        alone: frozenset[Operation] = frozenset([op])
        if isinstance(op, SwapOp):
            return (
                alone | self.members.get(op.operand.owner, alone) if isinstance(op.operand.owner, Operation) else alone
            )
        total = op.total.owner if isinstance(op, ScanOp) and op.total is not None else None
        return alone | self.members[total] if isinstance(total, Operation) and total in self.members else alone

    def _join_readers(self) -> None:
        """Clusters that read one array alike become one, which reads it once."""
        joined: list[frozenset[Operation]] = []
        for cluster in dict.fromkeys(self.members[op] for op in self.ops if op in self.members):
            place = next((i for i, other in enumerate(joined) if self._read_alike(other, cluster)), None)
            if place is None:
                joined.append(cluster)
            else:
                joined[place] |= cluster
                self._join(joined[place])

    def _read_alike(self, one: frozenset[Operation], other: frozenset[Operation]) -> bool:
        """Whether two clusters spend their time on reading the same array, and one that is both would have no fewer
        groups and be fed no other axis. Products spend it on other things."""
        parts, union = (part_of(one), part_of(other)), one | other
        shared = set(parts[0].read) & set(parts[1].read)
        if not shared or any(isinstance(op, ContractOp) for op in union):
            return False
        found = [self._roles_of(each) for each in (one, other, union)]
        walked = {(frozenset(each.group), each.stream) for each in found if isinstance(each, Roles)}
        if len(walked) != 1 or any(isinstance(each, Refusal) for each in found):
            return False
        ((group, stream),) = walked
        axes = group if stream is None else group | {stream}
        if not any(axes <= set(axes_of(value.type)) for value in shared):
            return False
        return self._why_not(union) is None and self.unfit(union) is None

    def _cut(self) -> None:
        """Clusters whose parts take less time become these, and so do the parts."""
        left = list(dict.fromkeys(self.members[op] for op in self.ops if op in self.members))
        while left:
            cluster = left.pop(0)
            found = self.clock.cut(cluster) if self.clock is not None and len(cluster) > 1 else None
            if found is None or any(map(self._why_no_part, found.cut.parts)):
                continue
            *firsts, rest = found.cut.parts
            subject = f"{_names(rest)} from {_names(op for part in firsts for op in part)}"
            if not found.is_faster:
                note(self.function, f"decline {PASS}", subject, "several kernels must save a tenth", found.times)
                continue
            for part in found.cut.parts:
                self._join(part)
            self._keep_apart(rest, firsts[0], subject, "cost model", found.times)
            left += found.cut.parts

    def _join_rest(self) -> None:
        """What could be no kernel with all that it uses joins what is left of that when it is cut, or was, where that
        takes less time: rotated queries and keys beside scores leave no memory for the product with the values. Asked
        of what is made of products; other elements may be made again."""
        tried = set[tuple[frozenset[Operation], frozenset[Operation]]]()
        for op in [each.op for each in self.apart if each.texts[1] in NO_KERNEL]:
            reader = self.members[op]
            for cluster in dict.fromkeys(self.members[each] for each in _used_by(reader) if each in self.members):
                pair = cluster, reader
                if self.clock is not None and cluster != reader == self.members[op] and pair not in tried:
                    tried.add(pair)
                    self._try_rest(self.clock, cluster, reader)

    def _try_rest(self, clock: Clock, cluster: frozenset[Operation], reader: frozenset[Operation]) -> None:
        before, whole = clock.times([cluster, reader]), cluster | reader
        if not before or clock.between(cluster, reader) < (1 - WORTH) * before[0]:
            return
        timed: list[tuple[tuple[float, ...], int]] = []
        ways = [(whole,), *(cut.parts for cut in clock.cuts(whole) if _brings_together(cut.parts, cluster, reader))]
        for i, parts in enumerate(ways):
            self._join_all(parts)
            if not any(self._why_not(each, wide=True) or self._why_no_part(each, wide=True) for each in parts):
                timed.append((clock.times(parts), i))
            self._join_all([cluster, reader])
        if not timed or not is_faster((least := min(timed))[0], before):
            return
        *firsts, rest = ways[least[1]]
        self._join_all([*firsts, rest])
        self.apart = [each for each in self.apart if each.texts[1] not in NO_KERNEL or each.op not in reader]
        told = f"estimated {least[0][0]:.3g} us, {before[0]:.3g} us with {_names(cluster)} as a kernel"
        note(self.function, PASS, f"{_names(reader)} with {_names(rest - reader)}", "cost model", told)
        for part in firsts:
            self._keep_apart(rest, part, f"{_names(rest)} from {_names(part)}", "cost model", told)

    def _join_fed(self) -> None:
        """Reductions of what a product's kernel is fed anyway join it, where the cost model finds that faster."""
        clusters = dict.fromkeys(self.members[op] for op in self.ops if op in self.members)
        products = [each for each in clusters if any(isinstance(op, ContractOp) for op in each)]
        for cluster in [each for each in clusters if each not in products]:
            other = next((each for each in products if self._is_fed(cluster, each)), None)
            if other is not None and self.clock is not None:
                times = self.clock.times([cluster, other])
                if times and is_faster(self.clock.times([cluster | other]), times) and not self.unfit(cluster | other):
                    note(self.function, PASS, f"{_names(cluster)} with {_names(other)}", "cost model", _compared(times))
                    self._join(cluster | other)
                    products = [cluster | other if each == other else each for each in products]

    def _is_fed(self, cluster: frozenset[Operation], other: frozenset[Operation]) -> bool:
        """Whether reductions read what a kernel reads that is fed the same axis."""
        part, whole = part_of(cluster), part_of(other)
        found = [self._roles_of(each) for each in (cluster, other)]
        streams = {each.stream if isinstance(each, Roles) else None for each in found}
        if not part.reducing or len(streams) != 1 or None in streams:
            return False
        (stream,) = streams
        fed = {value for value in part.read if stream in axes_of(value.type)}
        return bool(fed) and fed <= {*whole.read} and self._why_not(cluster | other) is None

    def _join_wide(self) -> None:
        """Clusters become one whose groups hold more, or repeat products, where that takes less time."""
        tried = set[frozenset[Operation]]()
        while self.clock is not None and (chain := self._wide_chain(tried)) is not None:
            tried.add(joined(chain))
            self._try_wide(self.clock, chain)

    def _wide_chain(self, tried: Collection[frozenset[Operation]]) -> tuple[frozenset[Operation], ...] | None:
        clusters = dict.fromkeys(self.members[op] for op in self.ops if op in self.members)
        for chain in wide_chains(clusters, self.limit):
            whole = joined(chain)
            if whole not in tried and self._why_not(whole, wide=True) is None:
                return chain
        return None

    def _try_wide(self, clock: Clock, chain: Sequence[frozenset[Operation]]) -> None:
        found, whole = judged(clock, chain), joined(chain)
        if found is None:
            return
        *others, last = chain
        unfit = self.unfit(whole) if found.joins else None
        first = joined(others)
        if found.joins and unfit is None:
            note(self.function, PASS, f"{_names(last)} with {_names(first)}", "cost model", found.reason)
            self._join(whole)
            self.apart = [each for each in self.apart if not each.is_within(whole)]
            return
        refusal = ("cost model", found.reason) if unfit is None else (NO_MEMORY, unfit)
        self._keep_apart(last, first, f"{_names(last)} from {_names(first)}", *refusal)

    def _keep_apart(
        self, ops: Iterable[Operation], others: Iterable[Operation], subject: str, law: str, reason: str
    ) -> None:
        self.apart.append(_Apart(part_of(ops).ops[0], part_of(others).ops[0], (subject, law, reason)))

    def _why_no_part(self, ops: frozenset[Operation], wide: bool = False) -> str | None:
        products = sum(isinstance(op, ContractOp) for op in ops)
        holds_much = products > 1 or (products == 1 and any(isinstance(op, ReduceOp) for op in ops))
        return self._why_no_kernel(ops, wide) or (self.unfit(ops) if holds_much else None)

    def _producers(self, op: Operation) -> list[frozenset[Operation]]:
        """The clusters that `op` uses a value of, the latest first."""
        owners = [operand.owner for operand in op.operands]
        found = [self.members[owner] for owner in owners if isinstance(owner, Operation) and owner in self.members]
        found = [each for each in found if not any(isinstance(member, RecurrenceOp) for member in each)]
        found = [each for each in found if not self._is_for_another(op, each) and not self._is_for_products(op, each)]
        found = [each for each in found if op not in self.undone or each <= self.undone[op]]
        return sorted(dict.fromkeys(found), key=lambda cluster: -max(self.ops.index(op) for op in cluster))

    def _is_for_another(self, op: Operation, cluster: frozenset[Operation]) -> bool:
        """Whether what an operation makes ends in sums along other axes than those of a cluster, which cannot be fed
        both, or in a later phase, and has more axes than what it uses of that: saving the latter takes less than saving
        the former."""
        (result,) = op.results
        summed = frozenset[str]().union(*map(summed_axes, cluster)) & long_axes(result)
        ends = self.sums.ends.get(result, frozenset())
        if not summed or not ends or result in self.sums.leaving:
            return False
        if any(summed & axes for axes in ends) and not self._is_of_another_phase(result, cluster):
            return False
        return all(long_axes(each) < long_axes(result) for each in op.operands if each.owner in cluster)

    def _is_for_products(self, op: Operation, cluster: frozenset[Operation]) -> bool:
        """Whether an operation makes what only products multiply, which cannot join a cluster, along more axes than
        what it uses of that, and none that it sums along: products read that, and make this where they need it."""
        (result,) = op.results
        summed, users = frozenset[str]().union(*map(summed_axes, cluster)), {use.operation for use in result.uses}
        if not isinstance(op, MapOp) or not summed or summed & {*axes_of(result.type)} or not users:
            return False
        if not all(isinstance(user, ContractOp) for user in users):
            return False
        used = [{*axes_of(each.type)} for each in op.operands if each.owner in cluster]
        return all(axes < {*axes_of(result.type)} for axes in used) and bool(self._why_not(cluster | {op} | users))

    def _is_of_another_phase(self, result: SSAValue, cluster: frozenset[Operation]) -> bool:
        """Whether sums that are made of an array wait for others that wait for those of a cluster."""
        own = {i for i, phase in enumerate(self.phases) if not phase.sums.isdisjoint(cluster)}
        return own.isdisjoint(self.reached.get(result, own))

    def _why_not(self, ops: frozenset[Operation], wide: bool = False) -> tuple[str, str] | None:
        """The law that is broken and the reason why operations cannot be one kernel, or None. What somebody asks for
        may take wide roles."""
        if (through := self.flow.way_back(ops, self.members)) is not None:
            return "not convex", f"a value would leave for {through.name} and come back"
        if (early := self._needed_before(ops)) is not None:
            return "not convex", f"what is scattered needs {label(early.results[0])} to be complete before"
        roles = self._roles_of(ops, wide or bool(self.asked))
        if isinstance(roles, Refusal):
            return NO_ROLE, roles.reason
        narrow = None if self.asked else narrow_product(part_of(ops), roles)
        return None if narrow is None else ("few columns", narrow)

    def _needed_before(self, ops: frozenset[Operation]) -> Operation | None:
        """An operation that must have run before another one of a kernel begins, which adds to its array, or where it
        says."""
        scatters = dict.fromkeys(use.operation for op in ops for result in op.results for use in result.uses)
        pairs = (pair for scatter in scatters for pair in must_follow(scatter))
        return next((before for before, after in pairs if before in ops and after in ops), None)

    def _why_unfit(
        self, op: Operation, ops: frozenset[Operation], joined: list[frozenset[Operation]]
    ) -> tuple[str, str] | None:
        """Asked where several products come together, a product joins a reduction, a reduction joins a product that a
        map spreads along an axis, or one for each index of whose factor groups make one, or anything joins reductions
        over several axes or of long rows that cannot be fed in pieces: only they hold so much at once, and asking takes
        time. Always where it was put into what did not fit."""
        products = sum(isinstance(each, ContractOp) for each in ops)
        reduced = {axis for each in ops if isinstance(each, ReduceOp) for axis in each.over_axes}
        brings_product = products > 1 and (isinstance(op, ContractOp | ReduceOp) or len(joined) > 1)
        brings_product |= isinstance(op, ContractOp) and len(reduced) > 0
        brings_product |= isinstance(op, ReduceOp) and self._holds_spread(ops)
        brings_product |= any(isinstance(each, SwapOp) for each in ops)
        if not brings_product and len(reduced) < 2 and op not in self.undone and not self._must_hold_rows(ops):
            return None
        if self.owed is not None and op not in self.undone and len(joined) == 1 and _adds_nothing(op, joined[0]):
            self.owed.add(op)
            return None
        reason = self.unfit(ops)
        if reason is None and self.owed is not None:
            self.owed -= ops
        return None if reason is None else (NO_MEMORY, reason)

    def _holds_spread(self, ops: frozenset[Operation]) -> bool:
        """Whether groups hold whole an axis that a map spreads a product along, or for each index of which they make a
        factor."""
        if not (spread := {*spread_axes(part := part_of(ops)), *made_for_each(part)}):
            return False
        roles = self._roles_of(ops)
        return isinstance(roles, Roles) and not roles.whole.keys().isdisjoint(spread)

    def _must_hold_rows(self, ops: frozenset[Operation]) -> bool:
        roles = self._roles_of(ops)
        return isinstance(roles, Roles) and must_hold_rows(part_of(ops), roles, self.repairs)

    def _join_all(self, clusters: Iterable[frozenset[Operation]]) -> None:
        for each in clusters:
            self._join(each)

    def _join(self, ops: frozenset[Operation]) -> None:
        for op in ops:
            self.members[op] = ops


def _adds_nothing(op: Operation, cluster: Iterable[Operation]) -> bool:
    """Whether an operation is along no other axes than one of a cluster, so that nothing gets larger by it."""
    if not isinstance(op, MapOp | CastOp | ReduceOp):
        return False
    return any(_along(op) <= _along(each) for each in cluster)


def _along(op: Operation) -> set[str]:
    summed = op.over_axes if isinstance(op, Reducing) else ()
    return {axis for result in op.results for axis in axes_of(result.type)}.union(summed)


def _made_of_scan(op: ScanOp) -> frozenset[Operation]:
    """A scan, what is made of it, and the reductions along its axis in which that ends."""
    found: set[Operation] = {op}
    stack: list[Operation] = [op]
    while stack:
        users = {use.operation for result in stack.pop().results for use in result.uses} - found
        users = {user for user in users if isinstance(user, DiagramOperation)}
        found |= users
        stack += [user for user in users if not (isinstance(user, Reducing) and op.axis.data in user.over_axes)]
    return frozenset(found)


def _brings_together(
    parts: Iterable[frozenset[Operation]], one: frozenset[Operation], other: frozenset[Operation]
) -> bool:
    """Whether a part has operations of both."""
    return any(part & one and part & other for part in parts)


def _used_by(ops: Iterable[Operation]) -> list[Operation]:
    """The operations of whose results some use one."""
    return [operand.owner for op in ops for operand in op.operands if isinstance(operand.owner, Operation)]


def _compared(times: Sequence[float]) -> str:
    return f"one reads what the other one is fed; {times[0]:.3g} us apart"


def _may_join(op: Operation) -> bool:
    if not isinstance(op, DiagramOperation) or isinstance(op, ApplyOp | ExtentOp | ReadOp | Regrouping | ScatterOp):
        return False
    return not isinstance(op, FillOp | IndexOp) or any(not _may_join(use.operation) for use in op.result.uses)


def _names(ops: Iterable[Operation]) -> str:
    ordered = part_of(ops).ops
    return ", ".join(label(op.results[0]) for op in ordered)

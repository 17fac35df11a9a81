"""Where one kernel may lose time against several: cuts of a cluster that the cost model is asked about.

- Every group along an axis makes again what does not have that axis: a norm, or a conversion, before a wide product.
- An axis is fed once more for elements that are saved, by few groups, or with a product that is made anew.
- Few groups sum along an axis that cannot be cut into parts: elements along it are saved, or sums wait for others.
- A product and what it feeds share registers, and little goes from one to the other beside what they multiply.
- So do products that one stream adds up, with all that is made beside each: two attentions whose results are combined.
- What a product multiplies is made in the kernel, of no product, so that no copies bring it to warpgroups.
- What limits a stream is found in every group, by all of its warps together.
- A product is made for each index along an axis that another one sums along.
- A product of reduced numbers is multiplied by another one, and fits beside neither."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import prod

from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.passes._functions import label
from treadle.passes._parts import is_free, part_of
from treadle.passes.kernels.outer import outer_axes
from treadle.passes.kernels.roles import Roles
from treadle.passes.kernels.sized import Cluster, Sized
from treadle.passes.streams.stages import StreamPlan

WIDEST = 256
"""Of a longer axis no group takes all, so that several groups repeat what does not have it."""

ROWS = 16
"""Of a product, that a group has at least."""

NEIGHBOURS = 128
"""In memory, that one group takes where they are its columns: a line for each of four warps."""

SLOWEST = 3
"""Times as long as its multiplications alone a kernel takes that has no room: where saving and reading takes longer,
there is nothing to gain by a cut."""

MORE_MEMORY = 8
"""Times as many bytes as a kernel reads and saves may go between its parts."""


@dataclass(frozen=True)
class Cut:
    """A cluster in parts, those first that others read."""

    parts: tuple[Cluster, ...]
    why: str
    """What the one kernel would do that its parts do not."""


def cuts(found: Sized, roles: Roles) -> Iterator[Cut]:
    """The cuts that may save time, each once."""
    late = (_saved_late(found, roles), _summed_late(found, roles), _in_turn(found, roles))
    both = _repeated_and_begun_with(found, roles)
    begun = (_begun_with(found, roles), _multiplied(found), _one_by_one(found), both, _limiting(found))
    pairs = _of_pairs(found, roles)
    beside = (_beside_products(found), _beside_sums(found, roles))
    yield from _cut_off(found, (_repeated(found, roles), *late, *beside, *begun, pairs))
    for before, first, why in _amid_others(found):
        if _may_be_saved(found, before) and _may_be_saved(found, first):
            yield Cut((*_connected(before), *_connected(first - before), *_connected(found.ops - first)), why)


def cuts_without_roles(found: Sized) -> Iterator[Cut]:
    """Those by which what no axes have roles for may become kernels."""
    yield from _cut_off(found, (_reduced_before(found), _multiplied(found), _limiting(found)))


def _cut_off(found: Sized, proposed: Iterable[Iterator[tuple[Cluster, str]]]) -> Iterator[Cut]:
    """Each of these and the rest, if what goes between may be saved."""
    seen: set[Cluster] = set()
    for first, why in chain.from_iterable(proposed):
        if first in seen or not first or first == found.ops or not _may_be_saved(found, first):
            continue
        seen.add(first)
        yield Cut((*_connected(first), *_connected(found.ops - first)), why)


def _repeated(found: Sized, roles: Roles) -> Iterator[tuple[Cluster, str]]:
    """What groups along an axis make again, if that is more than what leaves; of all such axes, and of each."""
    saved = sum(found.elements(value) for value in found.part.leaving)
    without: dict[str, Cluster] = {}
    for axis in roles.group:
        lacking = frozenset(op for op in found.part.ops if axis not in axes_of(op.results[0].type))
        again = sum(max(map(found.elements, (*op.operands, *op.results))) for op in lacking)
        if again * (found.sizes[axis] // WIDEST) > saved:
            without[axis] = lacking
    names = " and ".join(f"'{axis}'" for axis in without)
    if len(without) > 1:
        yield frozenset[Operation]().union(*without.values()), f"groups along {names} would make it again"
    for axis, lacking in without.items():
        yield lacking, f"every group along '{axis}' would make it again"


def _saved_late(found: Sized, roles: Roles) -> Iterator[tuple[Cluster, str]]:
    """What reductions need, where elements that are saved wait for them: all reductions, or those along the axis."""
    axis = roles.stream or roles.instead
    if axis is None or all(axis not in axes_of(value.type) for value in found.part.leaving):
        return
    plan = StreamPlan(found.part, axis)
    if len(plan.streams) < 2:
        return
    states = [op for op in found.part.reducing if plan.is_state(op.result)]
    firsts = [_with_late(found, axis, _needed(found.ops, reducing)) for reducing in (found.part.reducing, states)]
    made = [op for op in plan.step_of(plan.streams[-1]) if isinstance(op, ContractOp)]
    if any(plan.is_piece(op.result) for op in made):
        why = f"'{axis}' would be fed again, and {label(made[0].result)} made anew, for what is saved"
    elif _are_few_groups(found, roles, axis, bool(made)):
        taken = f"be fed '{axis}' again" if roles.stream else f"hold all of '{axis}', or be fed it again,"
        why = f"few groups would {taken} for what is saved"
    else:
        return
    yield from ((first, why) for first in firsts)


def _summed_late(found: Sized, roles: Roles) -> Iterator[tuple[Cluster, str]]:
    """What is made element by element, where few groups sum it and save some of it: alone, the elements are groups, and
    the axis of a sum can be cut into parts."""
    axis = roles.stream or roles.instead
    if axis is None or all(axis not in axes_of(value.type) for value in found.part.leaving):
        return
    if _are_few_groups(found, roles, axis, bool(found.products)):
        elements = [op for op in found.part.ops if axis in axes_of(op.results[0].type)]
        yield _needed(found.ops, elements), f"few groups would sum along '{axis}' what is saved"


def _in_turn(found: Sized, roles: Roles) -> Iterator[tuple[Cluster, str]]:
    """What the reductions of earlier streams need, where few groups have one stream after another: of reductions that
    wait for no others the axis can be cut into parts."""
    axis = roles.stream or roles.instead
    if axis is None or found.products or not _are_few_groups(found, roles, axis, False):
        return
    plan = StreamPlan(found.part, axis)
    for stream in plan.streams[1:]:
        earlier = [op for op in found.part.reducing if plan.is_state(op.result) and plan.stage_of(op.result) < stream]
        if later := plan.states_in(stream):
            first = _with_late(found, axis, _needed(found.ops, earlier))
            yield first, f"few groups would be fed '{axis}' for {label(later[0])} after other sums"


def _are_few_groups(found: Sized, roles: Roles, axis: str, make_products: bool) -> bool:
    """Whether groups leave multiprocessors empty: a group takes several rows of a product, and all neighbours in a line
    where the axis that it is fed does not lie last."""
    least = ROWS if make_products else 1
    fed = [axes for value in found.part.read if axis in (axes := axes_of(value.type))]
    if any(axes[-1] in roles.group for axes in fed):
        least = max(least, NEIGHBOURS)
    return prod(found.sizes[each] for each in roles.group) <= found.machine.sms * least


def _with_late(found: Sized, axis: str, first: Cluster) -> Cluster:
    """And what is made of it without an axis for the caller: beside elements along the axis no group could save it
    once."""
    leaving = [_owner(value) for value in found.part.leaving if axis not in axes_of(value.type)]
    for op in leaving:
        needed = _needed(found.ops, [op])
        if needed & first and all(axis not in axes_of(each.results[0].type) for each in needed - first):
            first |= needed
    return first


def _beside_products(found: Sized) -> Iterator[tuple[Cluster, str]]:
    """A product, and what is made of it element by element, as far as the fewest bytes go on from there."""
    if len(found.part.reducing) < 2:
        return
    multiplied = found.multiplying_time(found.products)
    for op in found.products:
        first = _fewest_bytes(found, _needed(found.ops, [op]))
        if found.moving_time(_crossing_bytes(found, first)) < SLOWEST * multiplied:
            yield first, f"{label(op.result)} and what uses it would share registers"


def _beside_sums(found: Sized, roles: Roles) -> Iterator[tuple[Cluster, str]]:
    """A product that a stream adds up, and what else is made and reduced of what it is made of, where the stream adds
    up another product that needs none of that."""
    if roles.stream is None:
        return
    plan = StreamPlan(found.part, roles.stream)
    states = [op for op in found.products if plan.is_state(op.result)]
    multiplied = found.multiplying_time(found.products)
    for op in states if len(states) > 1 else ():
        first = _fewest_bytes(found, _needed(found.ops, [op]), (*ELEMENTWISE, ReduceOp))
        others = [each for each in states if each not in first]
        if others and found.moving_time(_crossing_bytes(found, first)) < SLOWEST * multiplied:
            yield first, f"{label(op.result)} and {label(others[0].result)} would share registers"


def _amid_others(found: Sized) -> Iterator[tuple[Cluster, Cluster, str]]:
    """A product of what is made of a reduction, and of which another product is made: alone, apart from both."""
    for op in found.products:
        before = _needed(found.ops, [each for each in _makers(op) if each in found.ops])
        first = _needed(found.ops, [op])
        later = [each for each in found.products if each not in first and op in _needed(found.ops, [each])]
        if not later or not any(isinstance(each, ReduceOp) for each in before):
            continue
        crossing = _crossing_bytes(found, before) + _crossing_bytes(found, first)
        if found.moving_time(crossing) < SLOWEST * found.multiplying_time(found.products):
            yield (
                before,
                first,
                f"{label(op.result)} stands between {label(later[0].result)} and a reduction",
            )


def _makers(op: Operation) -> Iterator[Operation]:
    """Of the operands of an operation, but for conditions, which are asked again wherever that is."""
    for operand in op.operands:
        while isinstance(operand.owner, WhereOp):
            operand = operand.owner.operand
        if isinstance(operand.owner, Operation):
            yield operand.owner


def _begun_with(found: Sized, roles: Roles) -> Iterator[tuple[Cluster, str]]:
    """What is summed before the stream of products begins: operands that it holds are then no operands alone, which no
    producer brings."""
    fed = [
        op for op in found.part.ops if any(roles.stream in axes_of(value.type) for value in (*op.operands, *op.results))
    ]
    before = [op for op in found.part.ops if _needed(found.ops, [op]).isdisjoint(fed)]
    reducing = [op for op in before if isinstance(op, ReduceOp)]
    if reducing and any(isinstance(op, ContractOp) for op in fed):
        yield _needed(found.ops, reducing), f"{label(reducing[0].result)} is summed before '{roles.stream}' is fed"


def _repeated_and_begun_with(found: Sized, roles: Roles) -> Iterator[tuple[Cluster, str]]:
    """Both: norms of rows and of columns, beside neither of which a producer brings the operands of a product."""
    repeated, begun = list(_repeated(found, roles)), list(_begun_with(found, roles))
    if repeated and begun:
        why = " and ".join(why for _, why in (repeated[0], begun[0]))
        yield repeated[0][0] | begun[0][0], why


def _limiting(found: Sized) -> Iterator[tuple[Cluster, str]]:
    """What says where conditions hold: warps with roles must all know it before they begin."""
    told = [each.owner for op in found.part.ops if isinstance(op, WhereOp) for each in op.inputs]
    made = [op for op in told if isinstance(op, Operation) and op in found.ops and not is_free(op)]
    if made:
        yield _needed(found.ops, made), f"{label(made[0].results[0])} would be found in every group that it limits"


def _reduced_before(found: Sized) -> Iterator[tuple[Cluster, str]]:
    """What is reduced of no product, where there are products: norms of rows of which scores are made."""
    reducing = [
        op for op in found.part.reducing if not any(isinstance(o, ContractOp) for o in _needed(found.ops, [op]))
    ]
    if reducing and found.products:
        first = _needed(found.ops, reducing)
        yield _fewest_bytes(found, first), f"{label(reducing[0].result)} is made of no product"


def _multiplied(found: Sized) -> Iterator[tuple[Cluster, str]]:
    """Operands that are made of no product: saved, they come as others do, by copies, and lie as products read them."""
    after: set[Operation] = set()
    for op in found.part.ops:
        if isinstance(op, ContractOp) or any(operand.owner in after for operand in op.operands):
            after.add(op)
    operands = dict.fromkeys(operand.owner for op in found.products for operand in (op.lhs, op.rhs))
    made = [op for op in operands if isinstance(op, Operation) and op in found.ops and op not in after]
    if made:
        names = " and ".join(label(op.results[0]) for op in made)
        yield _needed(found.ops, made), f"products would not be brought {names} by copies"


def _one_by_one(found: Sized) -> Iterator[tuple[Cluster, str]]:
    """A product for each index along an axis that what is made of it is summed along: a kernel that is fed that axis
    makes one product at a time, in narrow tiles, and again for every group that sums."""
    for op in found.products:
        each = {*axes_of(op.lhs.type)} & {*axes_of(op.rhs.type)} & {*axes_of(op.result.type)}
        for later in found.part.reducing:
            if (summed := each & {*later.over_axes}) and op in _needed(found.ops, [later]):
                yield _needed(found.ops, [op]), f"{label(op.result)} would be made for one '{min(summed)}' at a time"
                break


def _of_pairs(found: Sized, roles: Roles) -> Iterator[tuple[Cluster, str]]:
    """Sums of what is made of all pairs of elements, and what is made of these, as far as the fewest bytes go on from
    there: alone, blocks are tiles of pairs."""
    for op in found.part.reducing:
        made = op.operand.owner if isinstance(op, ReduceOp) and roles.stream not in op.over_axes else None
        if not isinstance(made, MapOp) or made not in found.ops:
            continue
        if any(outer_axes([made], axis) for axis in op.over_axes):
            yield _fewest_bytes(found, _needed(found.ops, [op])), f"{label(op.result)} is made of pairs of elements"


ELEMENTWISE = (MapOp, CastOp, WhereOp)


def _fewest_bytes(found: Sized, first: Cluster, kinds: tuple[type[Operation], ...] = ELEMENTWISE) -> Cluster:
    """With what is made of it by operations of these kinds, as far as the fewest bytes go on from there."""
    best, grown = first, first
    for op in found.part.ops:
        inside = [operand for operand in op.operands if operand.owner in found.ops]
        if op in grown or not isinstance(op, kinds) or any(operand.owner not in grown for operand in inside):
            continue
        grown |= {op}
        if _crossing_bytes(found, grown) <= _crossing_bytes(found, best):
            best = grown
    return best


def _crossing(found: Sized, first: Cluster) -> list[SSAValue]:
    rest = found.ops - first
    leaving = part_of(first).leaving
    return [value for value in leaving if any(use.operation in rest for use in value.uses)]


def _crossing_bytes(found: Sized, first: Cluster) -> int:
    """Saved, unless it leaves anyway, and read."""
    leaving = found.part.leaving
    return sum((1 if value in leaving else 2) * found.bytes(value) for value in _crossing(found, first))


def _may_be_saved(found: Sized, first: Cluster) -> bool:
    """Whether what goes between the parts has all its elements, is no constant, and has room. Two axes that only the
    launch knows may make an array of any size: it has room where another one with both is there anyway."""
    between = _crossing(found, first)
    if not between or any(absences(value) or is_free(_owner(value)) for value in between):
        return False
    arrays = [value for value in (*found.part.read, *found.part.leaving) if axes_of(value.type)]
    symbolic = [{axis for axis, size in sizes_of(value.type).items() if size == DYNAMIC} for value in arrays]
    for value in between:
        open_ = {axis for axis, size in sizes_of(value.type).items() if size == DYNAMIC}
        if len(open_) > 1 and not any(open_ <= each for each in symbolic):
            return False
    return sum(map(found.bytes, between)) <= MORE_MEMORY * sum(map(found.bytes, arrays))


def _owner(value: SSAValue) -> Operation:
    assert isinstance(value.owner, Operation)
    return value.owner


def _needed(ops: Cluster, for_: Iterable[Operation]) -> Cluster:
    """Some of these operations, and all that they use."""
    found: set[Operation] = set()
    stack = [*for_]
    while stack:
        op = stack.pop()
        if op in ops and op not in found:
            found.add(op)
            stack += [operand.owner for operand in op.operands if isinstance(operand.owner, Operation)]
    return frozenset(found)


def is_of_product(ops: Cluster, value: SSAValue) -> bool:
    """Whether a value is a product of some operations, or made of one by them."""
    return any(isinstance(op, ContractOp) for op in _needed(ops, [_owner(value)]))


def _connected(ops: Cluster) -> list[Cluster]:
    """Sets between which no value goes, in program order."""
    found: list[Cluster] = []
    for op in part_of(ops).ops:
        used = {operand.owner for operand in op.operands}
        near = [each for each in found if not used.isdisjoint(each)]
        found = [each for each in found if each not in near] + [frozenset([op]).union(*near)]
    return found


__all__ = ["Cut", "cuts", "cuts_without_roles", "is_of_product"]

"""What one kernel may do with each axis: cut it into groups, stream it, or hold it whole.

`roles_of` is the one place where this is decided; `fusion` asks it whether operations can be one kernel,
`streaming` and `tiling` write its answer down."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp, RecurrenceOp, RenameOp, ScanOp, SwapOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import DYNAMIC, axes_of, size_text, sizes_of
from treadle.passes._functions import label
from treadle.passes._parts import Part, Reducing, flat_part, part_of_kernel
from treadle.passes.expressions.scalars import weave
from treadle.passes.kernels.rows import rows_and_columns
from treadle.passes.kernels.spread import spread_axes, subsets
from treadle.passes.streams.stages import Repairs, StreamPlan, is_fed_more_often, is_scanned_along, rounds_of

__all__ = [
    "ROUNDS_LIMIT",
    "ROW_LIMIT",
    "WHOLE_LIMIT",
    "Refusal",
    "Roles",
    "fed_across",
    "group_axes",
    "keeping_together",
    "may_repeat",
    "must_hold_rows",
    "not_grouped",
    "part_of_kernel",
    "repeated_products",
    "roles_along",
    "roles_of",
    "too_many_columns",
]

WHOLE_LIMIT = 256
"""The largest axis that a group holds whole; what products only sum over may be longer, where that pays
(`kernels.wide`)."""

SHARED = 2
"""As many times as long the columns of products may be, which several warps then share, where that pays
(`kernels.wide`)."""

ROW_LIMIT = 524288
"""Elements that a group without products holds of a row, of all axes together: threads of several warps, and of the
blocks of a cluster, share them in registers. Whether so many fit the machine is tried (`kernels.whole_or_streamed`)."""

ROUNDS_LIMIT = 3
"""How often a kernel may be fed its streamed axis: each further round makes the pieces again."""


DEPTH = 16
"""Numbers that tensor cores multiply at once, at least, along the axis that is summed: of 16 bits."""


@dataclass(frozen=True)
class Roles:
    """A role for each axis of a set of operations that can be one kernel."""

    group: tuple[str, ...]
    stream: str | None
    whole: dict[str, int]
    refused: dict[str, str]
    """For each axis that cannot be cut into groups: why not."""
    instead: str | None = None
    """The axis that could be streamed, more than once, and is held whole."""


@dataclass(frozen=True)
class Refusal:
    """Why operations cannot be one kernel."""

    reason: str


def roles_of(
    part: Part,
    whole_limit: int = WHOLE_LIMIT,
    stream: str | None = None,
    repairs: Repairs | None = None,
    wide: bool = False,
) -> Roles | Refusal:
    """A role for each axis, or why there is none; `stream` asks for that axis to be streamed. With `wide`, where there
    is none otherwise, groups hold whole whatever products only sum over, however long, are cut along axes that they
    cannot hold and that a product lacks, which each of them then repeats, and are fed index by index an axis of a
    product that has columns along another one. If that is not enough, they are cut along short axes, too, that a map
    spreads a product along (`kernels.spread`), which each of them then repeats: along as few as do."""
    recurrence = next((op for op in part.ops if isinstance(op, RecurrenceOp)), None)
    if recurrence is not None and len(part.ops) > 1:
        return Refusal(f"{label(recurrence.results[0])} is a recurrence, which is a kernel of its own")
    if recurrence is not None:
        part, stream = flat_part(recurrence), recurrence.axis.data
    repairs = Repairs() if repairs is None else repairs
    found = _roles_of(part, whole_limit, stream, repairs)
    if not wide or isinstance(found, Roles):
        return found
    ways = subsets(may_repeat(part, whole_limit))
    widened = [_roles_of(part, whole_limit, stream, repairs, True, repeated) for repeated in ways]
    return next((each for each in widened if isinstance(each, Roles)), widened[0])


def roles_along(part: Part, stream: str, whole_limit: int = WHOLE_LIMIT) -> Roles | None:
    """Wide roles with that axis streamed, for who need not know why there are none."""
    repairs = Repairs()
    if is_fed_more_often(part, stream, ROUNDS_LIMIT, repairs):
        return None
    found = roles_of(part, whole_limit, stream, repairs, wide=True)
    return found if isinstance(found, Roles) else None


def _roles_of(
    part: Part,
    whole_limit: int,
    stream: str | None,
    repairs: Repairs,
    wide: bool = False,
    repeated: Collection[str] = (),
) -> Roles | Refusal:
    sizes = part.sizes
    held = whole_limit if wide else None
    refused = {axis: reason for axis in sizes if (reason := not_grouped(part, axis, held, repeated)) is not None}
    if stream is None and (problem := _two_symbolic(part, sizes)) is not None:
        return Refusal(problem)
    candidates = _stream_candidates(part, sizes, whole_limit, repairs) if stream is None else [stream]
    problems: list[str] = []
    for candidate in candidates:
        whole = {axis: sizes[axis] for axis in refused if axis != candidate}
        limit = _most_whole(part, whole_limit) if candidate is None else whole_limit
        problem = (
            _too_large(_in_registers(part, whole, limit) if wide else whole, limit, refused)
            or _too_many(part, whole)
            or _scanned_apart(part, candidate, repairs)
            or _swapped_apart(part, candidate)
            or _too_often(part, candidate, repairs)
            or _two_columns(part, [*([] if candidate is None or wide else [candidate]), *whole], sizes)
            or _two_depths(part, whole)
        )
        if problem is None:
            others = [each for each in candidates if each is not None and candidate is None]
            return Roles(group_axes(part, refused), candidate, whole, refused, next(iter(others), None))
        problems.append(problem)
    return Refusal(problems[0])


def must_hold_rows(part: Part, roles: Roles, repairs: Repairs) -> bool:
    """Whether groups without products hold rows that are longer than one warp holds, and could be fed none of them in
    pieces instead: only then may they not fit a machine."""
    if roles.stream is not None or _has_products(part) or max(roles.whole.values(), default=0) <= WHOLE_LIMIT:
        return False
    return roles.instead is None or is_fed_more_often(part, roles.instead, ROUNDS_LIMIT, repairs)


def _two_symbolic(part: Part, sizes: Mapping[str, int]) -> str | None:
    by = {axis: label(op.result) for op in part.reducing for axis in op.over_axes if sizes[axis] == DYNAMIC}
    if len(by) < 2:
        return None
    (one, first), (other, second), *_ = by.items()
    return (
        f"'{one}', reduced by {first}, and '{other}', reduced by {second}, are both known only at launch, "
        "and only one axis can be streamed: with a static size a group may hold the other whole"
    )


def not_grouped(part: Part, axis: str, whole_limit: int | None = None, repeated: Collection[str] = ()) -> str | None:
    """Why an axis cannot be cut into independent groups, or None if it can. Groups repeat products along the axes in
    `repeated`, and with `whole_limit` along axes that are longer."""
    found = keeping_together(part, axis, whole_limit, repeated)
    return None if found is None else found[1]


def keeping_together(
    part: Part, axis: str, whole_limit: int | None = None, repeated: Collection[str] = ()
) -> tuple[SSAValue, str] | None:
    """The value because of which an axis cannot be cut into independent groups, and why; None if it can. Groups repeat
    products along the axes in `repeated`, and with `whole_limit` along axes that are longer."""
    for op in part.reducing:
        if axis in op.over_axes:
            return op.result, f"axis '{axis}' is reduced by {label(op.result)}"
    for op in part.ops:
        if is_scanned_along(op, axis):
            return op.result, f"axis '{axis}' is scanned by {label(op.result)}"
    for op in part.ops:
        if isinstance(op, RenameOp) and axis in op.meeting_axes:
            names = " and ".join(f"'{old}' is '{new}'" for old, new in op.names.items() if axis in (old, new))
            return op.result, f"axis {names} in {label(op.result)}, of which every group needs all"
    for value in part.leaving:
        if axis not in axes_of(value.type):
            return value, f"axis '{axis}' is not in {label(value)}, which every group of it would save again"
    if (again := _reduced_for_each(part, axis)) is not None:
        return again, f"axis '{axis}' is in nothing that is read, and every group of it would make {label(again)} again"
    lacking = _products_without(part, axis)
    if not lacking or axis in repeated or (whole_limit is not None and not _is_held(part.sizes[axis], whole_limit)):
        return None
    product = lacking[0].result
    return product, f"axis '{axis}' is not in the product {label(product)}, which every group of it would repeat"


def repeated_products(
    part: Part, axis: str, whole_limit: int = WHOLE_LIMIT, repeated: Collection[str] = ()
) -> list[ContractOp]:
    """The products that every group of an axis repeats, if it is one of those that groups cannot hold whole, or of
    those in `repeated`."""
    is_whole = axis not in repeated and _is_held(part.sizes[axis], whole_limit)
    if is_whole or not_grouped(part, axis, whole_limit, repeated) is not None:
        return []
    return _products_without(part, axis)


def may_repeat(part: Part, whole_limit: int = WHOLE_LIMIT) -> tuple[str, ...]:
    """The axes that groups can hold whole, and along which they could repeat a product instead whose elements a map
    spreads along them; the shortest first, along which it is repeated least."""
    short = [axis for axis in spread_axes(part) if 1 <= part.sizes[axis] <= whole_limit]
    found = [axis for axis in short if not_grouped(part, axis, repeated=[axis]) is None]
    return tuple(sorted(found, key=lambda axis: part.sizes[axis]))


def fed_across(op: ContractOp, roles: Roles, whole_limit: int = WHOLE_LIMIT) -> str | None:
    """The axis that a product of these roles is fed index by index though it is long and lies inside of all others that
    are summed: each step would take columns of memory."""
    stream = roles.stream
    others = [axis for axis in op.over_axes if axis != stream and roles.whole.get(axis, 1) != 1]
    if stream is None or stream not in op.over_axes or not others:
        return None
    sizes = sizes_of(op.lhs.type) | sizes_of(op.rhs.type)
    is_inner = all(_inwards(op, stream) > _inwards(op, axis) for axis in others)
    return stream if is_inner and not _is_held(sizes[stream], whole_limit) else None


def _inwards(op: ContractOp, axis: str) -> int:
    """How far inside of its factors an axis lies."""
    axes = [axes_of(factor.type) for factor in (op.lhs, op.rhs)]
    return sum(each.index(axis) - len(each) for each in axes if axis in each)


def too_many_columns(part: Part, stream: str | None, whole: Iterable[str]) -> str | None:
    """Why groups cannot hold these axes whole beside a stream: the columns of a product lie along one axis."""
    return _two_columns(part, [*([] if stream is None else [stream]), *whole], part.sizes)


def _reduced_for_each(part: Part, axis: str) -> SSAValue | None:
    """What every group of a short axis would reduce again, if no array that is read has that axis: maps put side by
    side what is the same for each group."""
    if not _is_held(part.sizes[axis], WHOLE_LIMIT) or _is_read(part, axis):
        return None
    return next((op.result for op in part.reducing if axis not in axes_of(op.result.type)), None)


def _products_without(part: Part, axis: str) -> list[ContractOp]:
    return [op for op in part.ops if isinstance(op, ContractOp) and axis not in axes_of(op.result.type)]


def _is_held(size: int, limit: int) -> bool:
    """Whether a group may hold all of an axis."""
    return size != DYNAMIC and size <= limit


def group_axes(part: Part, refused: Collection[str]) -> tuple[str, ...]:
    """The axes of the groups, in the order of memory of what leaves, those of rows and columns of products last: groups
    that follow each other then share an operand, and of what a condition leaves more of than of the next they are side
    by side (`cuda-order-blocks`). Neighbours in memory, of which each group has one, stay where they are: they share
    sectors."""
    met = weave([*(axes_of(value.type) for value in part.leaving), part.sizes])
    axes = tuple(axis for axis in met if axis not in refused)
    own = rows_and_columns([op for op in part.reducing if isinstance(op, ContractOp)], axes)
    single = [axis for axis in axes if axis not in own]
    neighbours = {axes_of(value.type)[-1] for value in (*part.leaving, *part.read) if axes_of(value.type)}
    if not own or not neighbours.isdisjoint(single):
        return axes
    return (*single, *(axis for axis in axes if axis in own))


def _stream_candidates(
    part: Part, sizes: Mapping[str, int], whole_limit: int, repairs: Repairs
) -> Sequence[str | None]:
    """Axes that may be streamed, best first: a symbolic one, which nothing can hold whole; else those
    reduced last, whose earlier ones end up inside the step, the largest first. None of them where the best
    one would be fed more than once and can be held whole instead. One element is no stream, whose pieces would
    have room for many; of a product over several axes it is, which is fed index by index."""
    last_first = [axis for op in reversed(part.reducing) for axis in _over_axes(op, sizes, whole_limit)]
    reduced = tuple(dict.fromkeys(last_first))
    if symbolic := [axis for axis in reduced if sizes[axis] == DYNAMIC]:
        return symbolic[:1]
    may_feed = tuple(axis for axis in reduced if _is_read(part, axis) or not _is_held(sizes[axis], whole_limit))
    fed = tuple(axis for axis in may_feed if sizes[axis] != 1 or _is_summed_by_product(part, axis))
    if not fed:
        return [None, *reduced]
    reduced = fed
    may_be_held = sizes[reduced[0]] <= _most_whole(part, whole_limit)
    return [None, *reduced] if may_be_held and is_fed_more_often(part, reduced[0], 1, repairs) else reduced


def _is_read(part: Part, axis: str) -> bool:
    """Whether an array that a part reads has an axis: one that only its maps make is nothing to be fed in pieces."""
    return any(axis in axes_of(value.type) for value in part.read)


def _is_summed_by_product(part: Part, axis: str) -> bool:
    return any(isinstance(op, ContractOp) and axis in op.over_axes for op in part.reducing)


def _too_often(part: Part, axis: str | None, repairs: Repairs) -> str | None:
    rounds = 0 if axis is None else rounds_of(part, axis, repairs)
    if rounds <= ROUNDS_LIMIT:
        return None
    return f"axis '{axis}' would be fed {rounds} times, to make the same pieces again (at most {ROUNDS_LIMIT})"


def _scanned_apart(part: Part, stream: str | None, repairs: Repairs) -> str | None:
    """Why what is scanned cannot be, along one axis: a stream has what came before a piece, and has it once."""
    along = dict.fromkeys(op.axis.data for op in part.ops if isinstance(op, ScanOp))
    if len(along) > 1:
        names = " and ".join(f"'{axis}'" for axis in along)
        return f"{names} are scanned, neither of which groups may cut"
    scans = [] if stream is None else [op for op in part.ops if is_scanned_along(op, stream)]
    inside = {op.result for op in part.reducing}
    for op in scans:
        if op.total not in inside:
            return f"axis '{stream}' is scanned by {label(op.result)}, and what came before a piece is summed elsewhere"
    again = StreamPlan(part, stream, repairs).scanned_again() if stream is not None and scans else None
    if again is None:
        return None
    return f"{label(again.result)}, scanned along '{stream}', is needed in a further stream along it, too"


def _swapped_apart(part: Part, stream: str | None) -> str | None:
    """Why what is swapped cannot be: threads have both blocks of each pair of what a product gave them, in whatever
    pieces groups have its columns, and of nothing else. A piece of a stream may lack one that is fed later."""
    for op in part.ops:
        if not isinstance(op, SwapOp):
            continue
        axis, name = op.axis.data, label(op.result)
        if op.operand.owner not in part.ops:
            return f"blocks along axis '{axis}' are swapped by {name}, of what other threads have"
        if absences(op.operand):
            return f"blocks along axis '{axis}' are swapped by {name}, of which elements are absent"
        if axis == stream:
            return f"blocks along axis '{axis}' are swapped by {name}, of which a piece may lack one"
        products = (axes_of(each.result.type) for each in part.reducing if isinstance(each, ContractOp))
        if not any(axis in axes and _is_last(axis, axes, part.sizes) for axes in products):
            return f"blocks along axis '{axis}' are swapped by {name}, along which no product has columns"
    return None


def _is_last(axis: str, axes: Sequence[str], sizes: Mapping[str, int]) -> bool:
    return all(sizes[each] == 1 for each in axes[axes.index(axis) + 1 :])


def _two_columns(part: Part, held: Sequence[str], sizes: Mapping[str, int]) -> str | None:
    """A product has its rows along an axis of the groups, and columns along one more."""
    for op in part.reducing:
        if not isinstance(op, ContractOp):
            continue
        wide = [axis for axis in axes_of(op.result.type) if axis in held and sizes[axis] != 1]
        if len(wide) > 1:
            names = " and ".join(f"'{axis}'" for axis in wide)
            return f"the product {label(op.result)} would have columns along {names}, neither of which groups may cut"
    return None


def _two_depths(part: Part, whole: dict[str, int]) -> str | None:
    """A product sums over one axis at a time, and index by index over the one that is streamed."""
    for op in part.reducing:
        wide = [axis for axis in op.over_axes if whole.get(axis, 1) != 1]
        if isinstance(op, ContractOp) and len(wide) > 1:
            names = " and ".join(f"'{axis}'" for axis in wide)
            return f"the product {label(op.result)} would sum over {names} at once, neither of which is streamed"
    return None


def _over_axes(op: Reducing, sizes: Mapping[str, int], whole_limit: int) -> list[str]:
    """The axes of a reduction, the best to stream first. A product takes one axis at a time as its depth, if a group
    can hold all whole, and the others index by index: the innermost in memory of those that are deep enough."""
    largest, *others = _largest_first(op.over_axes, sizes)
    if not isinstance(op, ContractOp) or not others or not 1 < sizes[largest] <= whole_limit:
        return [largest, *others]
    deep = [axis for axis in (largest, *others) if sizes[axis] >= DEPTH] or [largest]
    depth = max(deep, key=lambda axis: _inwards(op, axis))
    return [*(axis for axis in reversed((largest, *others)) if axis != depth), depth]


def _largest_first(axes: Iterable[str], sizes: Mapping[str, int]) -> list[str]:
    return sorted(axes, key=lambda axis: -sizes[axis])


def _in_registers(part: Part, whole: dict[str, int], limit: int) -> dict[str, int]:
    """Those of some axes along which threads would hold more than they have room for. What is but the depth of products
    lies in tiles of shared memory alone, and how much of that there is tells the choice of sizes; columns of products
    are shared by several warps."""
    held = {axis: size for axis, size in whole.items() if size == DYNAMIC or not _is_only_summed(part, axis)}
    most = SHARED * limit
    return {axis: size for axis, size in held.items() if not (_is_held(size, most) and _has_columns(part, axis))}


def _is_only_summed(part: Part, axis: str) -> bool:
    having = [op for op in part.reducing if any(axis in axes_of(operand.type) for operand in op.operands)]
    return not any(axis in axes_of(value.type) for value in part.leaving) and all(
        isinstance(op, ContractOp) and axis in op.over_axes for op in having
    )


def _has_columns(part: Part, axis: str) -> bool:
    """Whether products have columns along an axis, and nothing else reduces what has it."""
    having = [op for op in part.reducing if any(axis in axes_of(operand.type) for operand in op.operands)]
    products = [op for op in having if isinstance(op, ContractOp)]
    return len(products) == len(having) and any(axis in axes_of(op.result.type) for op in products)


def _most_whole(part: Part, whole_limit: int) -> int:
    """The largest axis that a group holds whole where nothing is streamed: without products it is shared by warps."""
    return whole_limit if _has_products(part) or whole_limit < WHOLE_LIMIT else max(ROW_LIMIT, whole_limit)


def _has_products(part: Part) -> bool:
    return any(isinstance(op, ContractOp) for op in part.reducing)


def _too_many(part: Part, whole: dict[str, int]) -> str | None:
    """Why a group without products cannot hold all elements of several axes together, though it could of each."""
    whole = {axis: size for axis, size in whole.items() if _reduced_for_each(part, axis) is None}
    if _has_products(part) or not whole or (count := prod(whole.values())) <= ROW_LIMIT:
        return None
    held = " and ".join(f"'{axis}'" for axis in whole)
    return f"a group would hold all of {held}, {count:,} elements (at most {ROW_LIMIT:,})"


def _too_large(whole: dict[str, int], limit: int, refused: dict[str, str]) -> str | None:
    for axis, size in whole.items():
        if not _is_held(size, limit):
            held = "its size is known only at launch" if size == DYNAMIC else f"it has {size_text(size)}"
            return f"{refused[axis]}; a group would hold all of it, but {held} (at most {limit})"
    return None

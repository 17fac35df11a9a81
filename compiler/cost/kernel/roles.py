"""What the axes of a kernel are for: the rows, columns and batches of its products, and its streams."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of, format_of, is_array, sizes_of
from treadle.dialects.hierarchy import KernelOp, ScheduleAttr
from treadle.passes.kernels.roles import part_of_kernel
from treadle.passes.kernels.rows import is_batch, is_column, row_axis
from treadle.passes.kernels.singly import may_step_over_matrices, steps_over_batches
from treadle.passes.streams.stages import StreamPlan


@dataclass(frozen=True)
class ProductAxes:
    """How the products of one kernel lie on the warps.

    `row`: the axis M, a group axis in every product's result and in exactly one operand of each: warps lie
    along it. `column`: one more group axis of products, of the operand that lacks the rows, none of whose results has
    columns along an axis already that groups do not cut; warps may lie along it too where `splits_columns`. Other group
    axes are pieces of 1: those are `single`."""

    row: str | None
    column: str | None
    splits_columns: bool
    single: frozenset[str] = frozenset()


def contractions_of(kernel: KernelOp) -> tuple[ContractOp, ...]:
    return tuple(op for op in kernel.body.walk() if isinstance(op, ContractOp))


def alignment_of(products: Sequence[ContractOp]) -> int:
    """Tiles of products have sides that are multiples of this."""
    if not products:
        return 1
    return max({1: 32, 2: 16}.get(format_of(op.lhs.type).size, 8) for op in products)


def reach_of(alignment: int) -> int:
    """What tiles reach to multiples of along an axis that is held whole, in steps of so many: of 16, the last step of a
    product may take half (`cuda.products.HALVED`)."""
    return 8 if alignment == 16 else alignment


def lies_along_columns(
    axes: Sequence[str], stream: str | None, row: str | None, products: Iterable[ContractOp]
) -> bool:
    """Whether an array that steps load into registers meets the result of a product column by column: that has the
    streamed axis, as it does, and the rows, which it lacks."""
    results = (set(axes_of(op.result.type)) for op in products)
    return stream in axes and any({stream, row, *axes} <= result for result in results) and row not in axes


def role_of_met(value: SSAValue, along_columns: bool, row: str | None, single: Collection[str]) -> str:
    """What an array is held as that lies as the result of a product which it meets: whole numbers of rows are what
    conditions compare with."""
    if along_columns:
        return "column"
    of_rows = {axis for axis in axes_of(value.type) if axis not in single} == {row}
    return "bound" if of_rows and str(format_of(value.type)).startswith("i") else "value"


def role_of_sums(axes: Iterable[str], roles: ProductAxes) -> str:
    """What a result is held as that steps reduce elements of products to: with columns of its own it lies as they do,
    else four lanes have each row."""
    return "carried" if roles.column is not None and roles.column in axes else "row"


def lies_in_rows(axes: Iterable[str], products: Iterable[ContractOp], single: frozenset[str]) -> bool:
    """Whether an array with these axes is spread in rows over the lanes, beside products: it meets the result of none
    element by element, and so lies as none does. Axes of which a group has a single index tell nothing: decays of
    each head meet scores that all heads share."""
    results = [set(axes_of(op.result.type)) | single for op in products]
    return bool(results) and not any(set(axes) <= result for result in results)


def results_of(products: Iterable[ContractOp], single: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    """The axes of what may meet the results of products, each list of them once."""
    results = (axes_of(op.result.type) for op in products)
    return tuple(dict.fromkeys((*axes, *sorted(single - {*axes})) for axes in results))


def vector_in_rows(moved: Iterable[int], products: Iterable[ContractOp]) -> int:
    """How many elements a lane takes of one: 16 bytes of the narrowest that the kernel moves, though no more than of an
    operand. `moved` are the bytes of what it loads and saves (`lowering.plan.widest_vector`)."""
    operands = (format_of(op.lhs.type).size for op in products)
    return 16 // max(min(moved, default=4), min(operands, default=0))


def product_axes(
    kernel: KernelOp, group_axes: Iterable[str], stream: str | None = None, step: int | None = None
) -> ProductAxes:
    """The roles of axes for products, where a decorated kernel streams an axis in pieces of `step` (None while they are
    not chosen)."""
    group_axes = tuple(group_axes)
    products = contractions_of(kernel)
    singly = (stream,) if stream is not None and steps_singly(kernel, group_axes, stream, step) else ()
    row = row_axis(products, group_axes, singly)
    columns = [
        axis
        for axis in group_axes
        if axis != row
        and row is not None
        and any(is_column(axis, row, op) for op in products)
        and not any(is_batch(axis, op) or _has_columns(axis, (*group_axes, *singly), op) for op in products)
    ]
    column = columns[-1] if columns else None
    single = frozenset(group_axes) - {row, column}
    return ProductAxes(row, column, column is not None and all(_only(row, column, op) for op in products), single)


def scheduled_row(kernel: KernelOp, schedule: ScheduleAttr) -> str | None:
    """The rows of products of a decorated kernel."""
    stream, step = next(iter(schedule.stream.as_dict().items()), (None, None))
    return product_axes(kernel, schedule.group.as_dict(), stream, step).row


def steps_singly(kernel: KernelOp, group_axes: Collection[str], stream: str | None, step: int | None) -> bool:
    """Whether a step takes one index of the streamed axis, a product of matrices: products have no columns along it."""
    if steps_over_batches(contractions_of(kernel), group_axes, stream):
        return True
    return step == 1 and may_step_over_matrices(kernel.body.block.ops, group_axes, stream)


def axis_across(
    along: Iterable[str], row: str | None, results: Collection[Sequence[str]], group: Container[str]
) -> str | None:
    """The axis, of those along which several warps lie, that lies across the rows of products: some have columns along
    it, which these warps share, and what lacks it all of them do again. None where there is none, or where groups cut
    it and all products have columns along it."""
    for axis in along:
        made = [axis in result for result in results]
        if axis != row and row is not None and any(made) and not (all(made) and axis in group):
            return axis
    return None


@dataclass(frozen=True)
class StreamUse:
    """What the streams of a decorated kernel do, and how many load each input."""

    inputs: dict[SSAValue, int]
    steps: list[list[Operation]]
    """The operations of a step of each stream."""
    fed_in: dict[SSAValue, tuple[int, ...]]
    """The streams that load an input piece by piece, in order."""
    plan: StreamPlan | None
    """Of the streamed axis."""


def stream_use(kernel: KernelOp, axis: str | None) -> StreamUse:
    """A result that has the streamed axis and depends on a reduction over it needs the axis streamed again,
    with the finished state: what both streams need is loaded and done in both. Whatever does not touch the
    axis counts once, and an input that nothing uses not at all."""
    used = [value for value in kernel.body.block.args if value.uses and is_array(value.type)]
    if axis is None:
        return StreamUse(dict.fromkeys(used, 1), [], {}, None)
    plan = StreamPlan(part_of_kernel(kernel), axis)
    steps = [plan.step_of(stream) for stream in plan.streams]
    saved = [plan.saved_in_step(stream) for stream in plan.streams]

    def fed_in(value: SSAValue) -> tuple[int, ...]:
        users = {use.operation for use in value.uses}
        return tuple(i for i in plan.streams if value in saved[i] or any(op in users for op in steps[i]))

    streamed: dict[SSAValue, tuple[int, ...]] = {value: fed_in(value) for value in used if axis in axes_of(value.type)}

    return StreamUse(
        {value: len(streamed[value]) if value in streamed else 1 for value in used},
        steps,
        streamed,
        plan,
    )


def _has_columns(axis: str, group_axes: Collection[str], op: ContractOp) -> bool:
    """Whether the result of a product with this axis has another one that no group cuts: columns lie along that, of
    which a product has one axis."""
    sizes = sizes_of(op.result.type)
    return axis in sizes and any(size != 1 and other not in group_axes for other, size in sizes.items())


def _only(row: str | None, column: str, op: ContractOp) -> bool:
    """Whether rows and columns of a product are these axes alone, batches aside."""
    free = {axis for axis in axes_of(op.result.type) if not is_batch(axis, op)}
    return free == {row, column}

"""What one kernel may do with each axis: cut it into groups, stream it, or hold it whole.

`roles_of` is the one place where this is decided; `fusion` asks it whether operations can be one kernel,
`streaming` and `tiling` write its answer down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram.array import DYNAMIC, axes_of, size_text, sizes_of
from treadle.dialects.diagram.ops import ContractOp, DiagramOperation, FillOp, ReduceOp
from treadle.dialects.hierarchy.ops import ExtentOp, KernelOp
from treadle.passes._functions import label
from treadle.passes._scalars import weave

WHOLE_LIMIT = 256
"""The largest axis that a group holds whole."""

Reducing = ContractOp | ReduceOp


@dataclass(frozen=True)
class Roles:
    """A role for each axis of a set of operations that can be one kernel."""

    group: tuple[str, ...]
    stream: str | None
    whole: dict[str, int]
    refused: dict[str, str]
    """For each axis that cannot be cut into groups: why not."""


@dataclass(frozen=True)
class Refusal:
    """Why operations cannot be one kernel."""

    reason: str


@dataclass(frozen=True)
class Part:
    """Operations that may become one kernel, in program order, and the values that leave it."""

    ops: tuple[Operation, ...]
    leaving: tuple[SSAValue, ...]

    @property
    def sizes(self) -> dict[str, int]:
        values = [value for op in self.ops for value in (*op.operands, *op.results)]
        return {axis: size for value in values for axis, size in sizes_of(value.type).items()}

    @property
    def reducing(self) -> list[Reducing]:
        return [op for op in self.ops if isinstance(op, ContractOp | ReduceOp)]


def part_of(ops: Iterable[Operation]) -> Part:
    """A set of operations of one block, with what others use of it."""
    members = set(ops)
    ordered = tuple(sorted(members, key=_position))
    results = [result for op in ordered for result in op.results]
    leaving = [value for value in results if any(use.operation not in members for use in value.uses)]
    return Part(ordered, tuple(leaving))


def part_of_kernel(kernel: KernelOp) -> Part:
    """The operations of a kernel whose streams are not expanded yet."""
    *ops, terminator = kernel.body.block.ops
    inside = tuple(op for op in ops if isinstance(op, DiagramOperation))
    return Part(inside, tuple(dict.fromkeys(terminator.operands)))


def is_free(op: Operation) -> bool:
    """Whether an operation costs nothing and is repeated in every kernel that uses it."""
    return isinstance(op, ExtentOp | FillOp)


def _position(op: Operation) -> int:
    block = op.parent_block()
    assert block is not None
    return block.get_operation_index(op)


def roles_of(part: Part, whole_limit: int = WHOLE_LIMIT, stream: str | None = None) -> Roles | Refusal:
    """A role for each axis, or why there is none; `stream` asks for that axis to be streamed."""
    sizes = part.sizes
    refused = {axis: reason for axis in sizes if (reason := not_grouped(part, axis)) is not None}
    others = [axis for axis in sizes if axis in refused]
    if stream is None and (problem := _two_symbolic(part, sizes)) is not None:
        return Refusal(problem)
    candidates = [stream] if stream is not None else _stream_candidates(part, sizes)
    refusal = Refusal("")
    for candidate in candidates:
        whole = {axis: sizes[axis] for axis in others if axis != candidate}
        problem = _too_large(whole, whole_limit, refused)
        if problem is None:
            return Roles(_group_axes(part, refused), candidate, whole, refused)
        refusal = refusal if refusal.reason else Refusal(problem)
    return refusal


def _two_symbolic(part: Part, sizes: dict[str, int]) -> str | None:
    by = {axis: label(op.result) for op in part.reducing for axis in op.over_axes if sizes[axis] == DYNAMIC}
    if len(by) < 2:
        return None
    (one, first), (other, second), *_ = by.items()
    return (
        f"'{one}', reduced by {first}, and '{other}', reduced by {second}, are both known only at launch, "
        "and only one axis can be streamed"
    )


def not_grouped(part: Part, axis: str) -> str | None:
    """Why an axis cannot be cut into independent groups, or None if it can."""
    for op in part.reducing:
        if axis in op.over_axes:
            return f"axis '{axis}' is reduced by {label(op.result)}"
    for value in part.leaving:
        if axis not in axes_of(value.type):
            return f"axis '{axis}' is not in {label(value)}, which every group of it would save again"
    for op in part.ops:
        if isinstance(op, ContractOp) and axis not in axes_of(op.result.type):
            return f"axis '{axis}' is not in the product {label(op.result)}, which every group of it would repeat"
    return None


def _group_axes(part: Part, refused: dict[str, str]) -> tuple[str, ...]:
    """The axes of the groups, in the order of memory of what leaves."""
    met = weave([*(axes_of(value.type) for value in part.leaving), part.sizes])
    return tuple(axis for axis in met if axis not in refused)


def _stream_candidates(part: Part, sizes: dict[str, int]) -> Sequence[str | None]:
    """Axes that may be streamed, best first: a symbolic one, which nothing can hold whole; else those
    reduced last, whose earlier ones end up inside the step, the largest first."""
    last_first = [axis for op in reversed(part.reducing) for axis in _largest_first(op.over_axes, sizes)]
    reduced = tuple(dict.fromkeys(last_first))
    symbolic = [axis for axis in reduced if sizes[axis] == DYNAMIC]
    return symbolic[:1] or reduced or [None]


def _largest_first(axes: Iterable[str], sizes: dict[str, int]) -> list[str]:
    return sorted(axes, key=lambda axis: -sizes[axis])


def _too_large(whole: dict[str, int], limit: int, refused: dict[str, str]) -> str | None:
    for axis, size in whole.items():
        if size == DYNAMIC or size > limit:
            held = "its size is known only at launch" if size == DYNAMIC else f"it has {size_text(size)}"
            return f"{refused[axis]}; a group would hold all of it, but {held} (at most {limit})"
    return None

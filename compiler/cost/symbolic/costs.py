"""Costs as expressions: H, M and the operations of an explicit kernel, in sizes of axes and of their pieces.

An axis is a symbol of its name; `g_q` is the group size of `q`, `s_x` the stream size of `x`, `w_q` the warps along
`q`. Ceilings make an expression exact at every size; `closed` is its value where the sizes divide. Of a stream that
conditions limit they say what it would cost unlimited (`Plan.unlimited`): an upper bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from xdsl.ir import Operation, SSAValue

from treadle.compiler.cost.kernel.issue import product_of, read_before
from treadle.compiler.cost.kernel.plan import Pieces, Transfer
from treadle.compiler.cost.kernel.spread import FRAGMENT_ROWS
from treadle.compiler.cost.kernel.warpgroups import WARPGROUP, are_of_warpgroups
from treadle.compiler.cost.kernel.work import is_tensor_product, labours_of, multiply_format, width_of
from treadle.compiler.cost.levels.peak import columns
from treadle.compiler.cost.reading.explicit import Walk, plan_of_explicit
from treadle.compiler.cost.symbolic.algebra import Expr, sympy
from treadle.compiler.machines.machine import WARP, Machine
from treadle.dialects.cuda.sums import MOST_COLUMNS
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of, level_of, sizes_of
from treadle.dialects.hierarchy import KernelOp, SelectOp
from treadle.dialects.hierarchy.bounded import is_factor, loaded_factor
from treadle.dialects.hierarchy.schedule import promoted_every

CHIP = "chip"
"""Shared memory and registers together: what the theory calls the memory of a group."""

Monomial: TypeAlias = tuple[tuple[str, int], ...]
"""Symbols with their powers, by name."""


@dataclass(frozen=True)
class SymbolicTransfer:
    """An array that crosses between device memory and a nearer level."""

    array: str
    level: str
    saves: bool
    width: int
    in_all: Expr
    """Values, of the whole launch."""
    per_group: Expr
    """Values, of one whole group; a stream's edge counts, a group's does not."""


@dataclass(frozen=True)
class SymbolicCosts:
    """What `symbolic_costs` reads; every expression is in values unless its name says bytes."""

    name: str
    groups: Mapping[str, Expr]
    """The group size of each axis that is cut into groups."""
    streams: Mapping[str, Expr]
    parts: Mapping[str, Expr]
    """What each block of a cluster has of an axis, where they share a group."""
    pieces: Mapping[Expr, int]
    """The sizes that were chosen, to put in: see `chosen`."""
    transfers: tuple[SymbolicTransfer, ...]
    memory: Mapping[str, tuple[Expr, ...]]
    """M of a level: the sums of those columns of which none is always the largest."""
    memory_bytes: Mapping[str, tuple[Expr, ...]]
    """The same in bytes."""
    operations: Mapping[str, Expr]
    """Of the whole launch, by unit: `tensor f16` in FLOP; `float`, `special` and `convert` in instructions of a lane;
    `shared` in bytes that products and copies move through shared memory. Edges count as far as they are there."""

    def transfer(self, level: str) -> Expr:
        """H of a level, of the whole launch."""
        return sympy.Add(*(each.in_all for each in self._at(level)))

    def transfer_bytes(self, level: str) -> Expr:
        return sympy.Add(*(each.width * each.in_all for each in self._at(level)))

    def transfer_of_group(self, level: str) -> Expr:
        return sympy.Add(*(each.per_group for each in self._at(level)))

    def peak(self, level: str) -> Expr:
        """M of a level for one group, edges aside; `chip` is `shared` and `register` together."""
        return sympy.Max(*self.memory[level]) if self.memory[level] else sympy.Integer(0)

    def chosen(self, expression: Expr) -> Expr:
        """The expression at the chosen sizes of the pieces."""
        return expression.subs(self.pieces)

    def _at(self, level: str) -> tuple[SymbolicTransfer, ...]:
        return tuple(each for each in self.transfers if level in ("device", CHIP, each.level))


def axis_symbol(axis: str) -> Expr:
    return sympy.Symbol(axis, integer=True, positive=True)


def group_symbol(axis: str) -> Expr:
    return axis_symbol(f"g_{axis}")


def stream_symbol(axis: str) -> Expr:
    return axis_symbol(f"s_{axis}")


def part_symbol(axis: str) -> Expr:
    """What each block of a cluster has of an axis, where they share a group."""
    return axis_symbol(f"c_{axis}")


def warps_symbol(axis: str) -> Expr:
    return axis_symbol(f"w_{axis}")


def closed(expression: Expr) -> Expr:
    """The value of an expression where all sizes divide."""
    return sympy.expand(expression.replace(sympy.ceiling, _itself))


def _itself(argument: Expr) -> Expr:
    return argument


def value_at(expression: Expr, sizes: Mapping[str, int]) -> int:
    """The value at sizes of the axes (and of pieces, if they stand in it, by the names of their symbols)."""
    value = expression.subs({axis_symbol(axis): size for axis, size in sizes.items()})
    return int(value)


def symbolic_costs(kernel: KernelOp, machine: Machine | None = None) -> SymbolicCosts:
    """Read an explicit kernel. Where warpgroups of the machine do its products, they read shared memory as those do; no
    machine is one without them."""
    grouped = machine is not None and bool(are_of_warpgroups(plan_of_explicit(kernel), machine))
    walk = _Walk(kernel, grouped=grouped)
    walk.block(kernel.body.block)
    return SymbolicCosts(
        name=kernel.kernel_name.data,
        groups={pieces.axis: group_symbol(pieces.axis) for pieces in walk.groups},
        streams={pieces.axis: stream_symbol(pieces.axis) for pieces in walk.streams},
        parts={axis: part_symbol(axis) for axis in walk.parts_of_blocks},
        pieces=walk.chosen(),
        transfers=tuple(walk.crossings),
        memory=_memory(kernel, walk, in_bytes=False),
        memory_bytes=_memory(kernel, walk, in_bytes=True),
        operations={unit: sympy.expand(count) for unit, count in walk.operations.items() if count != 0},
    )


@dataclass
class _Walk(Walk):
    """The walk of the numeric model, which also writes down expressions."""

    crossings: list[SymbolicTransfer] = field(default_factory=list[SymbolicTransfer])
    operations: dict[str, Expr] = field(default_factory=dict[str, Any])
    grouped: bool = False
    """Whether warpgroups multiply, of which four warps read a right operand together, and in each step a left one that
    is not in registers."""
    read_once: set[SSAValue] = field(default_factory=lambda: set[SSAValue]())
    """Left operands that are kept in registers, and already counted."""

    def chosen(self) -> dict[Expr, int]:
        return {
            **{group_symbol(pieces.axis): pieces.size for pieces in self.groups},
            **{stream_symbol(pieces.axis): pieces.size for pieces in self.streams},
            **{part_symbol(axis): size for axis, size in self.parts_of_blocks.items()},
            **{warps_symbol(axis): count for axis, count in self.warps.items()},
        }

    def crossing(self, array: SSAValue, piece: SSAValue, saves: bool) -> None:
        known = len(self.transfers)
        super().crossing(array, piece, saves)
        for transfer in self.transfers[known:]:  # of the array, and of the entries that tell where its elements are
            self._cross(transfer, piece)

    def _cross(self, transfer: Transfer, piece: SSAValue) -> None:
        of_group = sympy.Mul(*map(axis_symbol, transfer.axes)).subs(
            {axis_symbol(pieces.axis): group_symbol(pieces.axis) for pieces in self.groups}
        )
        repeated = prod((self._count(pieces) for pieces in self.inside if pieces.axis not in transfer.axes), start=1)
        in_all = self._in_all(transfer.axes)
        self.crossings.append(
            SymbolicTransfer(
                transfer.array, transfer.level, transfer.saves, transfer.width, in_all, of_group * repeated
            )
        )
        if transfer.level == "shared":
            self._add("shared", transfer.width * in_all)
            if not is_factor(piece):
                self._add("shared", transfer.width * self._reads(piece, once=False))

    def asking(self, array: SSAValue, op: SelectOp) -> Transfer:
        """At most a value for each cell of each piece."""
        transfer = super().asking(array, op)
        own = {axis: sympy.ceiling(axis_symbol(axis) / cell) for axis, cell in transfer.cells.items()}
        again = [self._count(pieces) for pieces in transfer.again]
        of_group = [
            sympy.ceiling(self.piece(axis) / transfer.cells[axis]) if self._is_grouped(axis) else count
            for axis, count in own.items()
        ]
        in_all, per_group = sympy.Mul(*own.values(), *again), sympy.Mul(*of_group)
        crossing = SymbolicTransfer(transfer.array, transfer.level, False, transfer.width, in_all, per_group)
        self.crossings.append(crossing)
        return transfer

    def _is_grouped(self, axis: str) -> bool:
        return any(pieces.axis == axis for pieces in self.groups)

    def compute(self, op: Operation) -> None:
        super().compute(op)
        for labour in labours_of(op):
            self._add(
                "float" if labour.kind == "lagging" else labour.kind,
                sympy.nsimplify(labour.factor) * self._in_all(labour.axes) * self._done_by(labour.axes),
            )
        if isinstance(op, ContractOp):
            self._multiply(op)

    def _multiply(self, op: ContractOp) -> None:
        every = self._in_all((*axes_of(op.result.type), *op.over_axes)) * self._done_by(axes_of(op.result.type))
        if not is_tensor_product(op):
            self._add("float", every)
            for operand in (op.lhs, op.rhs):  # lanes that share a row, or a column, ask for it each
                alike = WARP // FRAGMENT_ROWS if self.row in axes_of(operand.type) else FRAGMENT_ROWS
                self._add("shared", alike * width_of(operand.type) * self._reads(operand, once=False))
            return
        self._add(f"tensor {multiply_format(op)}", 2 * every)
        promoted = self._promote(op)
        spread = self.spread(*op.operands, *op.results)
        left = self.left(op)
        may_keep = not self.grouped or left == "kept"
        kept = may_keep and read_before(product_of(op, left, self.kernel.schedule), spread) > 0
        for operand in (op.lhs, op.rhs):
            has_rows = self.row is not None and self.row in axes_of(operand.type)
            if level_of(loaded_factor(operand).type) != "shared" and left == "registers" and has_rows:
                continue
            if kept and has_rows:  # once for all products, of all streams
                if operand in self.read_once:
                    continue
                self.read_once.add(operand)
            parts = promoted if has_rows else 1
            whole = self._done_by(axes_of(op.result.type)) if self.across in axes_of(operand.type) else 1
            self._add("shared", whole * parts * width_of(operand.type) * self._reads(operand, once=kept and has_rows))

    def _promote(self, op: ContractOp) -> Expr | int:
        """Count the additions of sums that warpgroups promote; gives in how many parts, each of which reads the left
        operand."""
        every = promoted_every(self.kernel.schedule, op) if self.grouped else 0
        if not every:
            return 1
        axes = axes_of(op.result.type)
        times = sympy.Mul(*(sympy.ceiling(self.piece(axis) / every) for axis in op.over_axes))
        self._add("float", times * self._in_all(axes))
        return sympy.ceiling(sympy.Mul(*(self.piece(axis) for axis in axes if axis != self.row)) / MOST_COLUMNS)

    def _done_by(self, axes: Iterable[str]) -> Expr | int:
        """How many warps do the same for an array with these axes, each all of it."""
        return 1 if self.across is None or self.across in axes else warps_symbol(self.across)

    def _reads(self, operand: SSAValue, once: bool) -> Expr:
        """Each warp, or warpgroup, reads the part of an operand that its part of the result needs."""
        warps = prod((warps_symbol(axis) for axis in self.warps if axis not in axes_of(operand.type)), start=1)
        if self.grouped and self.row is not None and self.row not in axes_of(operand.type):
            warps = warps / WARPGROUP
        inside = self.inside
        if once:
            self.inside = ()
        values = self._in_all(axes_of(operand.type))
        self.inside = inside
        return warps * values

    def _in_all(self, axes: Iterable[str]) -> Expr:
        """The elements of an array with these axes, over all groups and steps around the operation at hand."""
        axes = tuple(dict.fromkeys(axes))
        around = (*self.groups, *self.pieces_of_blocks, *self.inside)
        again = (self._count(pieces) for pieces in around if pieces.axis not in axes)
        return sympy.Mul(*map(axis_symbol, axes), *again)

    def _count(self, pieces: Pieces) -> Expr:
        return sympy.ceiling(axis_symbol(pieces.axis) / self.piece(pieces.axis))

    def piece(self, axis: str) -> Expr:
        """What a group or a step has of an axis."""
        if any(pieces.axis == axis for pieces in self.groups):
            return group_symbol(axis)
        if axis in self.parts_of_blocks:
            return part_symbol(axis)
        return stream_symbol(axis) if any(pieces.axis == axis for pieces in self.streams) else axis_symbol(axis)

    def _add(self, unit: str, count: Expr) -> None:
        self.operations[unit] = self.operations.get(unit, sympy.Integer(0)) + count


# -- memory -----------------------------------------------------------------------------------------


def _memory(kernel: KernelOp, walk: _Walk, in_bytes: bool) -> dict[str, tuple[Expr, ...]]:
    alive = list(columns(kernel))
    near = {
        level: _largest([_monomials(each, level, walk, in_bytes) for each in alive])
        for level in ("shared", "register", CHIP)
    }
    outside = (*kernel.inputs, *kernel.outputs)
    device = sympy.Add(
        *(_size(value, in_bytes) * sympy.Mul(*map(axis_symbol, sizes_of(value.type))) for value in outside)
    )
    return {"device": (device,), **near}


def _size(value: SSAValue, in_bytes: bool) -> int:
    """Of one element: a value, or its bytes."""
    return width_of(value.type) if in_bytes else 1


def _monomials(values: Iterable[SSAValue], level: str, walk: _Walk, in_bytes: bool) -> Counter[Monomial]:
    found: Counter[Monomial] = Counter()
    for value in values:
        if level in (CHIP, level_of(value.type)):
            names = Counter(walk.piece(axis).name for axis in axes_of(value.type))
            found[tuple(sorted(names.items()))] += _size(value, in_bytes)
    return found


def _largest(sums: list[Counter[Monomial]]) -> tuple[Expr, ...]:
    """Those sums of which no other has at least as much of everything."""
    kept: list[Counter[Monomial]] = []
    for each in sums:
        if any(each <= other for other in kept):
            continue
        kept = [other for other in kept if not other <= each]
        kept.append(each)
    return tuple(_sum(each) for each in kept if each)


def _sum(monomials: Counter[Monomial]) -> Expr:
    return sympy.Add(
        *(
            count * sympy.Mul(*(axis_symbol(name) ** power for name, power in monomial))
            for monomial, count in monomials.items()
        )
    )

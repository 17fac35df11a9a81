"""Which layout each fragment of a kernel has.

Layouts follow the products: a contraction's result has the accumulator's layout, what is computed from it element by
element keeps that, a reduction's result has the slice, and what only feeds a product as its left operand has that
operand's layout, which holds the same elements in the same threads. A kernel without products spreads its tiles in
rows of vectors over the lanes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from xdsl.ir import Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.pairs import by_lanes, taken_singly
from treadle.compiler.lowering.plan import KernelPlan, contiguous_axis, neighbours_in_vector, widest_vector
from treadle.dialects.cuda.layout import LANES, LayoutAttr, Mode, accumulator, row_operand
from treadle.dialects.cuda.products import DEPTHS
from treadle.dialects.diagram import (
    CastOp,
    ContractOp,
    FillOp,
    IndexOp,
    MapOp,
    ReduceOp,
    RenameOp,
    ScanOp,
    SwapOp,
    WhereOp,
)
from treadle.dialects.diagram.array import axes_of, format_of, is_array
from treadle.dialects.diagram.formats import BYTES, EIGHT_BIT, SIXTEEN_BIT
from treadle.dialects.hierarchy import LoadOp, StreamOp, YieldOp
from treadle.dialects.hierarchy.extracted import is_extracted

FROM_REGISTERS = ("m16n8k16", "m16n8k32", "m16n8k32_s32")
"""Instructions whose left operand may be what threads hold already."""


def instruction_of(plan: KernelPlan, op: ContractOp) -> str:
    """The instruction that a contraction runs on: tensor cores where formats and axes allow."""
    format = str(format_of(op.lhs.type))
    columns = columns_of(plan, op)
    one_depth = len([axis for axis in op.over_axes if plan.pieces[axis] != 1]) <= 1
    left, right = operands_of(plan, op)
    has_columns = columns is not None and columns in axes_of(right.type) and columns not in axes_of(left.type)
    if plan.rows is None or not one_depth or not has_columns:
        return "fma"
    along_rows = all(axes_of(operand.type)[-1:] == (depth_of(plan, op),) for operand in (left, right))
    if format in BYTES:
        return "m16n8k32_s32" if along_rows else "fma"
    if str(op.accumulate) != "f32":
        return "fma"
    if format in EIGHT_BIT:
        return "m16n8k32" if along_rows else "fma"
    if format in SIXTEEN_BIT:
        return "m16n8k16"
    return "m16n8k8_tf32" if op.is_tf32 else "fma"


def operands_of(plan: KernelPlan, op: ContractOp) -> tuple[SSAValue, SSAValue]:
    """The operands of a contraction with the one that has the rows first."""
    if plan.rows is not None and plan.rows in axes_of(op.rhs.type) and plan.rows not in axes_of(op.lhs.type):
        return op.rhs, op.lhs
    return op.lhs, op.rhs


def columns_of(plan: KernelPlan, op: ContractOp) -> str | None:
    """The wide axis of a contraction's result that is not its rows; None if there is none."""
    wide = [axis for axis in plan.wide_axes(op.result) if axis != plan.rows]
    if len(wide) > 1:
        raise Refusal(
            op,
            f"a product over [{', '.join(op.over_axes)}] has columns along {len(wide)} axes "
            f"({', '.join(wide)}): group all but one of them in pieces of 1",
        )
    return wide[0] if wide else None


def depth_of(plan: KernelPlan, op: ContractOp) -> str:
    """The wide axis that a contraction sums over, which both operands have."""
    for axis in op.over_axes:
        for operand, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            if axis not in axes_of(operand.type):
                raise Refusal(
                    op,
                    f"a product sums over '{axis}', which only one operand has: [{', '.join(axes_of(other.type))}], "
                    f"not [{', '.join(axes_of(operand.type))}]. Reduce that operand over '{axis}' first",
                )
    wide = [axis for axis in op.over_axes if plan.pieces[axis] != 1]
    if len(wide) > 1:
        raise Refusal(
            op,
            f"a product sums over {len(wide)} axes at once ({', '.join(wide)}): stream all but one in pieces of 1",
        )
    return wide[0] if wide else op.over_axes[0]


class Layouts:
    """Layouts of all fragments of one kernel, found by following the dataflow until nothing changes."""

    def __init__(self, plan: KernelPlan):
        self.plan = plan
        self.found: dict[SSAValue, LayoutAttr] = {}
        self.sources: dict[ReduceOp, LayoutAttr] = {}
        """How what is reduced lies, from when the layout of a result followed from it."""
        self.instructions = {op: instruction_of(plan, op) for op in plan.contractions}
        self.anchor = blocked(plan, _kernel_axes(plan)) if not plan.contractions else None
        for op in plan.group.walk():
            if isinstance(op, ReduceOp) and is_extracted(op.result):
                self._in_every_warp(op.operand)
        self.settled = False
        while self._sweep():
            pass
        self.settled = True
        while self._sweep():
            pass

    def of(self, value: SSAValue) -> LayoutAttr:
        """The layout of a value; one that nothing fixed is spread in rows."""
        return self.found.get(value) or self._rows(value)

    def _sweep(self) -> bool:
        before = len(self.found)
        for op in self.plan.group.walk():
            self._visit(op)
        return len(self.found) != before

    def _set(self, value: SSAValue, layout: LayoutAttr | None) -> None:
        if layout is not None and is_array(value.type):
            self.found.setdefault(value, layout)

    def _visit(self, op: Operation) -> None:
        match op:
            case MapOp() | CastOp() | WhereOp() if op.result in self.found:
                pass
            case ContractOp() if op.result in self.found and (op.init is None or op.init in self.found):
                pass
            case ContractOp():
                self._set(op.result, self._accumulator(op))
                if op.init is not None:
                    self._set(op.init, self._accumulator(op))
            case ReduceOp():
                self._reduce(op)
            case MapOp():
                self._set(op.result, self._unless_moved(self.left_operand(op.result), self._elementwise(op)))
            case RenameOp():
                self._set(op.result, self._rows(op.result))
            case SwapOp():
                self._set(op.result, self.found.get(op.operand) or self._demanded(op.operand))
            case CastOp() | WhereOp() if self.settled or not self._is_open(op.operand):
                operand = self.found.get(op.operand) or self._demanded(op.operand)
                self._set(op.result, self._unless_moved(self.left_operand(op.result), operand))
            case ScanOp():
                self._scan(op)
            case StreamOp():
                self._stream(op)
            case _:
                pass

    def _accumulator(self, op: ContractOp) -> LayoutAttr:
        plan = self.plan
        rows, columns = plan.rows or "", columns_of(plan, op) or ""
        row_warps = plan.warps.get(rows, 1)
        column_warps = plan.warps.get(columns, 1) if columns in (*plan.group_axes, plan.across) else 1
        if row_warps * column_warps != plan.warp_count and plan.across is None:
            raise Refusal(
                op,
                f"{plan.warp_count} warps ({plan.warps}) cannot share a product with rows along '{rows}' and "
                f"columns along '{columns}': put the warps along those axes",
            )
        row_tiles = _ceil(plan.pieces.get(rows, 1), 16 * row_warps)
        column_tiles = _ceil(plan.pieces.get(columns, 1), 8 * column_warps)
        if self._may_become_depth(columns):  # of another product, which takes 16 or 32 at a time
            column_tiles = _ceil(column_tiles, self._deepest(columns) // 8) * (self._deepest(columns) // 8)
        interleaved = column_warps == 1 and self._becomes_eight_bit(op, columns)
        along = (row_warps, column_warps if plan.across is None else 1)
        layout = accumulator(rows, columns, row_tiles, column_tiles, along, interleaved)
        if plan.across is not None:
            layout = layout.across(self._across(columns, 8 * column_tiles))
        return layout.slice(axis for axis in (rows, columns) if axis)

    def _across(self, columns: str, stride: int) -> Mode:
        """The digit of warps that lie across the others, of what has its columns along an axis: where that is another
        one than theirs, they have the same of it."""
        count = self.plan.warps[self.plan.across or ""]
        return Mode(columns, count, stride) if columns == self.plan.across else Mode("", count, 0)

    def _may_become_depth(self, axis: str) -> bool:
        """Whether a product sums over an axis of something that is computed, from another product, say."""
        over = (op for op in self.plan.contractions if axis in op.over_axes)
        return any(not isinstance(operand.owner, LoadOp) for op in over for operand in (op.lhs, op.rhs))

    def _deepest(self, axis: str) -> int:
        """The most elements along an axis that a product over it takes at a time, at least 16."""
        over = [op for op in self.plan.contractions if axis in op.over_axes]
        return max([16, *(DEPTHS.get(self.instructions[op], 16) for op in over)])

    def _becomes_eight_bit(self, op: ContractOp, columns: str) -> bool:
        """Whether what is computed from a product, rather than loaded, is the left operand of one of 8-bit numbers over
        its columns."""
        plan = self.plan
        along_rows = axes_of(operands_of(plan, op)[1].type)[-1:] == (depth_of(plan, op),)
        if self.instructions[op] not in FROM_REGISTERS or not along_rows:
            return False
        for other in plan.contractions:
            if self.instructions[other] != "m16n8k32" or columns not in other.over_axes:
                continue
            left = operands_of(plan, other)[0]
            if self._is_left(left) and not isinstance(left.owner, LoadOp) and depth_of(plan, other) == columns:
                return True
        return False

    def _unless_moved(self, wanted: LayoutAttr | None, found: LayoutAttr | None) -> LayoutAttr | None:
        """The layout of a left operand, if what it is made of is there already. Elements that lie in other threads go
        through shared memory in any case: then as the product's own tile, in its narrow format, and back by
        `ldmatrix`."""
        if wanted is None or found is None or found.spread() == wanted.spread():
            return wanted or found
        return found

    def left_operand(self, value: SSAValue) -> LayoutAttr | None:
        """The layout of a left operand, for a value that has no other use."""
        plan = self.plan
        uses = [use.operation for use in value.uses]
        if not uses or plan.rows is None or plan.rows not in axes_of(value.type):
            return None
        if not self._is_left(value):
            return None
        depth = depth_of(plan, next(use for use in uses if isinstance(use, ContractOp)))
        rows, pack = plan.rows, 4 // format_of(value.type).size
        along = plan.warps.get(rows, 1)
        row_tiles = _ceil(plan.pieces[rows], 16 * along)
        warps = (Mode("", plan.warp_count // along, 0), Mode(rows, along, 16 * row_tiles))
        return row_operand(rows, depth, row_tiles, _ceil(plan.pieces[depth], 8 * pack), warps, pack)

    def _is_left(self, value: SSAValue) -> bool:
        """Whether a value is nothing but the left operand of products that take that from registers."""
        plan = self.plan
        if plan.warps.get(plan.rows or "", 1) != plan.warp_count and plan.across in (None, *axes_of(value.type)):
            return False
        return all(
            isinstance(use.operation, ContractOp)
            and self.instructions[use.operation] in FROM_REGISTERS
            and operands_of(plan, use.operation)[0] is value
            for use in value.uses
        )

    def reduced(self, op: ReduceOp) -> LayoutAttr | None:
        """The layout of what is reduced. A number that every thread needs is worked out by every warp."""
        if is_extracted(op.result):
            return in_every_warp(self.plan, op.operand)
        return self.sources.get(op) or self.found.get(op.operand) or self._demanded(op.operand)

    def _in_every_warp(self, value: SSAValue) -> None:
        """Let every warp make an array itself, and what that is made of element by element."""
        if isinstance(value.owner, LoadOp | FillOp | IndexOp | MapOp | CastOp | WhereOp):
            self._set(value, in_every_warp(self.plan, value))
        if isinstance(value.owner, MapOp | CastOp | WhereOp):
            for operand in value.owner.operands:
                self._in_every_warp(operand)

    def _reduce(self, op: ReduceOp) -> None:
        layout = self.reduced(op)
        if layout is None:
            return
        for mode in layout.warp if self.plan.contractions else ():
            if mode.axis in op.over_axes:
                raise Refusal(
                    op,
                    f"warps lie along axis '{mode.axis}', over which '{op.kind.data}' reduces: "
                    "put the warps along another axis",
                )
        self.sources[op] = layout
        self._set(op.result, layout.slice(axes_of(op.result.type)))
        if op.init is not None:
            self._set(op.init, layout.slice(axes_of(op.result.type)))

    def _scan(self, op: ScanOp) -> None:
        """What is scanned lies as what it gives; what that begins with, as a reduction of it would."""
        layout = self.found.get(op.operand) or self._demanded(op.operand)
        self._set(op.result, layout)
        if layout is not None and op.init is not None:
            self._set(op.init, layout.slice(axes_of(op.init.type)))

    def _elementwise(self, op: MapOp) -> LayoutAttr | None:
        wanted = set(self.plan.wide_axes(op.result))
        anywhere = [operand for operand in op.inputs if isinstance(operand.owner, LoadOp | FillOp | IndexOp)]
        for operand in op.inputs:
            layout = self.found.get(operand)
            if layout is not None and operand not in anywhere and wanted <= set(layout.axes()):
                return layout.slice(axes_of(op.result.type))
        if any(self._is_open(operand) for operand in op.inputs):
            return None  # a state whose layout a later operation fixes
        for operand in anywhere:
            layout = self.found.get(operand)
            if layout is not None and wanted <= set(layout.axes()):
                return layout.slice(axes_of(op.result.type))
        for layout in self.found.values():
            if wanted <= set(layout.axes()):
                return layout.slice(axes_of(op.result.type))
        return self._rows(op.result)

    def _is_open(self, value: SSAValue) -> bool:
        """Whether a later operation may still fix the layout: the state or the result of a stream."""
        return (
            value not in self.found and is_array(value.type) and not isinstance(value.owner, LoadOp | FillOp | IndexOp)
        )

    def _demanded(self, value: SSAValue) -> LayoutAttr | None:
        """The layout that a loaded or filled value takes when nothing but a reduction or cast asks for it."""
        if isinstance(value.owner, LoadOp | FillOp | IndexOp):
            wanted = set(self.plan.wide_axes(value))
            for layout in self.found.values():
                if wanted <= set(layout.axes()):
                    return layout.slice(axes_of(value.type))
            return self._rows(value)
        return None

    def _stream(self, op: StreamOp) -> None:
        ends = (op.initialise.block.last_op, op.step.block.last_op)
        results = zip(op.outputs, _operands(op.finish.block.last_op), strict=True)
        for i, arg in enumerate(op.step.block.args):
            values = [arg, op.finish.block.args[i], *(_operands(end)[i] for end in ends)]
            if op.border is not None:
                values += [op.border.block.args[i], _operands(op.border.block.last_op)[i]]
            layout = next((self.found[value] for value in values if value in self.found), None)
            for value in values:
                self._set(value, layout)
        for output, value in results:
            self._set(output, self.found.get(value))

    def _rows(self, value: SSAValue) -> LayoutAttr:
        if self.anchor is not None:
            return self.anchor.slice(axes_of(value.type))
        whole = reduced_axes(value)
        return blocked(self.plan, {axis: self.plan.pieces[axis] for axis in self.plan.wide_axes(value)}, whole)


def _operands(op: Operation | None) -> tuple[SSAValue, ...]:
    assert isinstance(op, YieldOp)
    return tuple(op.operands)


def _kernel_axes(plan: KernelPlan) -> dict[str, int]:
    """Wide axes of everything the kernel holds."""
    axes: dict[str, int] = {}
    for op in plan.group.walk():
        for result in op.results:
            axes |= {axis: plan.pieces[axis] for axis in plan.wide_axes(result)}
    return axes


def reduced_axes(value: SSAValue) -> set[str]:
    """The axes over which a value, or what is computed from it element by element, is reduced."""
    axes: set[str] = set()
    stack, seen = [value], {value}
    while stack:
        for use in stack.pop().uses:
            op = use.operation
            if isinstance(op, ReduceOp):
                axes |= set(op.over_axes)
            elif isinstance(op, CastOp | MapOp | ScanOp | WhereOp) and op.result not in seen:
                axes |= {op.axis.data} if isinstance(op, ScanOp) else set()
                seen.add(op.result)
                stack.append(op.result)
    return axes


def blocked(plan: KernelPlan, axes: Mapping[str, int], whole: Container[str] = ()) -> LayoutAttr:
    """A tile in rows of vectors: the contiguous axis over neighbouring lanes, 16 bytes each; lanes that are left
    over, and the warps, over the other axes. An axis in `whole` is not divided among warps beside products: threads of
    one warp reduce over it together. Where what is loaded has its rows along another axis, a lane has a word of these,
    too: it reads words, and turns them in registers."""
    main = contiguous_axis(plan, axes)
    names = [axis for axis in axes if axis != main] + [axis for axis in axes if axis == main]
    if main not in axes and names:
        main = names[-1]
    across, most = _turned_rows(plan, main, axes)
    warps = _spread_warps(plan, names, whole)
    lanes_left = LANES
    modes: dict[str, tuple[Mode, Mode, Mode, Mode]] = {}
    singly, others = taken_singly(plan.kernel), [axis for axis in names if axis != main]
    for axis in (*names[-1:], *reversed(by_lanes(plan.kernel, others))):
        size = axes[axis]
        held = min(widest_vector(plan), _floor_power(size)) if axis == main and axis not in singly else 1
        if axis == across:
            held = min(most, _floor_power(size))
        vector = min(neighbours_in_vector(plan, axes), held)
        count = warps.get(axis, 1)
        # Lanes that the other warps make idle along this axis lie along another one, if there is one.
        together = held * (count if len(names) > 1 else 1)
        lanes = min(lanes_left, _ceil_power(_ceil(size, together)))
        lanes_left //= lanes
        turns = Mode(axis, _ceil(size, vector * lanes * count), vector * lanes * count)
        modes[axis] = turns, Mode(axis, vector, 1), Mode(axis, lanes, vector), Mode(axis, count, vector * lanes)
    listed = [modes[axis] for axis in reversed(by_lanes(plan.kernel, names[::-1]))]
    register, inner, lane, warp = zip(*listed, strict=True) if names else ((), (), (), ())
    replicas = Mode("", lanes_left, 0)
    idle = Mode("", plan.warp_count // _product(warps.values()), 0)
    return LayoutAttr((*register, *inner), (replicas, *lane), (idle, *warp))


def _turned_rows(plan: KernelPlan, main: str | None, axes: Mapping[str, int]) -> tuple[str | None, int]:
    """The axis along which an array that is loaded has its rows, if threads have theirs along another one; and how many
    neighbours of it a thread takes: a word, but only as long as every thread has some. (Where nothing is reduced: that
    is done along the rows of lanes.)"""
    if main is None or plan.contractions or any(isinstance(op, ReduceOp) for op in plan.group.walk()):
        return None, 1
    for op in plan.group.walk():
        rows = list(plan.wide_axes(op.result)) if isinstance(op, LoadOp) else []
        if main in rows and rows[-1] != main and rows[-1] in axes:
            threads = LANES * plan.warp_count * min(neighbours_in_vector(plan, axes), axes[main])
            word = max(4 // format_of(op.results[0].type).size, 1)
            return rows[-1], min(word, _floor_power(_product(axes.values()) // threads))
    return None, 1


def in_every_warp(plan: KernelPlan, value: SSAValue) -> LayoutAttr:
    """A tile over the lanes of each warp, the same in all."""
    lanes_left = LANES
    register: list[Mode] = []
    lane: list[Mode] = []
    for axis in reversed(plan.wide_axes(value)):
        lanes = min(lanes_left, _ceil_power(plan.pieces[axis]))
        lanes_left //= lanes
        lane.insert(0, Mode(axis, lanes, 1))
        register.insert(0, Mode(axis, _ceil(plan.pieces[axis], lanes), lanes))
    return LayoutAttr(tuple(register), (Mode("", lanes_left, 0), *lane), (Mode("", plan.warp_count, 0),))


def _spread_warps(plan: KernelPlan, names: list[str], whole: Container[str]) -> dict[str, int]:
    """Warps along each axis of what lies in rows: as the schedule says. Those that it puts along others would do the
    same over again: beside products, they share what lies along the first axis that nothing reduces."""
    given = {axis: count for axis, count in plan.warps.items() if axis in names}
    if not plan.contractions:
        return given
    shared = dict.fromkeys(
        [axis for axis in names if axis not in whole][:1], plan.warp_count // _product(given.values())
    )
    return given | {axis: count * given.get(axis, 1) for axis, count in shared.items()}


def _product(numbers: Iterable[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def _ceil(size: int, piece: int) -> int:
    return -(-size // piece)


def _floor_power(number: int) -> int:
    return 1 << max(number.bit_length() - 1, 0)


def _ceil_power(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()

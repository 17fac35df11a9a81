"""Emit the body of one `cuda.kernel` from a kernel in explicit form."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import (
    AnyFloat,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    UnitAttr,
    i32,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.absent import INTEGER_NEUTRAL, NEUTRAL, filler_of, kept_if, neutral_number
from treadle.compiler.lowering.barriers import insert_barriers
from treadle.compiler.lowering.conversions import renumbered, staging_rows, stays_in_threads
from treadle.compiler.lowering.layouts import Layouts, columns_of, depth_of, operands_of
from treadle.compiler.lowering.plan import FORMAT_BYTES, KernelPlan
from treadle.compiler.lowering.runs import Run, RunWriter, twins
from treadle.dialects import cuda
from treadle.dialects.cuda.fragments import PARTIAL, lane_masks
from treadle.dialects.cuda.layout import LayoutAttr, Mode, RowsAttr, row_operand, rows_layout
from treadle.dialects.cuda.shared import place_tiles
from treadle.dialects.cuda.tiles import is_shared, layout_of
from treadle.dialects.diagram import CastOp, ContractOp, ExtentOp, FillOp, IndexOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import (
    DYNAMIC,
    ArrayEncoding,
    Format,
    Number,
    array_type,
    axes_of,
    format_of,
    is_array,
    sizes_of,
)
from treadle.dialects.diagram.condition import Term, terms_of
from treadle.dialects.hierarchy import LoadOp, PieceOp, SaveOp, StreamOp, YieldOp

OperationT = TypeVar("OperationT", bound=Operation)

MOST_SHARED_FRAGMENTS = 32
"""Registers that a left operand may take for the whole of a stream."""


def neutral_of(kind: str, format: Format) -> Number:
    """The neutral element of a reduction, in a format."""
    return _number_in(format, (INTEGER_NEUTRAL if str(format) == "i32" else NEUTRAL)[kind])


def _number_in(format: Format, number: float) -> Number:
    if str(format) == "i32":
        return IntegerAttr(int(number), i32)
    return FloatAttr(float(number), cast(AnyFloat, format))


@dataclass(frozen=True)
class PendingLoad:
    """A piece that goes to registers: loaded where it is used, in the layout that the use asks for."""

    op: LoadOp
    buffer: SSAValue
    offsets: tuple[SSAValue, ...]
    bounds: tuple[tuple[str, SSAValue], ...]
    block: Block
    """Where the piece is loaded: once, whatever loop uses it."""
    loaded: dict[Attribute, SSAValue]
    """Its fragments, by type, as far as they were asked for."""


@dataclass(frozen=True)
class PendingFill:
    """A constant array: made where it is used."""

    op: FillOp


@dataclass(frozen=True)
class PendingIndex:
    """Positions along an axis: made where they are used."""

    axis: str
    offset: SSAValue


Lowered = SSAValue | PendingLoad | PendingFill | PendingIndex


@dataclass
class KernelLowering:
    """The state of lowering one kernel: what became of each value, where pieces start, what shared memory holds."""

    plan: KernelPlan
    layouts: Layouts
    arguments: dict[SSAValue, SSAValue]
    """Buffers and scalars of the source kernel, in the new one."""
    size_arguments: dict[str, SSAValue]
    """Sizes of symbolic axes."""
    values: dict[SSAValue, Lowered] = field(default_factory=dict[Any, Any])
    offsets: dict[str, SSAValue] = field(default_factory=dict[Any, Any])
    partial: str | None = None
    """The streamed axis, in the last piece."""
    bounded: set[str] = field(default_factory=set[Any])
    """Axes whose piece may reach past the end here."""
    tiles: dict[object, SSAValue] = field(default_factory=dict[Any, Any])
    allocated: list[cuda.SharedOp] = field(default_factory=list[cuda.SharedOp])
    left_fragments: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Left operands that the steps of a stream share, by tile: read once, before the loop."""
    unfilled: set[WhereOp] = field(default_factory=set[WhereOp])
    """Conditions that are tested before each reduction, because no one number serves for what they exclude."""
    twins: dict[Operation, Operation] = field(default_factory=dict[Operation, Operation])
    """For operations of a border, the operation of the step that does the same."""
    apart: set[ReduceOp] = field(default_factory=set[ReduceOp])
    """Sums of a stream whose lanes keep to their own elements until it ends."""
    shared_bytes: int = 0
    block: Block = field(default_factory=Block)
    """Where operations are appended."""
    top: Block = field(default_factory=Block)
    """The body of the kernel, at whose beginning tiles are declared."""

    # -- entry -------------------------------------------------------------------------------------

    def lower(self, block: Block) -> None:
        """Fill `block`, the body of the new kernel."""
        self.top = self.block = block
        self.values |= self.arguments
        self._locate_group()
        for op in self.plan.group.body.block.ops:
            self._lower_op(op)
        self.shared_bytes = place_tiles(self.allocated)
        insert_barriers(block)

    def _emit(self, op: OperationT) -> OperationT:
        self.block.add_op(op)
        return op

    def _index(self, number: int) -> SSAValue:
        return self._emit(arith.ConstantOp.from_int_and_width(number, IndexType())).result

    @contextmanager
    def _inside(self, block: Block) -> Generator[None]:
        """Append to another block for a while."""
        outside, self.block = self.block, block
        yield
        self.block = outside

    # -- sizes and offsets -------------------------------------------------------------------------

    def _size(self, axis: str) -> SSAValue:
        size = self.plan.sizes[axis]
        return self.size_arguments[axis] if size == DYNAMIC else self._index(size)

    def _offset(self, axis: str) -> SSAValue:
        return self.offsets[axis] if axis in self.offsets else self._index(0)

    def _locate_group(self) -> None:
        """Split the index of the block into one piece of each grouped axis, the last axis fastest."""
        self.bounded |= {axis for axis in self.plan.group_axes if self._may_reach_past(axis)}
        counted = [axis for axis in self.plan.group_axes if self._pieces(axis) != 1]
        if not counted:
            return
        index = self._emit(cuda.BlockIndexOp())
        cut = ", ".join(f"{axis} in pieces of {self.plan.group_axes[axis]}" for axis in counted)
        index.attributes["comment"] = StringAttr(f"tiling: one block for each piece: {cut}")
        rest = _named(index.result, "block")
        for axis in reversed(counted):
            piece, static = self.plan.group_axes[axis], self._pieces(axis)
            position = rest
            if axis != counted[0]:
                count = self._index(static) if static is not None else self._count(axis, piece)
                position = self._emit(arith.RemUIOp(rest, count)).result
                rest = self._emit(arith.DivUIOp(rest, count)).result
                _named(rest, "block")
            start = position if piece == 1 else self._emit(arith.MuliOp(position, self._index(piece))).result
            self.offsets[axis] = _named(start, f"{axis}0")

    def _may_reach_past(self, axis: str) -> bool:
        """Whether the last piece of a grouped axis may reach past its end."""
        size, piece = self.plan.sizes[axis], self.plan.group_axes[axis]
        return piece != 1 and (size == DYNAMIC or size % piece != 0)

    def _pieces(self, axis: str) -> int | None:
        """How many pieces a grouped axis has; None if that is known only at launch."""
        size, piece = self.plan.sizes[axis], self.plan.group_axes[axis]
        return None if size == DYNAMIC else -(-size // piece)

    def _count(self, axis: str, piece: int) -> SSAValue:
        if piece == 1:
            return self._size(axis)
        return _named(self._emit(arith.CeilDivUIOp(self._size(axis), self._index(piece))).result, f"{axis}_pieces")

    def _bounds(self, axes: Sequence[str]) -> tuple[tuple[str, SSAValue], ...]:
        return tuple((axis, self._size(axis)) for axis in axes if axis in self.bounded)

    def _partial(self, bounds: Sequence[tuple[str, SSAValue]]) -> UnitAttr | None:
        return UnitAttr() if any(axis == self.partial for axis, _ in bounds) else None

    # -- operations --------------------------------------------------------------------------------

    def _lower_op(self, op: Operation) -> None:
        match op:
            case LoadOp():
                self._load(op)
            case SaveOp():
                self._save(op)
            case StreamOp():
                self._stream(op)
            case ContractOp():
                self.values[op.result] = self._contract(op)
            case ReduceOp():
                self.values[op.result] = self._reduce(op)
            case MapOp():
                self.values[op.result] = self._map(op)
            case CastOp():
                self.values[op.result] = self._cast(op)
            case WhereOp():
                self.values[op.result] = self._where(op)
            case FillOp():
                self.values[op.result] = PendingFill(op)
            case IndexOp():
                self.values[op.result] = PendingIndex(op.axis, self._offset(op.axis))
            case ExtentOp():
                extent = self._emit(arith.IndexCastOp(self._size(op.axis.data), i32))
                self.values[op.result] = _hinted(extent.result, op.result)
            case PieceOp():
                self._piece(op)
            case tensor.ExtractOp():
                self.values[op.result] = self._extract(op)
            case _ if op.dialect_name() == "arith":
                self._clone_scalar(op)
            case _:
                raise Refusal(op, f"'{op.name}' in a kernel has no lowering to cuda")

    def _piece(self, op: PieceOp) -> None:
        """Where a piece begins and where it ends."""
        axis = op.axis.data
        first, size = self._offset(axis), self._size(axis)
        end = size
        if axis in self.offsets:
            end = self._emit(arith.AddiOp(first, self._index(self.plan.pieces[axis]))).result
            end = self._emit(arith.MinSIOp(end, size)).result if axis in self.bounded else end
        self.values[op.first], self.values[op.end] = first, end
        if axis in self.offsets:
            _hinted(end, op.end)

    def _extract(self, op: tensor.ExtractOp) -> SSAValue:
        """The one element of a tile, which every thread holds."""
        fragment = self._fragment(op.tensor, self.layouts.of(op.tensor))
        extract = self._emit(tensor.ExtractOp(fragment, [self._scalar(index) for index in op.indices], op.result.type))
        return _hinted(extract.result, op.result)

    def _clone_scalar(self, op: Operation) -> None:
        mapping = {operand: self._scalar(operand) for operand in op.operands}
        clone = op.clone(value_mapper=mapping)
        self._emit(clone)
        self.values |= dict(zip(op.results, clone.results, strict=True))

    def _scalar(self, value: SSAValue) -> SSAValue:
        lowered = self.values[value]
        assert isinstance(lowered, SSAValue)
        return lowered

    def _load(self, op: LoadOp) -> None:
        axes = axes_of(op.result.type)
        source = self._scalar(op.source)
        offsets = tuple(self._offset(axis) for axis in axes)
        bounds = self._bounds(axes)
        pending = PendingLoad(op, source, offsets, bounds, self.block, {})
        if not self._feeds_product(op.result):
            self.values[op.result] = pending
            return
        tile = self._tile(self._twin(op), op.result)
        copy = self._emit(cuda.CopyOp(source, offsets, tile, bounds))
        copy.location = op.location
        copy.partial = self._partial(bounds)
        self.values[op.result] = tile

    def _feeds_product(self, value: SSAValue) -> bool:
        return any(isinstance(use.operation, ContractOp) for use in value.uses)

    def _save(self, op: SaveOp) -> None:
        axes = axes_of(op.value.type)
        destination = self._scalar(op.destination)
        value = self._fragment(op.value, self.layouts.of(op.value))
        value = self._present(op.value, value, self.layouts.of(op.value), 0)
        offsets = [self._offset(axis) for axis in axes]
        bounds = self._bounds(axes)
        if self._is_scattered(op.value, layout_of(value.type)):
            value = self._gather(op.value, value)
        if is_shared(value.type):
            store = self._emit(cuda.CopyOp(value, offsets, destination, bounds))
        else:
            store = self._emit(cuda.StoreOp(value, destination, offsets, bounds))
        store.location = op.location
        store.partial = self._partial(bounds)

    def _is_scattered(self, value: SSAValue, layout: LayoutAttr) -> bool:
        """Whether the fragments of a result hold too few neighbours to fill the sectors they would write: pairs of
        16-bit elements, of which four lanes make half a sector. A result of the last step only, since its tile takes
        the place of all others."""
        if (
            self.block is not self.top
            or not self.plan.contractions
            or str(format_of(value.type)) not in ("f16", "bf16")
        ):
            return False
        modes = tuple(layout.register)
        wide = self.plan.wide_axes(value)
        return bool(modes and wide) and modes[-1] == Mode(wide[-1], 2, 1) and layout.extent(wide[-1]) >= 16

    def _gather(self, value: SSAValue, fragments: SSAValue) -> SSAValue:
        """The fragments of a result in shared memory, whence they leave in full rows."""
        layout = layout_of(fragments.type)
        extents = [max(size, layout.extent(axis)) for axis, size in sizes_of(value.type).items()]
        rows = rows_layout(extents, 16 // FORMAT_BYTES[str(format_of(value.type))])
        tile = self._allocate(value, rows, alias=True)
        self._emit(cuda.WriteOp(fragments, tile.result))
        return tile.result

    def _map(self, op: MapOp) -> SSAValue:
        layout = self.layouts.of(op.result)
        inputs = [self._operand(operand, layout) for operand in op.inputs]
        body = op.body.clone()
        result = self._emit(MapOp(inputs, self._type(op.result, layout), body))
        return _placed(result, op, result.result, op.result)

    def _cast(self, op: CastOp) -> SSAValue:
        layout = self.layouts.of(op.result)
        result = self._emit(CastOp(self._operand(op.operand, layout), self._type(op.result, layout)))
        return _placed(result, op, result.result, op.result)

    def _where(self, op: WhereOp) -> SSAValue:
        """What a condition keeps, and in the place of the rest what changes nothing later, if one number does."""
        layout = self.layouts.of(op.result)
        value = self._fragment(op.operand, layout)
        filler = filler_of(op)
        if filler is None:
            self.unfilled.add(op)
            return value
        kept, result = self._kept(op, value, layout, filler)
        return _placed(kept, op, result, op.result)

    def _kept(self, op: WhereOp, value: SSAValue, layout: LayoutAttr, other: float) -> tuple[MapOp, SSAValue]:
        condition = op.holds
        terms: dict[Term, SSAValue] = {}
        for term in terms_of(condition):
            if term not in terms:
                terms[term] = (
                    self._operand(term, layout) if isinstance(term, SSAValue) else self._positions(term, layout)
                )
        kept = self._emit(kept_if(value, condition, terms, _number_in(format_of(value.type), other)))
        return kept, kept.result

    def _positions(self, axis: Term, layout: LayoutAttr) -> SSAValue:
        name = str(axis)
        type = array_type(i32, {name: self.plan.pieces[name]}, "register", layout.slice([name]))
        return _named(self._emit(cuda.IndexOp(self._offset(name), type)).result, f"at_{name}")

    def _present(self, source: SSAValue, value: SSAValue, layout: LayoutAttr, other: float) -> SSAValue:
        """A fragment of `source` with a number in the place of absent elements, where none stands there yet."""
        for op in absences(source) & self.unfilled:
            _, value = self._kept(op, value, layout, other)
            _hinted(value, source)
        return value

    def _reduce(self, op: ReduceOp) -> SSAValue:
        source = self.layouts.reduced(op) or self.layouts.of(op.operand)
        layout = source.slice(axes_of(op.result.type))
        value = self._fragment(op.operand, source)
        value = self._present(op.operand, value, source, neutral_number(op.kind.data, value))
        for axis in op.over_axes:
            value = self._masked(value, axis, neutral_of(op.kind.data, format_of(value.type)), source)
        init = None if op.init is None else self._fragment(op.init, layout)
        result = self._emit(ReduceOp(op.kind.data, value, op.over_axes, self._type(op.result, layout), init))
        if op in self.apart:
            result.attributes[PARTIAL] = UnitAttr()
        return _placed(result, op, result.result, op.result)

    def _contract(self, op: ContractOp) -> SSAValue:
        instruction = self.layouts.instructions[op]
        layout = self.layouts.of(op.result)
        depth = depth_of(self.plan, op)
        rows, columns = operands_of(self.plan, op)
        left = self._product_operand(op, rows, depth, in_registers=instruction == "m16n8k16")
        same = columns is rows and is_shared(left.type)
        right = left if same else self._product_operand(op, columns, depth, in_registers=False)
        type = array_type(op.accumulate, sizes_of(op.result.type), "register", layout)
        if op.init is not None and format_of(op.init.type) != op.accumulate:
            raise Refusal(
                op,
                f"a product is added to {format_of(op.init.type)}, but accumulated in {op.accumulate}: "
                "keep the state of a stream in the accumulator's format",
            )
        if str(op.accumulate) in ("f16", "bf16"):
            raise Refusal(
                op,
                f"kernels accumulate products in f32 or i32, not in {op.accumulate}: write 'accumulate f32', and cast "
                "the result if it is to be narrow",
            )
        init = (
            self._fill(type, neutral_of("add", format_of(type)), op.result)
            if op.init is None
            else self._fragment(op.init, layout)
        )
        product = self._emit(cuda.ProductOp(left, right, init, depth, instruction))
        result = _placed(product, op, product.result, op.result)
        if format_of(op.result.type) == op.accumulate:
            return result
        cast = self._emit(CastOp(result, self._type(op.result, layout)))
        return _placed(cast, op, cast.result, op.result)

    def _product_operand(self, op: ContractOp, operand: SSAValue, depth: str, in_registers: bool) -> SSAValue:
        """A tile in shared memory, or fragments in the layout of a left operand."""
        lowered = self.values[operand]
        if isinstance(lowered, SSAValue) and is_shared(lowered.type):
            return self._left_fragments(lowered, depth) if in_registers else lowered
        layout = self.layouts.of(operand)
        value = self._fragment(operand, layout)
        zero = neutral_of("add", format_of(value.type))
        value = self._present(operand, value, layout, 0)
        value = self._masked(value, depth, zero, layout)
        if in_registers and _is_left_operand(layout, self.plan, depth):
            return value
        tile = self._tile((self._twin(op), 0 if operand is op.lhs else 1), operand)
        self._emit(cuda.WriteOp(value, tile))
        return tile

    def _left_fragments(self, tile: SSAValue, depth: str) -> SSAValue:
        """A left operand that all steps of a stream share is read into registers once, if it takes few of them."""
        if self.block is self.top or self.offsets.keys() & set(axes_of(tile.type)) - self.plan.group_axes.keys():
            return tile
        rows, warps = self.plan.rows, self.plan.warps.get(self.plan.rows or "", 1)
        if rows is None:
            return tile
        row_tiles = -(-self.plan.pieces[rows] // (16 * warps))
        depth_tiles = -(-self.plan.pieces[depth] // 16)
        if 4 * row_tiles * depth_tiles > MOST_SHARED_FRAGMENTS:
            return tile
        if tile not in self.left_fragments:
            along = (Mode(rows, warps, 16 * row_tiles), Mode("", self.plan.warp_count // warps, 0))
            layout = row_operand(rows, depth, row_tiles, depth_tiles, along)
            type = array_type(format_of(tile.type), sizes_of(tile.type), "register", layout)
            with self._inside(self.top):
                read = self._emit(cuda.ReadOp(tile, type))
            self.left_fragments[tile] = _named(read.result, (tile.name_hint or "").removesuffix("_shared") or None)
        return self.left_fragments[tile]

    # -- streams -----------------------------------------------------------------------------------

    def _stream(self, op: StreamOp) -> None:
        for inner in op.initialise.block.ops:
            if not isinstance(inner, YieldOp):
                self._lower_op(inner)
        states = op.step.block.args
        state = [
            _named(self._fragment(value, self.layouts.of(arg)), plain_name(arg))
            for value, arg in zip(_yielded(op.initialise), states, strict=True)
        ]
        apart = [sums_of_own_elements(op, i) for i in range(len(states))]
        self.apart |= {reduce for reduces in apart for reduce in reduces}
        self.twins |= twins(op)
        state = self._full_axis(op, state) if op.fed is None else self._selected(op, state)
        for arg, value, reduces in zip(op.finish.block.args, state, apart, strict=True):
            self.values[arg] = self._combined(reduces[0], value, arg) if reduces else value
        for inner in op.finish.block.ops:
            if not isinstance(inner, YieldOp):
                self._lower_op(inner)
        for output, value in zip(op.outputs, _yielded(op.finish), strict=True):
            self.values[output] = self.values[value]

    def _full_axis(self, op: StreamOp, state: list[SSAValue]) -> list[SSAValue]:
        """All pieces of the axis."""
        axis, piece, size = op.axis, op.size, self.plan.sizes[op.axis]
        zero = self._index(0)
        if size == DYNAMIC:
            rest = self._emit(arith.RemUIOp(self._size(axis), self._index(piece))).result
            full = _named(self._emit(arith.SubiOp(self._size(axis), rest)).result, f"{axis}_full")
        else:
            full = self._index(size // piece * piece)
        if size == DYNAMIC or size >= piece:
            state = self._pieces_of(op, Run(op.step, zero, full, True), state)
        if size == DYNAMIC or size % piece:
            end = self._size(axis) if size == DYNAMIC else None
            state = self._last_piece(op, full, end, state)
        return state

    def _selected(self, op: StreamOp, state: list[SSAValue]) -> list[SSAValue]:
        """The pieces that conditions leave."""

        def emit(new: Operation) -> SSAValue:
            return self._emit(new).results[0]

        for run in RunWriter(op, emit, self._size(op.axis), self._scalar).runs():
            if run.is_full or op.border is not None:
                state = self._pieces_of(op, run, state)
            elif self._has_part(op):
                state = self._last_piece(op, run.start, run.end, state)
        return state

    def _has_part(self, op: StreamOp) -> bool:
        """Whether the last piece of a streamed axis may be smaller."""
        size = self.plan.sizes[op.axis]
        return size == DYNAMIC or size % op.size != 0

    def _combined(self, reduce: ReduceOp, value: SSAValue, arg: SSAValue) -> SSAValue:
        """The whole of a sum whose lanes kept to their own elements during a stream."""
        masks = lane_masks(self.layouts.of(reduce.operand), reduce.over_axes)
        if not masks:
            return value
        combine = self._emit(cuda.CombineOp(reduce.kind.data, value, masks))
        return _named(combine.result, plain_name(arg))

    def _pieces_of(self, op: StreamOp, run: Run, state: list[SSAValue]) -> list[SSAValue]:
        """A loop over the pieces of a run."""
        body = Block(arg_types=[IndexType(), *(value.type for value in state)])
        _named(body.args[0], f"{op.axis}0")
        for arg, source in zip(body.args[1:], op.step.block.args, strict=True):
            _hinted(arg, source)
        step = self._index(op.size)
        is_bounded = not run.is_full and self._has_part(op)
        self.bounded |= {op.axis} if is_bounded else set()
        with self._inside(body):
            self._emit(scf.YieldOp(*self._step(op, run.region, body.args[0], list(body.args[1:]))))
        self.bounded -= {op.axis}
        loop = self._emit(scf.ForOp(run.start, run.end, step, state, body))
        loop.location = op.location
        which = f", {run.where}" if run.where else ""
        loop.attributes["comment"] = StringAttr(f"streaming: {op.axis} in pieces of {op.size}{which}")
        for result, source in zip(loop.results, op.step.block.args, strict=True):
            _hinted(result, source)
        return list(loop.results)

    def _last_piece(self, op: StreamOp, start: SSAValue, end: SSAValue | None, state: list[SSAValue]) -> list[SSAValue]:
        """The piece that is smaller, if it begins before `end`; None if it surely does."""
        self.bounded.add(op.axis)
        self.partial = op.axis
        try:
            if end is None:
                return self._step(op, op.step, start, state)
            condition = self._emit(arith.CmpiOp(start, end, "ult")).result
            some = Block()
            with self._inside(some):
                self._emit(scf.YieldOp(*self._step(op, op.step, start, state)))
            none = Block()
            with self._inside(none):
                self._emit(scf.YieldOp(*state))
            branch = self._emit(scf.IfOp(condition, [value.type for value in state], Region(some), Region(none)))
        finally:
            self.bounded.discard(op.axis)
            self.partial = None
        branch.location = op.location
        branch.attributes["comment"] = StringAttr(f"streaming: the last piece of {op.axis}, which is smaller")
        for result, source in zip(branch.results, op.step.block.args, strict=True):
            _hinted(result, source)
        return list(branch.results)

    def _step(self, op: StreamOp, region: Region, position: SSAValue, state: list[SSAValue]) -> list[SSAValue]:
        self.offsets[op.axis] = position
        for arg, value in zip(region.block.args, state, strict=True):
            self.values[arg] = value
        for inner in region.block.ops:
            if not isinstance(inner, YieldOp):
                self._lower_op(inner)
        del self.offsets[op.axis]
        return [
            self._fragment(value, self.layouts.of(arg))
            for value, arg in zip(_yielded(region), region.block.args, strict=True)
        ]

    # -- shared memory -----------------------------------------------------------------------------

    def _tile(self, key: object, value: SSAValue, rows: RowsAttr | None = None) -> SSAValue:
        """The tile in shared memory for one operand, the same wherever the operation is lowered again; it lies as
        copies and products like it, unless told."""
        rows = rows or self._rows_of(value)
        place = (key, rows)
        if place not in self.tiles:
            self.tiles[place] = self._allocate(value, rows).result
        return self.tiles[place]

    def _twin(self, op: Operation) -> Operation:
        """The operation whose tiles an operation of a border takes over."""
        return self.twins.get(op, op)

    def _allocate(self, value: SSAValue, rows: RowsAttr, alias: bool = False) -> cuda.SharedOp:
        type = MemRefType(
            format_of(value.type),
            tuple(sizes_of(value.type).values()),
            memory_space=ArrayEncoding(axes_of(value.type), "shared", rows),
        )
        op = cuda.SharedOp(0, type, alias=alias)
        _named(op.result, f"{plain_name(value) or 'tile'}_shared")
        if self.allocated:
            self.top.insert_op_after(op, self.allocated[-1])
        elif (first := self.top.first_op) is None:
            self.top.add_op(op)
        else:
            self.top.insert_op_before(op, first)
        self.allocated.append(op)
        return op

    def _rows_of(self, value: SSAValue) -> RowsAttr:
        """Padding: as deep as products take at a time, as wide as they take, and rows an odd number of 16 bytes
        apart."""
        extents = [self._padded(axis, size, value) for axis, size in sizes_of(value.type).items()]
        return rows_layout(extents, 16 // FORMAT_BYTES[str(format_of(value.type))])

    def _padded(self, axis: str, size: int, value: SSAValue) -> int:
        """How far a tile reaches along an axis, so that every product that uses it stays inside."""
        extents = [size]
        for use in value.uses:
            op = use.operation
            if not isinstance(op, ContractOp) or self.layouts.instructions[op] == "fma":
                continue
            if axis in op.over_axes:
                if axis == depth_of(self.plan, op):
                    step = 16 if self.layouts.instructions[op] == "m16n8k16" else 8
                    extents.append(-(-size // step) * step)
            elif axis in (self.plan.rows, columns_of(self.plan, op)):
                extents.append(self.layouts.of(op.result).extent(axis))
        return max(extents)

    # -- fragments ---------------------------------------------------------------------------------

    def _type(self, value: SSAValue, layout: LayoutAttr) -> Attribute:
        return array_type(format_of(value.type), sizes_of(value.type), "register", layout)

    def _operand(self, value: SSAValue, layout: LayoutAttr) -> SSAValue:
        """An operand of a map or cast, spread over the threads as `layout` is."""
        if not is_array(value.type):
            return self._scalar(value)
        wanted = layout.slice(axes_of(value.type))
        lowered = self.values[value]
        if isinstance(lowered, SSAValue) and not is_shared(lowered.type):
            found = layout_of(lowered.type)
            if found.spread() == wanted.spread():
                return lowered
        return self._fragment(value, wanted)

    def _fragment(self, value: SSAValue, layout: LayoutAttr) -> SSAValue:
        """The value as fragments in exactly this layout."""
        lowered = self.values[value]
        type = self._type(value, layout)
        if isinstance(lowered, PendingFill):
            return self._fill(type, lowered.op.value, value)
        if isinstance(lowered, PendingIndex):
            return _hinted(self._emit(cuda.IndexOp(lowered.offset, type)).result, value)
        if isinstance(lowered, PendingLoad):
            if type not in lowered.loaded:
                lowered.loaded[type] = self._load_fragment(lowered, type, value)
            return lowered.loaded[type]
        if is_shared(lowered.type):
            return self._read(lowered, type, value)
        if lowered.type == type:
            return lowered
        return self._convert(value, lowered, type)

    def _load_fragment(self, pending: PendingLoad, type: Attribute, source: SSAValue) -> SSAValue:
        with self._inside(pending.block):
            load = self._emit(cuda.LoadOp(pending.buffer, pending.offsets, type, pending.bounds))
        load.partial = self._partial(pending.bounds)
        return _placed(load, pending.op, load.result, source)

    def _read(self, tile: SSAValue, type: Attribute, source: SSAValue) -> SSAValue:
        read = self._emit(cuda.ReadOp(tile, type))
        return _hinted(read.result, source)

    def _convert(self, value: SSAValue, lowered: SSAValue, type: Attribute) -> SSAValue:
        """The same elements in another layout: in other registers of the same threads, or through shared memory."""
        source, target = layout_of(lowered.type), layout_of(type)
        if stays_in_threads(source, target):
            return _hinted(self._emit(renumbered(lowered, type)).result, value)
        tile = self._tile((value, "convert"), value, staging_rows(source, target, type))
        self._emit(cuda.WriteOp(lowered, tile))
        return self._read(tile, type, value)

    def _fill(self, type: Attribute, number: Number, source: SSAValue | None = None) -> SSAValue:
        fill = self._emit(FillOp(number, type))
        return fill.result if source is None else _hinted(fill.result, source)

    def _masked(self, value: SSAValue, axis: str, other: Number, layout: LayoutAttr) -> SSAValue:
        """Elements outside the axis replaced, where there may be any."""
        piece = self.plan.pieces[axis]
        if axis not in axes_of(value.type):
            return value
        if axis in self.bounded:
            mask = self._emit(cuda.MaskOp(value, axis, self._offset(axis), self._size(axis), other))
        elif layout.extent(axis) > piece:
            mask = self._emit(cuda.MaskOp(value, axis, self._index(0), self._index(piece), other))
        else:
            return value
        return _hinted(mask.result, value)


def _yielded(region: Region) -> tuple[SSAValue, ...]:
    terminator = region.block.last_op
    assert isinstance(terminator, YieldOp)
    return tuple(terminator.operands)


def _is_left_operand(layout: LayoutAttr, plan: KernelPlan, depth: str) -> bool:
    modes = [(mode.axis, mode.size, mode.stride) for mode in layout.register]
    tail = [(depth, 2, 8), (plan.rows, 2, 8), (depth, 2, 1)]
    return modes[-3:] == tail


def sums_of_own_elements(stream: StreamOp, index: int) -> list[ReduceOp]:
    """The reductions that make one state of a stream, in its step and at its border, if the lanes may each sum their
    own elements and meet only at the end: a sum that starts from zero, and whose state before the step goes nowhere
    but into it, at most multiplied by something that all lanes along the axis agree on. Addition is associative and
    commutative, and multiplication distributes over it. None otherwise."""
    start = _yielded(stream.initialise)[index].owner
    if not isinstance(start, FillOp) or start.number != 0:
        return []
    found = [_sum_of_own_elements(step, index) for step in stream.steps]
    return [reduce for reduce in found if reduce is not None] if None not in found else []


def _sum_of_own_elements(step: Region, index: int) -> ReduceOp | None:
    state = step.block.args[index]
    reduce = _yielded(step)[index].owner
    if not isinstance(reduce, ReduceOp) or reduce.kind.data != "add" or len(list(reduce.result.uses)) != 1:
        return None
    if reduce.init is None or len(list(state.uses)) != 1:
        return None
    if reduce.init is state:
        return reduce
    scale = reduce.init.owner
    if not isinstance(scale, MapOp) or len(list(scale.result.uses)) != 1 or state not in scale.inputs:
        return None
    factor = scale.yielded.owner
    own = scale.body.block.args[list(scale.inputs).index(state)]
    if not isinstance(factor, arith.MulfOp) or not {factor.lhs, factor.rhs} <= set(scale.body.block.args):
        return None
    return reduce if own in factor.operands and len(list(own.uses)) == 1 else None


def plain_name(value: SSAValue) -> str | None:
    """The name of the array that a value is a part or a state of."""
    name = value.name_hint
    for suffix in ("_piece", "_so_far", "_to", "_end"):
        name = name.removesuffix(suffix) if name else name
    return name


def _named(value: SSAValue, name: str | None) -> SSAValue:
    value.name_hint = name
    return value


def _hinted(value: SSAValue, source: SSAValue) -> SSAValue:
    if source.name_hint is not None:
        value.name_hint = source.name_hint
    return value


def _placed(op: Operation, source: Operation, result: SSAValue, old: SSAValue) -> SSAValue:
    op.location = source.location
    return _hinted(result, old)

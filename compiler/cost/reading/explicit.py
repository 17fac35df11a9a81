"""The plan of a kernel whose streams are expanded: a walk over what stands there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.kernel.blocks import (
    ENTRY_BYTES,
    blocks_of,
    entries_added,
    entries_of,
    may_leave,
    places_added,
    places_read,
    source_of,
    windows_of,
)
from treadle.compiler.cost.kernel.boxes import comes_by_lanes, comes_in_boxes
from treadle.compiler.cost.kernel.issue import (
    issued_by_copy,
    issued_by_product,
    issued_by_reduction,
    issued_by_turn,
    kept_registers,
    least_of_streams,
    product_of,
    read_before,
    spared_registers,
)
from treadle.compiler.cost.kernel.lanes import Lanes
from treadle.compiler.cost.kernel.names import name_of
from treadle.compiler.cost.kernel.neighbours import order_in_memory
from treadle.compiler.cost.kernel.operands import (
    computes_with,
    is_needed_first,
    left_operand,
    only_limits,
    read_back,
    stays_in_registers,
    written,
)
from treadle.compiler.cost.kernel.plan import (
    LEAVING,
    LEAVING_WIDTHS,
    RENAMED,
    Issue,
    Pieces,
    Plan,
    Tile,
    Transfer,
    Work,
)
from treadle.compiler.cost.kernel.roles import (
    ProductAxes,
    alignment_of,
    axis_across,
    contractions_of,
    lies_along_columns,
    lies_in_rows,
    product_axes,
    reach_of,
    results_of,
    role_of_met,
    role_of_sums,
    vector_in_rows,
)
from treadle.compiler.cost.kernel.rows import made_in, met_in, reduced_later
from treadle.compiler.cost.kernel.spread import Spread
from treadle.compiler.cost.kernel.tasks import ADDRESS
from treadle.compiler.cost.kernel.warpgroups import can_be_of_warpgroups, keeps_a_rest
from treadle.compiler.cost.kernel.work import Labour, labours_of, width_of
from treadle.compiler.cost.reading.ahead import held_ahead
from treadle.compiler.cost.reading.fed import FedPieces
from treadle.compiler.cost.reading.moments import moments_of
from treadle.compiler.cost.reading.phases import phases_of_step
from treadle.compiler.cost.reading.selected import asking, list_of
from treadle.compiler.cost.reading.stream_limits import (
    are_limits_found_together,
    fed_of_stream,
    is_stream_limited_twice,
)
from treadle.dialects.diagram import ContractOp, MapOp, ReduceOp, RenameOp, ScanOp
from treadle.dialects.diagram.accumulators import begins_with_product, sum_within
from treadle.dialects.diagram.array import DYNAMIC, axes_of, is_array, level_of, sizes_of
from treadle.dialects.hierarchy import GroupOp, KernelOp, LoadOp, SaveOp, SelectOp, StreamOp, saved_as
from treadle.dialects.hierarchy.bounded import is_factor, loaded_factor, users_of_factor
from treadle.dialects.hierarchy.extracted import is_extracted
from treadle.passes.expressions.lagging import kept_for
from treadle.passes.streams.held import limited_factors

LASTING = ("carried", "kept", "row", "state", "repairing", "column", "bound", "limit", "value", *LEAVING)
"""Roles of tiles that stay from step to step."""


def plan_of_explicit(kernel: KernelOp) -> Plan:
    walk = Walk(kernel)
    walk.block(kernel.body.block)
    return replace(walk.plan(), resident=1 if kernel.schedule is None else kernel.schedule.resident)


@dataclass
class Walk:
    kernel: KernelOp
    groups: tuple[Pieces, ...] = ()
    keeps_a_rest: bool = False
    """Whether it keeps a left operand as single warps alone can."""
    inside: tuple[Pieces, ...] = ()
    """The streams around the operation at hand."""
    outermost: int = -1
    """The number of the outermost stream so far."""
    innermost: int | None = None
    """The place among `streams` of the stream at hand."""
    streams: list[Pieces] = field(default_factory=list[Pieces])
    transfers: list[Transfer] = field(default_factory=list[Transfer])
    issues: list[Issue] = field(default_factory=list[Issue])
    tiles: list[Tile] = field(default_factory=list[Tile])
    work: list[Work] = field(default_factory=list[Work])
    kept: dict[int | None, float] = field(default_factory=lambda: defaultdict(float))
    """Registers of a thread for left operands that a stream does not change, by stream."""
    lefts: set[SSAValue] = field(default_factory=lambda: set[SSAValue]())
    """Left operands that a product has read."""
    spared: dict[int | None, float] = field(default_factory=lambda: defaultdict(float))
    """Those of which a subloop holds a piece at a time, by stream."""
    in_registers: set[SSAValue] = field(default_factory=set[SSAValue])
    """Arrays of which a piece is loaded to registers."""
    phases: list[int] = field(default_factory=list[int])
    """In how many groups the steps of each stream read their tiles."""
    asked: list[SSAValue] = field(default_factory=list[SSAValue])
    """Pieces in shared memory that meet the result of a product, and are not read back yet."""

    def plan(self) -> Plan:
        return Plan(
            self.kernel.kernel_name.data,
            self.groups,
            tuple(self.streams),
            self.warps,
            tuple(self.transfers),
            tuple(self.issues),
            tuple(self.tiles),
            tuple(self.work),
            self.row,
            can_be_of_warpgroups(self.kernel, self.row) and not self.finds_limits and not self.keeps_a_rest,
            max(self.kept.values(), default=0),
            least_of_streams(self.spared),
            self.held,
            self.static,
            self.pieces_of_blocks,
            1 if self.kernel.schedule is None else self.kernel.schedule.blocks,
            self.exchanged,
            min(filter(None, self.phases), default=1),
            any(is_stream_limited_twice(op) for op in self.kernel.walk() if isinstance(op, StreamOp)),
            self.across,
            self.exchanges,
        )

    @property
    def exchanges(self) -> Amount | None:
        lanes = self.lanes
        if lanes is None:
            return None
        steps = [op for stream in self.kernel.walk() if isinstance(stream, StreamOp) for op in stream.step.block.ops]
        reduced = [op.over_axes for op in steps if isinstance(op, ReduceOp)]
        moved = RENAMED * sum(isinstance(op, RenameOp) for op in steps)
        return moved + sum(lanes.exchanges(axis for axis in axes if axis in lanes.axes) for axes in reduced)

    @property
    def held(self) -> Amount:
        if self.has_products:
            return 0
        return moments_of(self.kernel).registers(self.held_tiles, self.warps)

    @property
    def held_tiles(self) -> Mapping[str, int]:
        """The sizes of what one block holds."""
        made = (result.type for op in self.kernel.body.walk() for result in op.results if is_array(result.type))
        sizes = {axis: size for type in made for axis, size in sizes_of(type).items()} | self.parts_of_blocks
        return dict.fromkeys(self.axes, 1) | {axis: max(size, 1) for axis, size in sizes.items()}

    @property
    def exchanged(self) -> Amount:
        """Bytes of all parts of results that a thread reads from each block of a cluster."""
        shared = set(self.parts_of_blocks)
        if self.has_products or not shared:
            return 0
        lanes = moments_of(self.kernel).lanes(self.held_tiles, self.warps)
        reduces = [op for op in self.kernel.walk() if isinstance(op, ReduceOp) and shared & set(op.over_axes)]
        return sum(lanes.elements(axes_of(op.result.type)) * width_of(op.result.type) for op in reduces)

    @property
    def parts_of_blocks(self) -> dict[str, int]:
        """What each block of a cluster has of an axis, where these share a group."""
        return {} if self.kernel.schedule is None else self.kernel.schedule.cluster.as_dict()

    @property
    def pieces_of_blocks(self) -> tuple[Pieces, ...]:
        return _pieces(self.parts_of_blocks)

    @property
    def axes(self) -> tuple[str, ...]:
        """Of the arrays in device memory."""
        outside = (*self.kernel.inputs, *self.kernel.outputs)
        return tuple(dict.fromkeys(axis for array in outside for axis in axes_of(array.type)))

    @property
    def static(self) -> frozenset[str]:
        outside = (*self.kernel.inputs, *self.kernel.outputs)
        sizes = ((axis, size) for array in outside for axis, size in sizes_of(array.type).items())
        return frozenset(axis for axis, size in sizes if size != DYNAMIC)

    @property
    def finds_limits(self) -> bool:
        """Whether all warps together look for where a stream begins and ends."""
        return any(are_limits_found_together(op) for op in self.kernel.walk() if isinstance(op, StreamOp))

    @property
    def warps(self) -> Mapping[str, int]:
        return {} if self.kernel.schedule is None else self.kernel.schedule.warps.as_dict()

    @property
    def whole(self) -> Mapping[str, int]:
        return {} if self.kernel.schedule is None else self.kernel.schedule.whole.as_dict()

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.operation(op)

    def operation(self, op: Operation) -> None:
        if isinstance(op, GroupOp):
            self.groups = _pieces(op.partition.as_dict())
            self.block(op.body.block)
        elif isinstance(op, StreamOp):
            self.stream(op)
        elif isinstance(op, LoadOp):
            self.crossing(op.source, op.result, saves=False)
            self.read()
        elif isinstance(op, SelectOp):
            self.selection(op)
        elif isinstance(op, SaveOp):
            self.crossing(op.destination, op.value, saves=True)
        else:
            self.compute(op)

    def stream(self, op: StreamOp) -> None:
        fed = fed_of_stream(op, (*self.groups, *_pieces(self.whole)))
        pieces = Pieces(op.axis, op.size) if fed is None else FedPieces(op.axis, op.size, fed)
        self.streams.append(pieces)
        around, outer = self.inside, self.innermost
        number = len(self.streams) - 1
        self.block(op.initialise.block)
        self.outermost += not around
        self.inside, self.innermost = (*around, pieces), number
        self.issue(issued_by_turn(len([each for each in op.step.walk() if isinstance(each, ContractOp)])))
        if op.border is not None:
            self.border(op)
        self.block(op.step.block)
        loads = [each.result for each in op.step.block.ops if isinstance(each, LoadOp)]
        tiles = [piece for piece in loads if level_of(piece.type) == "shared"]
        self.phases.append(phases_of_step(tiles, list(op.step.block.ops)))
        self.read()
        self.inside, self.innermost = around, outer
        self.block(op.finish.block)

    def selection(self, op: SelectOp) -> None:
        for array in op.inputs:
            if is_array(array.type):
                self.transfers.append(self.asking(array, op))
        self.tiles.append(list_of(op.room.data))

    def asking(self, array: SSAValue, op: SelectOp) -> Transfer:
        name = name_of(array, f"array{_number(array)}")
        return asking(array, name, op.cells.as_dict(), (*self.groups, *self.pieces_of_blocks))

    def border(self, op: StreamOp) -> None:
        """What only pieces at the border load, with what the step loads first; what they compute is that of all
        others, and the tests."""
        assert op.border is not None
        everywhere = {(load.source, load.result.type) for load in op.step.block.ops if isinstance(load, LoadOp)}
        for load in op.border.block.ops:
            if isinstance(load, LoadOp) and (load.source, load.result.type) not in everywhere:
                before, known = list(self.issues), len(self.transfers)
                self.crossing(load.source, load.result, saves=False)
                self.transfers[known:] = [replace(each, part="border") for each in self.transfers[known:]]
                if _is_of_one_cell(op, load.source):
                    self.issues = before

    def read(self) -> None:
        """Read back from tiles what meets the result of a product."""
        for piece in self.asked:
            self.labour([read_back(piece, self.lies_in_rows(axes_of(piece.type)))], self.spread(piece))
        self.asked.clear()

    def crossing(self, array: SSAValue, piece: SSAValue, saves: bool) -> None:
        axes, width = axes_of(array.type), width_of(array.type)
        around = (*self.groups, *self.pieces_of_blocks, *self.inside)
        again = tuple(pieces for pieces in around if pieces.axis not in axes)
        fed = next((pieces.fed for pieces in self.inside if isinstance(pieces, FedPieces)), None)
        name = name_of(array, f"array{_number(array)}")
        level = level_of(piece.type) or "register"
        comes = () if saves or level != "shared" else tuple(self.padded(piece)[axis] for axis in axes)
        stream = self.inside[-1].axis if self.inside else None
        in_boxes = bool(comes) and comes_in_boxes(array, piece, self.products, self.row, stream, fed is not None)
        output = saved_as(array) if saves else None
        added = 0 if output is None else places_added(output)
        entries = entries_of(array) if output is None else entries_added(output)
        limited = piece in self.limited or bool(entries) or may_leave(array) or added > 0
        taken = sizes_of(piece.type)
        found = Transfer(
            name,
            level,
            saves,
            axes,
            width,
            again,
            fed,
            tile=comes,
            is_limited=limited,
            in_boxes=in_boxes,
            blocks=blocks_of(array),
            windows=() if saves else windows_of(array),
            near=tuple((axis, taken[axis]) for axis in order_in_memory(array)),
            added=added,
            among=0 if saves else places_read(array),
            source=None if saves else source_of(array),
            taken=taken,
        )
        self.transfers.append(found)
        for each in entries:
            anew = tuple(pieces for pieces in around if pieces.axis not in each.axes)
            self.transfers.append(
                Transfer(each.name, "register", False, each.axes, ENTRY_BYTES, anew, fed, blocks=each.blocks)
            )
        leaves = saves and self.leaves(width)
        blocks = blocks_of(array)
        lanes = not saves and comes_by_lanes(array, piece)
        self.issue(issued_by_copy(axes, width, self.spread(piece), level == "shared", leaves, blocks, lanes))
        if saves:
            self.saved(piece, width)
        elif level == "shared":
            self.hold("staged" if self.inside else "shared", piece)
            self.near(array, piece)
        else:
            self.in_register(array, piece)

    def near(self, array: SSAValue, piece: SSAValue) -> None:
        """What steps read back of a piece in shared memory."""
        multiplied, in_rows = is_factor(piece), self.lies_in_rows(axes_of(piece.type))
        if not multiplied:
            self.asked.append(piece)
        if not multiplied and not in_rows:
            self.in_register(array, piece)
        elif in_rows and self.inside and computes_with(users_of_factor(piece)):
            self.hold("loaded", piece, along=_met_in(piece))

    def in_register(self, array: SSAValue, piece: SSAValue) -> None:
        """A piece that is held in registers; where a later stream loads the array again, the earlier one had it."""
        if only_limits(piece):
            self.hold("limit", piece)
            return
        if self.lies_in_rows(axes_of(array.type)):
            self.loaded_in_rows(piece)
            return
        if array in self.in_registers:
            return
        self.in_registers.add(array)
        stream = self.inside[-1].axis if self.inside else None
        along_columns = lies_along_columns(axes_of(array.type), stream, self.row, self.products)
        self.hold(role_of_met(piece, along_columns, self.row, self.roles.single), piece)

    def loaded_in_rows(self, piece: SSAValue) -> None:
        users = {use.operation for use in piece.uses}
        if self.inside:
            block = piece.owner.parent if isinstance(piece.owner, Operation) else piece.owner
            assert block is not None
            self.hold("next" if is_needed_first(users, block.ops) else "loaded", piece, along=_met_in(piece))
            self.addresses(piece)
            return
        in_steps = any(isinstance(user.parent_op(), StreamOp) for user in users)
        self.hold("value" if in_steps else "loaded", piece, along=_met_in(piece))

    def addresses(self, piece: SSAValue) -> None:
        """One of each row that a lane loads."""
        axes, sizes = axes_of(piece.type), self.padded(piece)
        met = _met_in(piece)
        of_lane = self.spread(met).in_rows(axes_of(met.type), axes[:-1], reduced_later(met))
        shape = tuple(sizes[axis] for axis in axes[:-1])
        self.tiles.append(Tile("address", shape, ADDRESS, self.stream_number, of_lane))

    def saved(self, piece: SSAValue, width: int) -> None:
        if not self.has_products:
            self.hold("value", piece)
        elif self.leaves(width):
            self.hold("turned" if axes_of(piece.type)[-1:] == (self.row,) else "leaving", piece)

    def leaves(self, width: int) -> bool:
        """Whether a result goes out by way of shared memory: what products make, at the end, of 16 bits; words where it
        pays."""
        return self.has_products and width in LEAVING_WIDTHS and not self.inside

    def compute(self, op: Operation) -> None:
        spread = self.spread(*op.operands, *op.results)
        self.labour(labours_of(op), spread)
        if isinstance(op, ContractOp):
            self.product(op, spread)
        elif isinstance(op, ReduceOp):
            self.issue(issued_by_reduction(op, spread))
            if op.init is not None or self.is_added(op):
                self.hold(self.role_of_state(op), op.result, along=op.operand)
            elif self.has_products and self.lies_in_rows(axes_of(op.operand.type)):
                self.hold("reduced", op.result, along=op.operand)
            self.parts(op, spread)
        elif isinstance(op, RenameOp):
            self.hold("shared", op.operand)
        elif isinstance(op, MapOp | ScanOp) and self.has_products and self.inside:
            self.ahead(op)

    def parts(self, op: ReduceOp, spread: Spread) -> None:
        """What warps hold of a result whose rows they share."""
        if is_extracted(op.result):
            return
        if (count := spread.sharing(op.over_axes)) == 1 and not self.parts_of_blocks.keys() & set(op.over_axes):
            return
        of_steps = bool(self.inside) and (self.lanes is not None or _is_needed_beside(op))
        sizes = self.padded(op.result)
        shape = (*(sizes[axis] for axis in axes_of(op.result.type)), count)
        self.tiles.append(Tile("parts", shape, width_of(op.result.type), self.stream_number if of_steps else None))

    def role_of_state(self, op: ReduceOp) -> str:
        if not self.lies_in_rows(axes_of(op.operand.type)):
            return role_of_sums(axes_of(op.result.type), self.roles)
        return "repairing" if _is_needed_beside(op) else "state"

    def is_added(self, op: ReduceOp) -> bool:
        """Whether a step adds what it reduces to a state of the stream."""
        return bool(self.inside) and self.inside[-1].axis in op.over_axes

    def ahead(self, op: MapOp | ScanOp) -> None:
        """What it begins while products run, divides, and scans, each piece of the stream anew."""
        sizes, stream = self.padded(op.result), self.inside[-1].axis
        found = held_ahead(op)
        for role, axes in found:
            if stream in axes and self.row in axes:
                shape, repeats = tuple(sizes[axis] for axis in axes), self.repeats(axes)
                self.tiles.append(Tile(role, shape, 4, self.stream_number, repeats=repeats))

    def product(self, op: ContractOp, spread: Spread) -> None:
        product = product_of(op, self.left(op), self.kernel.schedule)
        self.keeps_a_rest |= keeps_a_rest([(op, product.left)])
        self.work.append(Work(product.format, (*product.result, *product.over), self.stream_number))
        self.issue(issued_by_product(product, spread))
        if (left := left_operand(op, self.row)) not in self.lefts:  # once for all products, of all streams
            self.issues.append(Issue("ldmatrix", read_before(product, spread), ()))
            self.lefts.add(left)
            if product.left == "kept":
                self.hold("kept", left)
        self.kept[self.stream_number] += kept_registers(product, spread)
        self.spared[self.stream_number] += spared_registers(product, spread)
        self.accumulator(op)
        if product.every:
            self.hold("partial", op.result, width=4)
        for operand in (op.lhs, op.rhs):
            if level_of(loaded_factor(operand).type) == "shared":
                continue
            if stays_in_registers(op, operand, self.row):
                self.hold("passing", operand)
            else:
                self.hold("shared", operand)
                self.hold("moving", operand, along=made_in(operand, self.inside[-1].axis if self.inside else None))
                self.labour([written(operand)], spread)

    def accumulator(self, op: ContractOp) -> None:
        """The sum, if it is not in the place of what it begins with, or of a state that begins with it."""
        behind = op.init is not None and not self.inside
        if behind or begins_with_product(op) or _begins_state(op.result):
            return
        self.hold("passing" if self.inside and op.init is None else "carried", op.result, width=4)

    def left(self, op: ContractOp) -> str:
        """Where the left operand is, as `Product` says it."""
        operand = loaded_factor(left_operand(op, self.row))
        if level_of(operand.type) != "shared":
            return "registers" if stays_in_registers(op, operand, self.row) else "shared"
        changes = {pieces.axis for pieces in self.inside} & set(axes_of(operand.type))
        if changes or not self.inside:
            return "shared"
        schedule = self.kernel.schedule
        return "kept" if schedule is not None and schedule.left.data == "registers" else "lasting"

    def labour(self, labours: Iterable[Labour], spread: Spread) -> None:
        self.issue((labour.kind, labour.factor * spread.of_lane(labour.axes)) for labour in labours)

    def issue(self, instructions: Iterable[tuple[str, float]]) -> None:
        self.issues += [Issue(kind, count, self.inside, self.innermost) for kind, count in instructions if count]

    def hold(self, role: str, value: SSAValue, width: int | None = None, along: SSAValue | None = None) -> None:
        """`along` is what lies in the lanes as the value does, or as what it is a result of."""
        sizes = self.padded(value)
        shape = tuple(sizes[axis] for axis in axes_of(value.type))
        stream = None if role in LASTING else self.stream_number
        of_lane = None if along is None else self.in_rows(value, along)
        repeats = self.repeats(axes_of(value.type))
        self.tiles.append(Tile(role, shape, width or width_of(value.type), stream, of_lane, repeats))

    def in_rows(self, value: SSAValue, along: SSAValue) -> Amount | None:
        axes, kept = axes_of(along.type), axes_of(value.type)
        if self.has_products and not self.lies_in_rows(axes):
            return None
        is_state = isinstance(value.owner, ReduceOp)
        reduced = tuple(axis for axis in axes if axis not in kept) if is_state else reduced_later(along)
        return self.spread(along).in_rows(axes, kept, reduced)

    @property
    def stream_number(self) -> int | None:
        """Which of the streams that run one after another is around."""
        return self.outermost if self.inside else None

    # -- tiles -----------------------------------------------------------------------------------------

    @cached_property
    def products(self) -> tuple[ContractOp, ...]:
        """Found once: the walk asks for them at every operation."""
        return contractions_of(self.kernel)

    @property
    def has_products(self) -> bool:
        return bool(self.products)

    @cached_property
    def limited(self) -> set[SSAValue]:
        return limited_factors(self.kernel)

    @cached_property
    def roles(self) -> ProductAxes:
        return product_axes(self.kernel, [pieces.axis for pieces in self.groups])

    @property
    def row(self) -> str | None:
        return self.roles.row

    def lies_in_rows(self, axes: tuple[str, ...]) -> bool:
        return lies_in_rows(axes, self.products, self.roles.single)

    def spread(self, *values: SSAValue) -> Spread:
        sizes = {axis: size for value in values if is_array(value.type) for axis, size in self.padded(value).items()}
        schedule = self.kernel.schedule
        rereads = schedule is not None and schedule.left.data == "shared"
        subloops = {} if schedule is None else schedule.subloop.as_dict()
        spread = Spread(
            sizes, self.warps, self.row, self.has_products, rereads, subloops, self.vector, self.results, self.across
        )
        return spread if self.lanes is None else replace(spread, lanes=self.lanes)

    @cached_property
    def lanes(self) -> Lanes | None:
        """How elements lie in lanes where a step has those of one position alone."""
        if self.has_products or not any(isinstance(op, StreamOp) and op.recurs for op in self.kernel.walk()):
            return None
        return moments_of(self.kernel).lanes(self.held_tiles, self.warps)

    @cached_property
    def across(self) -> str | None:
        group = [pieces.axis for pieces in self.groups]
        return axis_across(self.warps, self.row, [axes_of(op.result.type) for op in self.products], group)

    def repeats(self, axes: Container[str]) -> Amount:
        """How many warps hold the same part of an array with these axes."""
        return self.spread().repeats(axes)

    @cached_property
    def results(self) -> tuple[tuple[str, ...], ...]:
        return results_of(self.products, self.roles.single)

    @cached_property
    def vector(self) -> int:
        """How many elements a lane takes of what lies in rows."""
        moved = [op.result.type for op in self.kernel.walk() if isinstance(op, LoadOp)]
        moved += [op.value.type for op in self.kernel.walk() if isinstance(op, SaveOp)]
        return vector_in_rows(map(width_of, moved), self.products)

    @cached_property
    def streamed(self) -> set[str]:
        """The axes of which streams are fed pieces, those behind what is met first, too."""
        return {op.axis for op in self.kernel.walk() if isinstance(op, StreamOp)}

    def padded(self, value: SSAValue) -> dict[str, int]:
        """Sizes of a tile; products need axes that are held whole to be multiples of what they take at once."""
        step = reach_of(alignment_of(self.products))
        cut = {pieces.axis for pieces in self.groups} | self.streamed
        sizes = {axis: self.parts_of_blocks.get(axis, size) for axis, size in sizes_of(value.type).items()}
        return {axis: size if axis in cut else -(-max(size, 1) // step) * step for axis, size in sizes.items()}


def _is_of_one_cell(stream: StreamOp, array: SSAValue) -> bool:
    """Whether a table says which pieces a stream is fed, each of one cell of it: few others are tested."""
    select = None if stream.selection is None else stream.selection.owner
    return isinstance(select, SelectOp) and array in select.inputs and select.cells_of_piece == 1


def _begins_state(value: SSAValue) -> bool:
    """Whether a stream begins with a value, or with what a map makes of it, and nothing else reads it."""
    uses = list(value.uses)
    if len(uses) != 1:
        return False
    user = uses[0].operation
    if isinstance(user, ContractOp):
        return user.init is value and _begins_state(user.result)
    if isinstance(user, MapOp):
        return sum_within(user) is value and _begins_state(user.result)
    stream = user.parent_op()
    return isinstance(stream, StreamOp) and user.parent_block() is stream.initialise.block


def _is_needed_beside(op: ReduceOp) -> bool:
    """Whether a step needs the state before it beside what it becomes."""
    block = op.parent_block()
    assert block is not None
    assert block.last_op is not None
    kept = [kept_for(value) for value in block.last_op.operands]
    return op.result in kept and len({use.operation for use in block.args[kept.index(op.result)].uses}) > 1


def _met_in(piece: SSAValue) -> SSAValue:
    return met_in(piece, [use.operation for use in piece.uses])


def _pieces(partition: Mapping[str, int]) -> tuple[Pieces, ...]:
    return tuple(Pieces(axis, size) for axis, size in partition.items())


def _number(value: SSAValue) -> int:
    return value.index if isinstance(value, BlockArgument) else 0

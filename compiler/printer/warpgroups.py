"""Print what parts a block into roles: rings of barriers, tensor copies, and products of warpgroups."""

from __future__ import annotations

import re
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from treadle.compiler.printer.arithmetic import define_index
from treadle.compiler.printer.gathered import GatherPrinter, is_warp
from treadle.compiler.printer.indices import add, scaled
from treadle.compiler.printer.order import OrderPrinter
from treadle.compiler.printer.scalars import bare, c_type, term
from treadle.compiler.printer.stages import Stages
from treadle.compiler.printer.tensor_stores import box_place, print_for_each_box
from treadle.compiler.printer.together import Together
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.order import FIRST_OF_GROUP
from treadle.dialects.cuda.promoted import parts_of_product
from treadle.dialects.cuda.rings import stages_of
from treadle.dialects.cuda.roles import WARPGROUP
from treadle.dialects.cuda.tensor_maps import shared_axis
from treadle.dialects.cuda.tiles import WORD, boxes_of, format_bytes, is_line, is_shared, layout_of
from treadle.dialects.cuda.warpgroups import (
    DEPTH_BYTES,
    ROWS,
    columns_of_warpgroup,
    depth_of,
    result_axes,
    row_order,
    steps_of,
)
from treadle.dialects.diagram.array import axes_of

FEW_STEPS = 4
"""Steps along the depth of an operand whose descriptors all turns keep: four 64-bit numbers of a warp, in its uniform
registers. ptxas 13.0 has room for so many, and spares what each turn would add (attention with heads of 64: 3 of 319
instructions)."""
CONSUMER_BARRIER = 1
"""The named barrier at which all consumers meet."""
DESCRIBED = 16
"""Bytes that a descriptor counts as one."""
NEVER = str(2**31 - 1)
"""A position behind all of a tensor."""
THREAD = re.compile(r"\bthread\b")


def _copy_before(op: cuda.ArriveOp) -> cuda.CopyOp | None:
    """What lanes have copied when they arrive: numbers of the turn may stand between."""
    before = op.prev_op
    while before is not None and not isinstance(before, cuda.CopyOp):
        before = before.prev_op
    return before


class WarpgroupPrinter:
    """Prints the operations of one kernel's roles."""

    def __init__(self, writer: KernelWriter):
        self.writer = writer
        self.order = OrderPrinter(writer)
        self.gathers = GatherPrinter(writer)
        self.stages = Stages()
        self.copying = 1
        """Threads of the producer: one, or those of whole warps."""

    def print(self, op: Operation) -> bool:
        """Print an operation, if it is one of these."""
        match op:
            case cuda.RolesOp():
                self.roles(op)
            case cuda.RingOp():
                self.ring(op)
            case cuda.ReadyOp():
                self.ready(op)
            case cuda.AcquireOp():
                self.acquire(op)
            case cuda.AcquireBesideOp():
                self.acquire_turn(op.beside, op.turn_beside)
            case cuda.ExpectOp():
                self.expect(op)
            case cuda.ArriveOp():
                self.arrive(op)
            case cuda.AwaitOp():
                self.wait(op)
            case cuda.ReleaseOp():
                self.release(op)
            case cuda.TensorLoadOp():
                self.tensor_load(op)
            case cuda.TensorGatherOp():
                stage, _ = self._place(op.ring, op.turn)
                self.gathers.print(op, f"&{self.writer.values[op.ring]}[{stage}]")
            case cuda.BlockInClusterOp():
                self.writer.comment_of(op)
                define_index(self.writer, op, f"int64_t({self.writer.call('block_in_cluster')}())")
            case cuda.ClusterIndexOp():
                self.writer.comment_of(op)
                define_index(self.writer, op, f"int64_t(blockIdx.x / {self.writer.kernel.cluster})")
            case cuda.ClusterArriveOp():
                self.writer.text.line(f"{self.writer.call('barrier_cluster_arrive')}();")
            case cuda.ClusterWaitOp():
                self.writer.text.line(f"{self.writer.call('barrier_cluster_wait')}();")
            case cuda.WarpgroupProductOp():
                self.product(op)
            case cuda.PromotedProductOp():
                self.promoted(op)
            case cuda.WarpgroupDrainOp():
                self.writer.text.line(f"{self.writer.call('wgmma_wait')}<{op.pending.data}>();")
            case cuda.WarpgroupWaitOp():
                self.product_wait(op)
            case _:
                return self.order.print(op)
        return True

    # -- roles -------------------------------------------------------------------------------------

    def threads(self) -> None:
        """Numbers of a consumer's thread; those of the producer are negative, and not used."""
        uniform = self.writer.call("uniform")
        text = self.writer.text
        text.line(f"const int warpgroup = {uniform}(threadIdx.x / {WARPGROUP}) - 1;  // -1 is the producer's")
        text.line(f"const int thread = int(threadIdx.x) - {WARPGROUP}, lane = threadIdx.x % {LANES};")
        text.line(f"const int warp = {uniform}(threadIdx.x / {LANES}) - {WARPGROUP // LANES};")
        text.line("(void)lane, (void)warp;")

    def roles(self, op: cuda.RolesOp) -> None:
        writer, (given, taken) = self.writer, op.registers
        with writer.names.scope(), writer.text.block("if (warpgroup < 0)"):
            if given:
                writer.text.line(f"{writer.call('registers_give')}<{given}>();")
            self.copying = (LANES if is_warp(op) else 1) * op.copying_warps
            if self.copying == WARPGROUP:
                self.producer(op)
            else:
                with writer.text.block(f"if (threadIdx.x {f'< {self.copying}' if self.copying > 1 else '== 0'})"):
                    self.producer(op)
        with writer.names.scope(), writer.text.block("else"):
            if taken:
                writer.text.line(f"{writer.call('registers_take')}<{taken}>();")
            writer.block(op.consumers.block)

    def producer(self, op: cuda.RolesOp) -> None:
        """One thread, or warps whose lanes copy elements and vectors; tensor copies one of them starts."""
        writer, threads, begin = self.writer, self.writer.threads, len(self.writer.text.lines)
        if self.copying > 1:
            thread = "lane" if self.copying == LANES else "threadIdx.x"
            writer.text.line(f"const int thread = {thread};  // of those that copy")
            writer.threads = self.copying
        for arg in writer.kernel.body.block.args:
            if isinstance(arg.type, cuda.TensorMapType):
                writer.text.line(f"{self._once}{writer.call('tensor_map_prefetch')}({writer.values[arg]});")
        writer.block(op.producer.block)
        if self.copying > 1 and not any(THREAD.search(line) for line in writer.text.lines[begin + 1 :]):
            del writer.text.lines[begin]  # where lanes bring boxes alone, which nvcc would complain of
        writer.threads = threads

    @property
    def _once(self) -> str:
        """What stands before a statement of the producer that one thread executes."""
        if self.copying == 1:
            return ""
        if self.copying == LANES:
            return "if (lane == 0) "
        return "if (thread == 0) "

    def barrier(self, by_groups: bool) -> None:
        """All consumers meet, or each warpgroup of them."""
        if by_groups:
            numbered = self.writer.call("barrier_numbered")
            self.writer.text.line(f"{numbered}({FIRST_OF_GROUP} + warpgroup, {WARPGROUP});")
            return
        threads = cuda.working_threads(self.writer.kernel)
        self.writer.text.line(f"{self.writer.call('barrier_named')}<{CONSUMER_BARRIER}>({threads});")

    # -- rings -------------------------------------------------------------------------------------

    def ring(self, op: cuda.RingOp) -> None:
        writer, stages = self.writer, stages_of(op.result)
        name = writer.names.fresh(op.result.name_hint, "ring")
        base = f"{writer.call('shared_memory')}() + {op.offset.data}"
        writer.text.line(
            f"uint64_t* const {name} = reinterpret_cast<uint64_t*>({base});"
            f"  // barriers of {stages} stage{'s' * (stages > 1)}: full, then empty"
        )
        writer.values[op.result] = name

    def ready(self, op: cuda.ReadyOp) -> None:
        writer = self.writer
        init = writer.call("mbarrier_init")
        with writer.text.block("if (threadIdx.x == 0)"):
            for ring in op.rings:
                name, stages, owner = writer.values[ring], stages_of(ring), ring.owner
                assert isinstance(owner, cuda.RingOp)
                with writer.text.block(f"for (int stage = 0; stage < {stages}; ++stage)"):
                    writer.text.line(f"{init}(&{name}[stage], {owner.filling});")
                    writer.text.line(f"{init}(&{name}[{stages} + stage], {owner.arrivals});")
            writer.text.line(f"{writer.call('mbarrier_init_fence')}();")
        if writer.kernel.cluster == 1:
            writer.text.line(f"{writer.call('barrier_block')}();")
        else:
            writer.text.line(f"{writer.call('barrier_cluster_arrive')}();")
            writer.text.line(f"{writer.call('barrier_cluster_wait')}();")

    def acquire(self, op: cuda.AcquireOp) -> None:
        self.gathers.before(op)
        self.acquire_turn(op.ring, op.turn)

    def acquire_turn(self, ring: SSAValue, turn: SSAValue) -> None:
        stage, use = self._place(ring, turn)
        empty = add([str(stages_of(ring)), stage])
        wait = self.writer.call("mbarrier_wait")
        self.writer.text.line(f"{wait}(&{self.writer.values[ring]}[{empty}], ({add([use, '1'])}) % 2);")

    def expect(self, op: cuda.ExpectOp) -> None:
        stage, _ = self._place(op.ring, op.turn)
        arrive = self.writer.call("mbarrier_arrive_expect")
        self.writer.text.line(f"{self._once}{arrive}(&{self.writer.values[op.ring]}[{stage}], {op.bytes.data});")

    def arrive(self, op: cuda.ArriveOp) -> None:
        writer, (stage, _) = self.writer, self._place(op.ring, op.turn)
        barrier, copy = f"(&{writer.values[op.ring]}[{stage}]);", _copy_before(op)
        behind = f"{writer.call('copy_async_arrive')}{barrier}"
        if copy is None or format_bytes(copy.tile.type) >= WORD:
            return writer.text.line(behind)
        if is_line(copy.tile.type):
            return writer.text.line(f"{writer.call('mbarrier_arrive')}{barrier}  // what is narrower was stored")
        writer.text.line(f"if constexpr (ALIGNED >= {WORD}) {behind}")
        writer.text.line(f"else {writer.call('mbarrier_arrive')}{barrier}  // what is narrower was stored")

    def wait(self, op: cuda.AwaitOp) -> None:
        writer = self.writer
        stage, use = self._place(op.ring, op.turn)
        self.stages.awaited(op)
        if not stage.isdigit():  # kept: each use would take the digits of the turn in a place of their own
            name = writer.names.fresh(f"{writer.values[op.ring].removesuffix('_ring')}_stage")
            writer.text.line(f"const uint32_t {name} = {writer.call('kept')}({stage});")
            self.stages.note(op, name)
            stage = name
        writer.text.line(f"{writer.call('mbarrier_wait')}(&{writer.values[op.ring]}[{stage}], {use} % 2);")
        if op.fenced is not None:
            writer.text.line(f"{writer.call('fence_proxy_async')}();  // products may read what lanes have copied")

    def release(self, op: cuda.ReleaseOp) -> None:
        stage, _ = self._place(op.ring, op.turn)
        stage = self.stages.name(op.turn, stages_of(op.ring), op) or stage
        empty = add([str(stages_of(op.ring)), stage])
        owner, barrier = op.ring.owner, f"&{self.writer.values[op.ring]}[{empty}]"
        assert isinstance(owner, cuda.RingOp)
        thread = f"thread % {WARPGROUP}"
        if owner.by_warps is not None:
            self.writer.text.line(f"{self.writer.call('barrier_warp')}();  // all lanes have read")
            thread = "lane"
        if owner.filled_by == 1:
            arrive = f"if ({thread} == 0) {self.writer.call('mbarrier_arrive')}({barrier});"
        else:  # a thread for each block
            at = self._together(owner).member(thread)
            reach = f"{self.writer.call('mbarrier_arrive_at')}({barrier}, {at})"
            arrive = f"if ({thread} < {owner.filled_by}) {reach};"
        self.writer.text.line(arrive)

    def _together(self, ring: cuda.RingOp) -> Together:
        """The blocks that fill a ring with this one."""
        rank = f"{self.writer.call('block_in_cluster')}()" if ring.filled_by > 1 else "0"
        return Together(rank, ring.filled_by, ring.apart, self.writer.kernel.cluster)

    def _place(self, ring: SSAValue, turn: SSAValue) -> tuple[str, str]:
        """The stage of a turn, and how often the stage was used before."""
        stages, text = stages_of(ring), bare(self.writer.values[turn])
        if text.isdigit():
            return str(int(text) % stages), str(int(text) // stages)
        number = f"uint32_t({text})"
        return ("0", number) if stages == 1 else (f"{number} % {stages}", f"{number} / {stages}")

    # -- tensor copies -----------------------------------------------------------------------------

    def tensor_load(self, op: cuda.TensorLoadOp) -> None:
        writer = self.writer
        stage, _ = self._place(op.ring, op.turn)
        with writer.names.scope():
            box = writer.names.fresh("box")
            tile, offsets = writer.values[op.tile], [writer.values[each] for each in op.offsets]
            load, blocks = writer.call("tensor_load" if op.shares == 1 else "tensor_load_multicast"), ""
            if op.shares > 1:
                assert isinstance(op.ring.owner, cuda.RingOp)
                together = self._together(op.ring.owner)
                share, axis = together.share, shared_axis(op.boxes)
                offsets[axis] = add([term(offsets[axis]), scaled(share, op.map_type.shape[axis])])
                tile = add([tile, scaled(share, op.boxes.rows // op.shares * op.boxes.span.data)])
                blocks = f", {together.mask}"
            tile, at = box_place(tile, op.boxes, offsets, box)
            maps = ", ".join(writer.values[map] for map in (op.map, *op.row_maps))
            if op.is_by_rows:
                axis = len(offsets) - 1 - shared_axis(op.boxes)  # coordinates are innermost first
                name = "tensor_load_before" if op.begin is None else "tensor_load_within"
                load = f"{writer.call(name)}<{op.boxes.rows}, {axis}>"
                stop = NEVER if op.stop is None else bare(writer.values[op.stop])
                blocks = f", {stop}" if op.begin is None else f", {bare(writer.values[op.begin])}, {stop}"
            barrier = f"&{writer.values[op.ring]}[{stage}]"
            print_for_each_box(writer, op.boxes, box, f"{self._once}{load}({tile}, {maps}, {barrier}, {at}{blocks});")

    # -- products ----------------------------------------------------------------------------------

    def product(self, op: cuda.WarpgroupProductOp) -> None:
        writer, name = self.writer, self._sums(op)
        width, steps, step = self._shape(op)
        multiply = writer.call(f"wgmma_m64n{width}{step}{'_s32' if op.is_of_integers else ''}")
        with writer.text.block("", f"}}  // {name} = {writer.values[op.lhs]} {writer.values[op.rhs]} over {op.axis}"):
            left, right = self._operands(op)
            writer.text.line(f"{writer.call('wgmma_fence')}();")
            with writer.text.block(f"UNROLL for (int {step} = 0; {step} < {steps}; ++{step})"):
                more = "true" if op.accumulator is not None else f"{step} > 0"
                first = self._first(op, left)
                sums = _by_columns(op, name, writer.type_of(op.result))
                types = self._types(op, left, right)
                writer.text.line(f"{multiply}<{types}>({sums}, {first}, {right.at}, {more});")
            writer.text.line(f"{writer.call('wgmma_commit')}();")

    def promoted(self, op: cuda.PromotedProductOp) -> None:
        """Each part of the columns by itself: what tensor cores have added up of it is awaited, and added."""
        writer, name = self.writer, self._sums(op)
        _, steps, step = self._shape(op)
        every = op.promote.data // depth_of(op.rhs.type)
        with writer.text.block("", f"}}  // {name} += {writer.values[op.lhs]} {writer.values[op.rhs]} over {op.axis}"):
            left, right = self._operands(op)
            for start, width in parts_of_product(op):
                multiply = writer.call(f"wgmma_m64n{width}{step}")
                with writer.names.scope(), writer.text.block(""):
                    part = writer.names.fresh(f"{name}_part")
                    writer.text.line(f"float {part}[{width // 8}][2][2];")
                    for begin in range(0, steps, every):
                        end = min(begin + every, steps)
                        writer.text.line(f"{writer.call('wgmma_fence')}();")
                        with writer.text.block(f"UNROLL for (int {step} = {begin}; {step} < {end}; ++{step})"):
                            first, second = self._first(op, left), right.from_row(start)
                            types = self._types(op, left, right)
                            more = f"{step} > {begin}"
                            writer.text.line(f"{multiply}<{types}>({part}, {first}, {second}, {more});")
                        writer.text.line(f"{writer.call('wgmma_commit')}();")
                        writer.text.line(f"{writer.call('wgmma_wait')}<0>();")
                        writer.text.line(f"{writer.call('keep')}({part});")
                        sums = _by_columns(op, name, "float")
                        writer.text.line(f"{writer.call('promote')}<{start // 8}>({sums}, {part});")

    def _sums(self, op: cuda.ProductOfWarpgroupsOp) -> str:
        """The name of the registers that a product adds to."""
        writer = self.writer
        if op.accumulator is None:
            return writer.declare(op.result)
        name = writer.values[op.accumulator]
        if not writer.is_last_use(op.accumulator, op):
            name = writer.declare(op.result)
            writer.copy(name, writer.values[op.accumulator], layout_of(op.result.type))
        writer.values[op.result] = name
        return name

    def _shape(self, op: cuda.ProductOfWarpgroupsOp) -> tuple[int, int, str]:
        """Columns, steps along the depth, and the name of one."""
        return columns_of_warpgroup(op.result.type), steps_of(op.rhs.type, op.axis), f"k{depth_of(op.rhs.type)}"

    def _operands(self, op: cuda.ProductOfWarpgroupsOp) -> tuple[_Operand | None, _Operand]:
        """The descriptors of both, or of the right one, where the left one is in registers."""
        rows, columns = _axes(op)
        of_rows, of_columns = _parts(op, rows)
        left = self._operand(op, op.lhs, rows, "a", of_rows) if is_shared(op.lhs.type) else None
        right = self._operand(op, op.rhs, columns, "b", of_columns)
        if left is None:  # whose registers are made before the fence: ptxas would fence each step again (C7519)
            self.writer.text.line(f"{self.writer.call('keep')}({self.writer.values[op.lhs]});")
        return left, right

    def _first(self, op: cuda.ProductOfWarpgroupsOp, left: _Operand | None) -> str:
        """The left operand of a step."""
        if left is not None:
            return left.at
        _, steps, step = self._shape(op)
        return f"{self.writer.values[op.lhs]}[{step}]" if steps > 1 else self.writer.values[op.lhs]

    def _types(self, op: cuda.ProductOfWarpgroupsOp, left: _Operand | None, right: _Operand) -> str:
        """What a product is a template over: formats, and which operands of 16 bits are transposed."""
        element = c_type(op.rhs.type)
        if format_bytes(op.rhs.type) == 1:
            return f"{c_type(op.lhs.type)}, {element}"
        flags = [int(operand.transposed) for operand in (left, right) if operand is not None]
        return ", ".join([element, *map(str, flags)])

    def product_wait(self, op: cuda.WarpgroupWaitOp) -> None:
        writer = self.writer
        name = writer.values[op.result] = writer.values[op.value]
        writer.text.line(f"{writer.call('wgmma_wait')}<{op.pending.data}>();")
        writer.text.line(f"{writer.call('keep')}({name});")

    def _operand(
        self, op: cuda.ProductOfWarpgroupsOp, tile: SSAValue, outer: str, name: str, part: _Part | None
    ) -> _Operand:
        """Declare the descriptor of an operand's tile, or of a warpgroup's part of it along the outer axis."""
        writer = self.writer
        boxes, element = boxes_of(tile.type), format_bytes(tile.type)
        row_bytes = boxes.span.data * element
        box_bytes = boxes.rows * row_bytes
        transposed = axes_of(tile.type)[boxes.row_axis] == outer
        turn = f"k{depth_of(tile.type)}"
        if transposed:
            leading, outwards = box_bytes, box_bytes // boxes.span.data
            further = scaled(turn, depth_of(tile.type) * row_bytes)
        else:
            leading, outwards = 0, row_bytes
            inside = row_bytes // DEPTH_BYTES  # steps along the depth within a box
            further = scaled(turn, DEPTH_BYTES)
            if boxes.count > 1:
                step = "" if inside == 1 else f" % {inside}"
                within = "" if inside == 1 else f"{turn}{step} * {DEPTH_BYTES}"
                further = add([scaled(turn if inside == 1 else f"{turn} / {inside}", box_bytes), within])
        start = self._start(tile, leading, "0" if part is None else part.begin(outwards))
        build = f"{writer.call('matrix_descriptor')}<{row_bytes}>({start}{self._in_turn(tile, op)}, {8 * row_bytes})"
        writer.call("further")
        writer.text.line(f"const uint64_t {name} = {build};")
        return _Operand(name, further, transposed, row_bytes)

    def _start(self, tile: SSAValue, leading: int, own: str) -> str:
        """Where a tile lies, as descriptors say it, and how far behind that a warpgroup's own part of it does. That of
        the first stage is made before all loops, for nvcc would make it anew in each turn; so a turn adds its stage."""
        writer, stage = self.writer, "0"
        first = tile
        if isinstance(tile.owner, cuda.StageOp):
            first, stage = tile.owner.tile, self._stage(tile.owner)
        text = add([f"{writer.call('matrix_start')}({writer.values[first]}, {leading})", own])
        with writer.names.scope():
            return add([writer.constant(f"{writer.values[first]}_start", text), stage])

    def _in_turn(self, tile: SSAValue, op: cuda.ProductOfWarpgroupsOp) -> str:
        """Zero, as a number of the turn, for an operand that all turns of a loop find at the same place. Without it the
        descriptors of all steps would be made before the loop, in two registers of each thread, or before the wait for
        the turn, by two 32-bit additions each; behind it one of 64 bits does. Those of few steps have room. No turn has
        bit 31."""
        turn = self.stages.turn(op)
        steps = steps_of(tile.type, op.axis)
        if turn is None or steps <= FEW_STEPS or not _is_kept(tile, op):
            return ""
        return f" + ({self.writer.call('kept')}(uint32_t({bare(self.writer.values[turn])})) >> 31)"

    def _stage(self, op: cuda.StageOp) -> str:
        """How far a stage lies behind the first one, as descriptors say it."""
        source = op.tile.owner
        assert isinstance(source, cuda.SharedOp)
        index = bare(self.writer.values[op.index])
        index = self.stages.name(op.index, source.stages.data, op) or index
        return "0" if index == "0" else scaled(f"int({index})", source.stage_bytes // DESCRIBED)


def _is_kept(tile: SSAValue, op: cuda.ProductOfWarpgroupsOp) -> bool:
    """Whether a loop around a product finds the operand at the same place in every turn."""
    around = op.parent_op()
    while around is not None and not (isinstance(tile.owner, Operation) and around.is_ancestor(tile.owner)):
        if isinstance(around, scf.ForOp):
            return True
        around = around.parent_op()
    return False


def _axes(op: cuda.ProductOfWarpgroupsOp) -> tuple[str, str]:
    """Rows and columns of a product."""
    axes = result_axes(layout_of(op.result.type))
    assert axes is not None
    return axes


@dataclass(frozen=True)
class _Part:
    """A warpgroup's own part of an operand, along the axis that is not summed: its number, and the elements of one."""

    number: str
    size: int

    def begin(self, stride: int) -> str:
        """Where it begins, as descriptors say it, with elements so many bytes apart."""
        return scaled(self.number, self.size * stride // DESCRIBED)


def _parts(op: cuda.ProductOfWarpgroupsOp, rows: str) -> tuple[_Part | None, _Part | None]:
    """The rows of a left operand that a warpgroup multiplies, and the columns of a right one; None where it takes
    all."""
    inner, across = layout_of(op.result.type).along(rows)
    groups = inner.warps * LANES // WARPGROUP
    if across.size == 1:
        return _Part("warpgroup", ROWS), None
    one = groups == 1
    columns = _Part("warpgroup" if one else f"warpgroup / {groups}", across.stride) if across.axis else None
    return None if one else _Part(f"warpgroup % {groups}", ROWS), columns


def _by_columns(op: cuda.ProductOfWarpgroupsOp, name: str, type: str) -> str:
    """Sums as products have them, also where their columns are counted by two digits."""
    if not row_order(op.result.type):
        return name
    width = columns_of_warpgroup(op.result.type)
    return f"reinterpret_cast<{type}(&)[{width // 8}][2][2]>({name})"


@dataclass(frozen=True)
class _Operand:
    """A descriptor in the loop over the depth, how far each step is, whether its rows run across the depth, and the
    bytes of one."""

    name: str
    further: str
    transposed: bool
    row_bytes: int

    @property
    def at(self) -> str:
        return f"further({self.name}, {self.further})"

    def from_row(self, row: int) -> str:
        """From so many rows of the tile on; of rows that run along the depth."""
        return f"further({self.name}, {add([self.further, str(row * self.row_bytes)])})" if row else self.at

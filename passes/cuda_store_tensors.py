"""Let results leave through tiles in boxes and tensor copies, where the machine has the means."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import IntAttr, MemRefType, ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.cost.kernel.leaving import STORE_STEPS, saved_by_tensor_store
from treadle.compiler.errors import InternalError
from treadle.compiler.layouts.conversions import BARRIER
from treadle.compiler.lowering.leaving import boxes_cost, held_cost
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.boxes import MOST_ROWS
from treadle.dialects.cuda.layout import LANES, is_interleaved
from treadle.dialects.cuda.rings import place_shared
from treadle.dialects.cuda.tensor_maps import MOST_AXES, why_not_padded
from treadle.dialects.cuda.tiles import boxes_of, format_bytes, layout_of, padded_axes, tile_bytes
from treadle.dialects.cuda.warpgroups import result_axes
from treadle.dialects.diagram.array import DYNAMIC, format_of, sizes_of
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._functions import function_of, launches_of_kernel
from treadle.passes._levels import check_lowered
from treadle.passes.warps.laws import Reason, constant_of
from treadle.passes.warps.tiles import boxed_type

NARROW, WORD = 2, 4
"""Bytes of elements that `stmatrix` writes to boxes, and of those that go there in pairs."""

MEETINGS = 2
"""Around what is written to a tile where others lay."""

UNIT = 16
"""Bytes that the strides of an array with a tensor map are multiples of."""


@dataclass(frozen=True)
class CudaStoreTensorsPass(ModulePass):
    """Let the results of kernels with roles leave by tensor copies: the consumers write their fragments to a tile in
    boxes (`stmatrix`, words in pairs), a proxy fence and a barrier make that seen, and one thread starts the copies,
    which the block awaits only before it ends.

    Legal if the fragments are those of an accumulator of warpgroups, nothing else uses the tile (fragments that leave
    from registers, as those of a result that is turned, get one where other tiles are dead), and the array takes a
    tensor map, whose copies write nothing outside of it: so a bound of the copy must be the array's end. The launch
    then asks for the result, too, whether it has a map, and takes the kernel without roles if not. The pass declines,
    and says why in the derivation, where that does not hold, and where the tile is so small that the copy saves no
    thread an instruction (`cost/kernel/leaving.py`), or of words the block nothing (`lowering/leaving.py`).

    Before:
    ```
    #accumulator = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>
    #rows = #cuda.rows<extents = [64, 64], pitch = 64, swizzle = [3, 0]>
    !C = memref<64x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
    !Cs = memref<64x64xf16, #diagram.array<[m, n], level = shared, layout = #rows>>
    !c = tensor<64x64xf16, #diagram.array<[m, n], level = register, layout = #accumulator>>
    cuda.kernel @ones (%C: !C) threads 256 shared 8192 {
      %C_shared = cuda.shared at 0 alias : !Cs
      %zero = arith.constant 0 : index
      cuda.roles registers 0, 0 producer {
      } consumers 1 {
        %one = diagram.fill 1.000000e+00 : f16 -> !c
        cuda.write %one into %C_shared : !c, !Cs
        cuda.barrier
        cuda.copy %C_shared into %C[%zero, %zero] : !Cs, !C
      }
    }
    func.func @host() {
      %blocks = arith.constant 1 : index
      %C = memref.alloc() : !C
      %mappable = cuda.mappable %C : !C
      scf.if %mappable {
        cuda.launch @ones grid %blocks aligned %blocks (%C) : !C
      }
      func.return
    }
    ```

    After:
    ```
    #accumulator = #cuda.layout<register = [n:8:8, m:2:8, n:2:1], lane = [m:8:1, n:4:2], warp = [m:4:16]>
    #boxes = #cuda.boxes<extents = [64, 64], span = 64>
    !C = memref<64x64xf16, strided<[?, 1], offset: ?>, #diagram.array<[m, n], level = device>>
    !C_map = !cuda.tensor_map<[64, 64], !C>
    !Cs = memref<64x64xf16, #diagram.array<[m, n], level = shared, layout = #boxes>>
    !c = tensor<64x64xf16, #diagram.array<[m, n], level = register, layout = #accumulator>>
    cuda.kernel @ones (%C_map: !C_map) threads 256 shared 8192 {
      %C_shared = cuda.shared at 0 alias : !Cs
      %zero = arith.constant 0 : index
      cuda.roles registers 0, 0 producer {
      } consumers 1 {
        %one = diagram.fill 1.000000e+00 : f16 -> !c
        cuda.write %one into %C_shared : !c, !Cs
        cuda.tensor_fence
        cuda.barrier
        cuda.tensor_store %C_shared into %C_map[%zero, %zero] : !Cs, !C_map
        cuda.tensor_wait pending 0
      }
    }
    func.func @host() attributes {derivation = [
        #hierarchy.step<"cuda-store-tensors", "%one in @ones",
          "a tensor copy writes nothing outside of its array, and reads what was written before a fence and a barrier",
          "8,192 bytes in 1 box; 6 instructions a thread fewer">]} {
      %blocks = arith.constant 1 : index
      %C = memref.alloc() : !C
      %mappable = cuda.mappable %C, %C : !C, !C
      scf.if %mappable {
        %C_map = cuda.tensor_map %C : !C_map
        cuda.launch @ones grid %blocks aligned %blocks (%C_map) : !C_map
      }
      func.return
    }
    ```
    """

    name = "cuda-store-tensors"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_lowered(op)
        for kernel in [inner for inner in op.body.block.ops if isinstance(inner, cuda.KernelOp)]:
            roles, launches = cuda.roles_of(kernel), launches_of_kernel(kernel)
            if roles is None or not launches:
                continue
            function = function_of(launches[0])
            found = [each for each in map(_leaving, roles.consumers.block.walk()) if each is not None]
            record(function.attributes, [_try(each, kernel) for each in found])
            if problems := ring_problems(kernel):
                raise InternalError(f"@{kernel.sym_name.data}: {problems[0]}")


@dataclass(frozen=True)
class _Leaving:
    """A piece of a result that leaves: from fragments, or from the tile that they were written to."""

    op: cuda.CopyOp | cuda.StoreOp
    value: SSAValue
    """The fragments."""
    write: cuda.WriteOp | None
    buffer: BlockArgument

    @property
    def type(self) -> MemRefType:
        """Of the tile that tensor copies take."""
        return boxed_type(self.value)

    @property
    def bytes(self) -> int:
        return tile_bytes(self.type)

    @property
    def copied_bytes(self) -> int:
        """Without what only pads the tile."""
        type = self.type
        return prod(sizes_of(type).values()) * format_bytes(type) if padded_axes(type) else self.bytes


def _leaving(op: Operation) -> _Leaving | None:
    match op:
        case cuda.StoreOp() if op.place is None and isinstance(op.destination, BlockArgument):
            return _Leaving(op, op.value, None, op.destination)
        case cuda.CopyOp() if op.is_outward and isinstance(op.destination, BlockArgument):
            users = [use.operation for use in op.tile.uses]
            writes = [each for each in users if isinstance(each, cuda.WriteOp) and each.parent is op.parent]
            return _Leaving(op, writes[0].value, writes[0], op.destination) if len(users) == 2 and writes else None
        case _:
            return None


def _try(leaving: _Leaving, kernel: cuda.KernelOp) -> StepAttr:
    subject = f"%{leaving.value.name_hint} in @{kernel.sym_name.data}"
    reason = _why_not(leaving, kernel, launches_of_kernel(kernel)[0])
    if reason is not None:
        return StepAttr("decline cuda-store-tensors", subject, reason.law, reason.fact)
    boxes, saved = boxes_of(leaving.type), _told_saved(leaving, kernel)
    told = f"{leaving.bytes:,} bytes in {boxes.count} box{'es' * (boxes.count > 1)}"
    _rewrite(leaving, kernel)
    law = "a tensor copy writes nothing outside of its array, and reads what was written before a fence and a barrier"
    return StepAttr("cuda-store-tensors", subject, law, f"{told}; {saved}")


def _why_not(leaving: _Leaving, kernel: cuda.KernelOp, launch: cuda.LaunchOp) -> Reason | None:
    """Why a piece cannot leave by tensor copies; None if it can."""
    branch = launch.parent_op()
    if not isinstance(branch, scf.IfOp) or not isinstance(branch.cond.owner, cuda.MappableOp):
        return Reason("the launch asks whether arrays have tensor maps", "it does not ask")
    if launch.parent is not branch.true_region.block:
        return Reason("the launch asks whether arrays have tensor maps", "it runs where they have none")
    reason = _layout_problem(leaving) or _bound_problem(leaving, launch)
    if reason is not None:
        return reason
    if _saved(leaving, kernel) < 1:
        return Reason("a tensor copy pays for its fence and its wait", _told_loss(leaving, kernel))
    return _place_problem(leaving, kernel) if leaving.write is None else None


def _layout_problem(leaving: _Leaving) -> Reason | None:
    law, sizes = "a tensor map describes what leaves", sizes_of(leaving.value.type)
    name, bytes = f"%{leaving.buffer.name_hint}", format_bytes(leaving.value.type)
    layout = layout_of(leaving.value.type)
    if result_axes(layout) is None or is_interleaved(layout) or bytes not in (NARROW, WORD):
        fact = f"{name} is stored from other fragments of {format_of(leaving.value.type)}"
        return Reason("fragments of an accumulator, of 16 or 32 bits, are written to boxes", fact)
    *rows, _ = sizes.values()
    if not 2 <= len(sizes) <= MOST_AXES or max(rows) > MOST_ROWS:
        return Reason(law, f"pieces of {name} have {list(sizes.values())} elements")
    extents = [layout.extent(axis) for axis in sizes]
    if extents[-1] == 1:
        return Reason(law, f"pieces of {name} are one element wide along '{list(sizes)[-1]}', in which rows lie")
    if extents != list(sizes.values()):
        return Reason(law, f"pieces of {name} are padded")
    if (problem := why_not_padded(leaving.type, leaving.buffer.type)) is not None:
        return Reason(law, problem)
    width = list(sizes_of(leaving.buffer.type).values())[-1]
    if width != DYNAMIC and width * bytes % UNIT:
        return Reason(law, f"rows of {name} are {width * bytes} bytes, no multiple of {UNIT}")
    return None


def _bound_problem(leaving: _Leaving, launch: cuda.LaunchOp) -> Reason | None:
    """A tensor copy stops where the array does: a bound must be there."""
    for axis, limit in zip(leaving.op.bound_axes, leaving.op.limits, strict=True):
        size = sizes_of(leaving.buffer.type)[axis]
        if size != constant_of(limit) if size != DYNAMIC else not _is_end(leaving.buffer, launch, axis, limit):
            fact = f"%{leaving.buffer.name_hint} is written only up to %{limit.name_hint} along '{axis}'"
            return Reason("a tensor copy stops where the array ends", fact)
    return None


def _is_end(buffer: BlockArgument, launch: cuda.LaunchOp, axis: str, limit: SSAValue) -> bool:
    """Whether the launch gives for a bound what the array was allocated with."""
    made = launch.arguments[buffer.index].owner
    if not isinstance(made, memref.AllocOp) or not isinstance(limit, BlockArgument):
        return False
    symbolic = [name for name, size in sizes_of(buffer.type).items() if size == DYNAMIC]
    return made.dynamic_sizes[symbolic.index(axis)] is launch.arguments[limit.index]


def _place_problem(leaving: _Leaving, kernel: cuda.KernelOp) -> Reason | None:
    """Fragments that leave last can take the place of tiles that are dead by then."""
    law = "the tile lies where others lay that nobody needs any more"
    tiles = [op for op in kernel.body.block.ops if isinstance(op, cuda.SharedOp)]
    if any(tile.alias is not None for tile in tiles):
        return Reason(law, f"%{next(each for each in tiles if each.alias).result.name_hint} lies there")
    later = leaving.op.next_op
    while later is not None:
        if any(isinstance(each, cuda.ProductOfWarpgroupsOp) or _takes_boxes(each) for each in later.walk()):
            return Reason(law, f"'{later.name}' follows")
        later = later.next_op
    if not isinstance(leaving.op.parent_op(), cuda.RolesOp):
        return Reason(law, f"%{leaving.value.name_hint} is stored in a loop or a branch")
    if leaving.bytes > kernel.shared_bytes.data:
        return Reason(law, f"it has {leaving.bytes:,} bytes, they {kernel.shared_bytes.data:,}")
    return None


def _takes_boxes(op: Operation) -> bool:
    """Whether what an operation stores might leave by tensor copies, too."""
    return (other := _leaving(op)) is not None and _layout_problem(other) is None


def _saved(leaving: _Leaving, kernel: cuda.KernelOp) -> int:
    """By the tensor copy: instructions of a thread that copies its part of a tile; of words that leave as lanes hold
    them, what a block issues, and the wavefronts and lines of that (`compiler/lowering/leaving.py`)."""
    if not _leaves_as_held(leaving):
        return saved_by_tensor_store(leaving.copied_bytes, cuda.working_threads(kernel))
    held, in_boxes = _costs(leaving, kernel)
    return held - in_boxes


def _leaves_as_held(leaving: _Leaving) -> bool:
    return leaving.write is None and format_bytes(leaving.value.type) == WORD


def _costs(leaving: _Leaving, kernel: cuda.KernelOp) -> tuple[int, int]:
    """What words cost a block that leave as lanes hold them, and by a tensor copy."""
    threads = cuda.working_threads(kernel)
    assert isinstance(leaving.op, cuda.StoreOp)
    of_copy = MEETINGS * BARRIER + STORE_STEPS * threads // LANES
    return held_cost(leaving.op), boxes_cost(leaving.op, boxes_of(leaving.type)) + of_copy


def _told_saved(leaving: _Leaving, kernel: cuda.KernelOp) -> str:
    if not _leaves_as_held(leaving):
        return f"{_saved(leaving, kernel)} instructions a thread fewer"
    held, in_boxes = _costs(leaving, kernel)
    return (
        f"{in_boxes:,} instructions, wavefronts and waits of a block, {held:,} instructions and lines as lanes hold it"
    )


def _told_loss(leaving: _Leaving, kernel: cuda.KernelOp) -> str:
    if not _leaves_as_held(leaving):
        return f"the tile has {leaving.bytes:,} bytes"
    return f"the tile has {leaving.bytes:,} bytes: {_told_saved(leaving, kernel)}"


def _rewrite(leaving: _Leaving, kernel: cuda.KernelOp) -> None:
    block, op, buffer = kernel.body.block, leaving.op, leaving.buffer
    tile = _staged(leaving, block)
    type = cuda.TensorMapType(boxes_of(tile.type).box, buffer.type)
    map = block.insert_arg(type, len(block.args))
    map.name_hint = f"{buffer.name_hint}_map"
    store = cuda.TensorStoreOp(tile, map, op.offsets)
    store.location = op.location
    number = buffer.index
    Rewriter.replace_op(op, [store, cuda.TensorWaitOp()], [])
    unused = not list(buffer.uses)
    if unused:
        block.erase_arg(buffer)
    kernel.shared_bytes = IntAttr(place_shared(block))
    for launch in launches_of_kernel(kernel):
        _give_map(launch, number, type, unused)


def _staged(leaving: _Leaving, block: Block) -> SSAValue:
    """The tile in boxes, written and fenced before the piece leaves."""
    if leaving.write is not None:
        old = leaving.write.destination.owner
        assert isinstance(old, cuda.SharedOp)
        shared = cuda.SharedOp(0, leaving.type, alias=old.alias is not None)
        shared.result.name_hint = old.result.name_hint
        Rewriter.replace_op(old, shared)
        _fence(leaving.op)
        return shared.result
    shared = cuda.SharedOp(0, leaving.type, alias=True)
    shared.result.name_hint = f"{leaving.buffer.name_hint}_shared"
    last = next(op for op in reversed(list(block.ops)) if isinstance(op, cuda.SharedOp))
    Rewriter.insert_op(shared, InsertPoint.after(last))
    write = cuda.WriteOp(leaving.value, shared.result)
    write.location = leaving.op.location
    ops = [cuda.BarrierOp(), write, cuda.TensorFenceOp(), cuda.BarrierOp()]
    Rewriter.insert_op(ops, InsertPoint.before(leaving.op))
    return shared.result


def _fence(copy: Operation) -> None:
    """Before the last barrier that all consumers reach between their writes and the copy."""
    op: Operation | None = copy.prev_op
    while op is not None and not isinstance(op, cuda.BarrierOp | cuda.WriteOp):
        op = op.prev_op
    if not isinstance(op, cuda.BarrierOp):
        Rewriter.insert_op(op := cuda.BarrierOp(), InsertPoint.before(copy))
    Rewriter.insert_op(cuda.TensorFenceOp(), InsertPoint.before(op))


def _give_map(launch: cuda.LaunchOp, number: int, type: cuda.TensorMapType, instead: bool) -> None:
    """A launch that gives the map of its argument of that number, too; or `instead` of the argument."""
    buffer, branch = launch.arguments[number], launch.parent_op()
    assert isinstance(branch, scf.IfOp)
    asked = branch.cond.owner
    assert isinstance(asked, cuda.MappableOp)
    new = cuda.MappableOp([*asked.buffers, buffer], asked.wanted)
    new.result.name_hint = asked.result.name_hint
    Rewriter.replace_op(asked, new)
    map = cuda.TensorMapOp(buffer, type)
    map.result.name_hint = f"{buffer.name_hint}_map"
    arguments = [given for i, given in enumerate(launch.arguments) if not (instead and i == number)]
    changed = cuda.LaunchOp(launch.kernel.root_reference.data, launch.grid, launch.alignment, [*arguments, map.result])
    changed.location = launch.location
    Rewriter.replace_op(launch, [map, changed], [])
